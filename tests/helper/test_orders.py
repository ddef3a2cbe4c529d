"""Tests for the helper that delivers orders and acknowledges checkpoints, with an operator of their own."""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest

from argosy.helper.checkpoint_folder import Checkpoint, CheckpointFolder, prepare
from argosy.helper.endpoint import Endpoint
from argosy.helper.orders import CheckpointWatcher, OrderListener, Settings, keep_current, read_order
from argosy.workload.save_acks import CheckpointAck
from argosy_sdk import manifest
from argosy_sdk.session import Session


class Operator(Endpoint):
    """Answers as a test says, and remembers what it was asked."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.queries: list[Mapping[str, str]] = []
        self.posts: list[tuple[str, Mapping[str, object]]] = []
        self.problem = ""

    def get(  # type: ignore[override]  # without the generic result
        self, path: str, query: Mapping[str, str], deadline: float | None, read: Callable[[bytes], object]
    ) -> object:
        self.queries.append(query)
        return read(json.dumps(self.answers.pop(0)).encode())

    def post_json(self, path: str, body: Mapping[str, object], timeout: float) -> str:
        self.posts.append((path, body))
        return self.problem


def settings(folder: Path, replica: int = 0, *, is_shared: bool = True) -> Settings:
    return Settings(
        folder / "checkpoints",
        folder / "run/orders/orders.json",
        2,
        "pod",
        "uid",
        "worker",
        replica,
        is_shared=is_shared,
        may_signal=False,
        resume=folder / "run/resume/checkpoint",
        attempt="2",
        replacement="3",
    )


def save(
    folder: Path, step: int, minute: int = 0, epoch: int = 0, content: str = "state", parent: str = ""
) -> Path:
    """Make a checkpoint as a program without the SDK would."""
    path = folder / "checkpoints" / f"step-{step}"
    path.mkdir(parents=True)
    (path / "state.txt").write_text(content)
    parts = manifest.make_parts(path, ["state.txt"], 0)
    created = f"2030-01-01T00:{minute or step:02}:00Z"
    described = {"version": 1, "step": step, "world": 1, "epoch": epoch, "created": created, "seconds": 0.5}
    described |= {"parent": parent} if parent else {}
    manifest.write_json(path / "manifest.json", {**described, "parts": parts})
    return path


def order(epoch: int, action: str = "Save", version: int = 1) -> dict[str, object]:
    return {
        "version": version,
        "epoch": epoch,
        "action": action,
        "reason": "Preempted",
        "by": None,
        "stop": True,
    }


def steps(folder: Path) -> Sequence[int]:
    return [checkpoint.step for checkpoint in CheckpointFolder(folder / "checkpoints").find()]


def test_each_order_is_written_once_and_asked_for_by_the_last_number(tmp_path: Path) -> None:
    operator, wake = Operator(order(8), order(8), order(9)), threading.Event()
    wanted = settings(tmp_path)
    listener = OrderListener(operator, wanted, wake)
    assert listener.run_once()
    assert json.loads(wanted.orders.read_text()) == order(8)
    assert wake.is_set()
    assert not listener.run_once(), "a replica whose cache lags gives the same answer"
    assert listener.run_once()
    assert json.loads(wanted.orders.read_text())["epoch"] == 9
    assert [query["seen"] for query in operator.queries] == ["", "8", "8"]
    assert operator.queries[0] == {
        "wait": "30s",
        "role": "worker",
        "index": "0",
        "attempt": "2",
        "replacement": "3",
        "seen": "",
    }


def test_sidecar_that_is_restarted_leaves_the_order_that_its_pod_stops_after(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    OrderListener(Operator(order(8)), wanted, threading.Event()).run_once()
    operator = Operator(order(8, "None"), order(9, "None"))
    restarted = OrderListener(operator, wanted, threading.Event())
    assert not restarted.run_once(), "the order is answered"
    assert json.loads(wanted.orders.read_text()) == order(8)
    assert restarted.run_once()
    assert json.loads(wanted.orders.read_text()) == order(9, "None")
    assert [query["seen"] for query in operator.queries] == ["8", "8"]


def test_file_of_orders_that_is_garbage_counts_as_none(tmp_path: Path) -> None:
    wanted = settings(tmp_path)
    wanted.orders.parent.mkdir(parents=True)
    wanted.orders.write_bytes(b"\xff{")
    operator = Operator(order(8))
    assert OrderListener(operator, wanted, threading.Event()).run_once()
    assert (operator.queries[0]["seen"], json.loads(wanted.orders.read_text())) == ("", order(8))


def test_pod_that_shall_stop_too_after_an_order_that_it_has_seen_learns_it_once(tmp_path: Path) -> None:
    trains_on = {**order(8), "stop": False}
    outdated = [trains_on, order(8), order(7), {**order(8), "action": "None"}]
    operator = Operator(trains_on, order(7), order(8), *outdated)
    wanted = settings(tmp_path)
    listener = OrderListener(operator, wanted, threading.Event())
    assert listener.run_once()
    assert not listener.run_once(), "that is another order, of before"
    assert json.loads(wanted.orders.read_text())["stop"] is False
    assert listener.run_once()
    assert json.loads(wanted.orders.read_text()) == order(8)
    assert not any(listener.run_once() for _ in outdated), "a replica whose cache lags takes nothing back"
    assert json.loads(wanted.orders.read_text()) == order(8)
    assert [query.get("stop") for query in operator.queries] == [None, "0", "0", "1", "1", "1", "1"]
    assert [query["seen"] for query in operator.queries] == ["", *["8"] * 6]


def test_folder_is_looked_at_often_until_the_order_is_answered(tmp_path: Path) -> None:
    listener = OrderListener(Operator(order(8), order(9, "None")), settings(tmp_path), threading.Event())
    assert not listener.is_ordered(0)
    listener.run_once()
    assert listener.is_ordered(7)
    assert not listener.is_ordered(8)
    listener.run_once()
    assert not listener.is_ordered(0)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"<html>", b'{"version": 2, "epoch": 1, "action": "Save"}']
)
def test_answer_that_is_no_order_is_asked_for_again(body: bytes) -> None:
    assert read_order(body) is None


def test_checkpoint_of_a_node_whose_clock_is_behind_is_newer_than_the_one_before_it(tmp_path: Path) -> None:
    for step, minute in ((10, 30), (11, 31)):
        last = save(tmp_path, step, minute=minute)
    operator = Operator()
    watcher = CheckpointWatcher(operator, settings(tmp_path))
    watcher.look()
    for step, minute in ((12, 20), (13, 21), (14, 22)):  # on another node
        last = save(tmp_path, step, minute, step, parent=manifest.digest_of(manifest.read(last)))
        watcher.look()
    assert [body["step"] for _, body in operator.posts] == [11, 12, 13, 14]
    assert steps(tmp_path) == [14, 13], "older ones are deleted"


def test_program_without_parents_that_moved_to_a_slower_clock_is_acknowledged(tmp_path: Path) -> None:
    for step, minute in ((10, 50), (11, 51)):  # on a node whose clock is ahead
        save(tmp_path, step, minute)
    operator = Operator()
    watcher = CheckpointWatcher(operator, settings(tmp_path))
    watcher.look()
    for step in (12, 13, 14):
        save(tmp_path, step, minute=step)
        watcher.look()
    assert [body["step"] for _, body in operator.posts] == [11, 12, 13, 14]
    assert steps(tmp_path) == [14, 13], "those of the other node are the older ones"


def test_checkpoint_of_the_highest_step_is_kept(tmp_path: Path) -> None:
    save(tmp_path, 10, minute=50)  # on a node whose clock is ahead
    save(tmp_path, 11, minute=51)
    for step in (12, 13):
        save(tmp_path, step, minute=step)
    CheckpointWatcher(Operator(), settings(tmp_path)).look()
    assert sorted(steps(tmp_path)) == [10, 11, 13], "a program would resume from it"


class SlowStore:
    """A store that takes a checkpoint once it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def publish(self, checkpoint: Checkpoint) -> Checkpoint:
        if not self.released.wait(20):
            raise OSError("not released")
        return checkpoint

    def prune(self) -> None: ...


def test_last_step_is_reported_while_a_checkpoint_is_being_sent(tmp_path: Path) -> None:
    """SIGTERM comes while it is sent, and it is sent only when the step is known."""
    store, step_file = SlowStore(), tmp_path / "step"
    step_file.write_text("10")

    class Ending(Operator):
        def get(self, *_: object) -> object:  # type: ignore[override]
            return threading.Event().wait()  # No order, ever.

        def post_json(self, path: str, body: Mapping[str, object], timeout: float) -> str:
            if body.get("step") == 10 and path == "checkpoints/step":
                step_file.write_text("20")
                os.kill(os.getpid(), signal.SIGTERM)
            elif path == "checkpoints/step":
                store.released.set()
            return super().post_json(path, body, timeout)

    save(tmp_path, 9)
    operator, handlers = Ending(), {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(SystemExit) as ended:
            keep_current(operator, settings(tmp_path)._replace(step_file=step_file), store)
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    assert ended.value.code == 0
    assert [(path, body["step"]) for path, body in operator.posts] == [
        ("checkpoints/step", 10),
        ("checkpoints/step", 20),
        ("checkpoints/ack", 9),
    ]


def test_complete_checkpoint_is_acknowledged_once(tmp_path: Path) -> None:
    operator = Operator()
    watcher = CheckpointWatcher(operator, settings(tmp_path))
    watcher.look()
    assert not operator.posts
    path = save(tmp_path, 5, epoch=8)
    watcher.look()
    watcher.look()
    [(where, body)] = operator.posts
    digest = manifest.digest_of(manifest.read(path))
    assert where == "checkpoints/ack"
    assert body == {
        "pod": "pod",
        "uid": "uid",
        "step": 5,
        "epoch": 8,
        "world": 1,
        "digest": digest,
        "size": 5,
        "seconds": 0.5,
        "created": "2030-01-01T00:05:00Z",
    }
    assert watcher.epoch == 8


@pytest.mark.parametrize("written", ["yesterday", "2030-01-01T00:05:00", "2030-13-01T00:05:00Z", 7, None])
def test_checkpoint_without_a_time_that_can_be_read_has_that_of_its_manifest(
    tmp_path: Path, written: object
) -> None:
    path = save(tmp_path, 5) / "manifest.json"
    described = json.loads(path.read_text())
    del described["version"], described["created"]
    manifest.write_json(path, described if written is None else {**described, "created": written})
    os.utime(path, (0, 1893456000))
    operator = Operator()
    CheckpointWatcher(operator, settings(tmp_path)).look()
    [(_, body)] = operator.posts
    assert (body["step"], body["created"]) == (5, "2030-01-01T00:00:00.000+00:00")
    assert msgspec.convert(body, CheckpointAck).created == datetime(2030, 1, 1, tzinfo=UTC)


def test_failed_acknowledgement_is_repeated(tmp_path: Path) -> None:
    operator = Operator()
    watcher = CheckpointWatcher(operator, settings(tmp_path))
    save(tmp_path, 5)
    operator.problem = "503 not ready"
    watcher.look()
    watcher.look(is_last=True)
    assert len(operator.posts) == 2


INCOMPLETE: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "manifest cut short": lambda path: os.truncate(path / "manifest.json", 20),
    "file cut short": lambda path: os.truncate(path / "state.txt", 2),
    "file missing": lambda path: (path / "state.txt").unlink(),
}


@pytest.mark.parametrize("damage", INCOMPLETE.values(), ids=INCOMPLETE.keys())
def test_incomplete_checkpoint_is_not_acknowledged(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    operator = Operator()
    save(tmp_path, 4)
    damage(save(tmp_path, 5))
    CheckpointWatcher(operator, settings(tmp_path)).look()
    assert [body["step"] for _, body in operator.posts] == [4]


def test_other_replicas_of_a_shared_folder_wait_unless_they_end(tmp_path: Path) -> None:
    operator = Operator()
    watcher = CheckpointWatcher(operator, settings(tmp_path, replica=3))
    save(tmp_path, 5)
    watcher.look()
    assert not operator.posts
    watcher.look(is_last=True)
    assert [body["step"] for _, body in operator.posts] == [5]
    alone = CheckpointWatcher(operator, settings(tmp_path, replica=3, is_shared=False))
    alone.look()
    assert len(operator.posts) == 2


def test_old_checkpoints_are_deleted_after_a_new_one_is_acknowledged(tmp_path: Path) -> None:
    operator = Operator()
    operator.problem = "503 not ready"
    for step in range(1, 6):
        save(tmp_path, step)
    watcher = CheckpointWatcher(operator, settings(tmp_path))
    watcher.look()
    assert steps(tmp_path) == [5, 4, 3, 2, 1], "nothing is deleted before the operator knows the last one"
    operator.problem = ""
    watcher.look(is_last=True)
    assert steps(tmp_path) == [5, 4]


RIGHTS = {
    "in a volume where others may not write": (0o755, 0o755),
    "in an emptyDir, where everybody may rename": (0o777, 0o755),
    "where others may write into checkpoints only": (0o755, 0o777),
}
"""The modes of the folder of all checkpoints and of each one."""


@pytest.mark.root
@pytest.mark.parametrize(("of_all", "of_each"), RIGHTS.values(), ids=RIGHTS)
def test_old_checkpoints_of_another_user_are_deleted_by_the_program_as_it_saves(
    capsys: pytest.CaptureFixture[str], of_all: int, of_each: int
) -> None:
    """As in a pod whose program runs as root, because nothing else is said: the sidecar never does."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "run/orders").mkdir(parents=True)
        wanted = settings(folder)
        wanted.folder.mkdir()
        for path, given in ((folder, 0o755), (folder / "run/orders", 0o777), (wanted.folder, of_all)):
            path.chmod(given)
        variables = {"ARGOSY_CHECKPOINT_DIR": str(wanted.folder), "ARGOSY_ORDERS": str(wanted.orders)}
        training, watcher = Session(variables), CheckpointWatcher(Operator(), wanted)
        for step in range(1, 7):
            with training.saving(step) as target:
                (target / "state.txt").write_text("state")
            (wanted.folder / f"step-{step}").chmod(of_each)
            with effective_user(65532):
                watcher.look()
        assert sorted(path.name for path in wanted.folder.iterdir()) == ["step-4", "step-5", "step-6"]
        assert capsys.readouterr().err == ""
        for step in (7, 8):
            save(folder, step)
            with effective_user(65532):
                watcher.look()
        assert steps(folder) == [8, 7, 6, 5, 4], "a program without the SDK"
        assert "argosy: 3 old checkpoints belong to another user" in capsys.readouterr().err


@contextmanager
def effective_user(user: int) -> Iterator[None]:
    """Act as another user for the duration of the block."""
    before = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(before)


def test_checkpoint_that_was_restored_is_reported_before_newer_ones(tmp_path: Path) -> None:
    """A program that saves more often than the sidecar looks does not keep it from reporting."""
    operator = Operator()
    link = tmp_path / "run/resume/checkpoint"
    path = save(tmp_path, 5)
    link.parent.mkdir(parents=True)
    link.symlink_to(path)
    watcher = CheckpointWatcher(operator, settings(tmp_path))
    for step in (6, 7):
        save(tmp_path, step)
        watcher.look()
    assert [(where, body["step"]) for where, body in operator.posts] == [
        ("checkpoints/resumed", 5),
        ("checkpoints/ack", 6),
        ("checkpoints/ack", 7),
    ]


def resumed(folder: Path) -> str:
    link = folder / "run/resume/checkpoint"
    assert prepare(folder / "checkpoints", link, folder / "run/sdk") == 0
    return link.resolve().name if link.exists() else ""


def test_newest_checkpoint_that_verifies_is_resumed_from(tmp_path: Path) -> None:
    assert resumed(tmp_path) == "", "a first start finds none"
    save(tmp_path, 4)
    newest = save(tmp_path, 5)
    assert resumed(tmp_path) == "step-5"
    (newest / "state.txt").write_text("other")
    assert resumed(tmp_path) == "step-4"
    assert (tmp_path / "run/sdk/argosy_sdk/__init__.py").exists()


def test_a_copy_resumes_from_the_newest_checkpoint_of_any_copy_and_prefers_its_own(tmp_path: Path) -> None:
    own, link, copies = tmp_path / "checkpoints", tmp_path / "run/resume/checkpoint", tmp_path / "copies"
    copies.mkdir()

    def found() -> Path:
        assert prepare(own, link, tmp_path / "run/sdk", copies) == 0
        return link.resolve()

    save(tmp_path, 4)
    for name, step in (("replica-0", 4), ("replica-1", 6)):
        save(tmp_path / name, step)
        (tmp_path / name / "checkpoints").rename(copies / name)
    newest = copies / "replica-1" / "step-6"
    assert found() == newest
    (newest / "state.txt").write_text("damaged")
    assert found() == own / "step-4"
