"""One process: what is resumed, when a checkpoint is due, and what a failed save leaves."""

import errno
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy_sdk import CheckpointError
from argosy_sdk.session import Session


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def session(folder: Path, clock: Clock | None = None, variables: Mapping[str, str] = {}) -> Session:
    environ = {
        "ARGOSY_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "ARGOSY_ORDERS": str(folder / "orders.json"),
        "ARGOSY_CHECKPOINT_INTERVAL": "60",
        **variables,
    }
    return Session(environ, clock or Clock())


def save(training: Session, step: int, content: str = "weights") -> None:
    with training.saving(step) as folder:
        (folder / "model").write_text(content)
        (folder / "optimizer").mkdir()
        (folder / "optimizer" / "state").write_text(f"state of {step}")


def order(folder: Path, epoch: int, **fields: object) -> None:
    content = {"version": 1, "epoch": epoch, "action": "Save", "reason": "Preempted", **fields}
    (folder / "orders.json").write_text(json.dumps(content))


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_a_checkpoint_is_found_again_with_its_files(tmp_path: Path) -> None:
    save(session(tmp_path), 5)
    found = session(tmp_path).latest()
    assert found == tmp_path / "checkpoints" / "step-5"
    assert (found / "optimizer" / "state").read_text() == "state of 5"


def test_the_manifest_is_valid_and_names_its_parent(tmp_path: Path) -> None:
    training = session(tmp_path, variables={"ARGOSY_JOB_UID": "uid-1", "ARGOSY_ATTEMPT": "2"})
    save(training, 5)
    save(training, 6)
    first, second = (read_manifest(tmp_path / "checkpoints" / f"step-{step}") for step in (5, 6))
    assert (second.job, second.attempt, second.step, second.world) == ("uid-1", 2, 6, 1)
    assert [(part.path, part.rank) for part in second.parts] == [("model", 0), ("optimizer/state", 0)]
    assert (first.parent, second.parent) == ("", first.digest)


DAMAGES = {
    "a file is shorter": ("model", "w"),
    "a file has other content of the same size": ("model", "WEIGHTS"),
    "a file is missing": ("model", None),
    "the manifest is missing": ("manifest.json", None),
    "the manifest is not JSON": ("manifest.json", "<html>"),
    "the manifest is a JSON list": ("manifest.json", "[1]"),
}


@pytest.mark.parametrize(("name", "content"), DAMAGES.values(), ids=DAMAGES)
def test_latest_falls_back_to_the_newest_that_verifies(
    tmp_path: Path, name: str, content: str | None
) -> None:
    save(session(tmp_path), 5)
    save(session(tmp_path), 6)
    damaged = tmp_path / "checkpoints" / "step-6" / name
    damaged.unlink() if content is None else damaged.write_text(content)
    training = session(tmp_path)
    assert training.latest() == tmp_path / "checkpoints" / "step-5"
    assert len(training.skipped) == 1
    assert "step-6" in training.skipped[0]


def test_a_file_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    save(session(tmp_path), 5)
    model = tmp_path / "checkpoints" / "step-5" / "model"
    (tmp_path / "outside").write_bytes(model.read_bytes())
    model.unlink()
    model.symlink_to(tmp_path / "outside")
    assert session(tmp_path).latest() is None


def test_unfinished_folders_are_removed_and_a_replaced_checkpoint_is_taken_back(tmp_path: Path) -> None:
    save(session(tmp_path), 5)
    save(session(tmp_path), 6)
    folder = tmp_path / "checkpoints"
    (folder / "step-5").rename(folder / "step-5.old.tmp")
    (folder / "step-7.tmp").mkdir()
    (folder / "step-7.tmp" / "model").write_text("half")
    (folder / "mine.tmp").mkdir()
    assert session(tmp_path).latest() == folder / "step-6"
    assert entries(tmp_path) == ["mine.tmp", "step-5", "step-6"]


def test_a_step_that_is_saved_again_replaces_the_checkpoint(tmp_path: Path) -> None:
    training = session(tmp_path)
    save(training, 5, "first")
    save(training, 5, "second")
    assert entries(tmp_path) == ["step-5"]
    assert (tmp_path / "checkpoints" / "step-5" / "model").read_text() == "second"


def test_listed_checkpoints_are_deleted_unless_they_were_saved_again(tmp_path: Path) -> None:
    training, listed = session(tmp_path), tmp_path / "surplus.json"
    for step in (5, 6):
        save(training, step)
    digests = {step: read_manifest(tmp_path / "checkpoints" / f"step-{step}").digest for step in (5, 6)}
    save(training, 6, "others")
    listed.write_text(json.dumps([{"step": step, "digest": digest} for step, digest in digests.items()]))
    save(training, 7)
    assert entries(tmp_path) == ["step-6", "step-7"]


@pytest.mark.parametrize(
    "content", ["", "{}", "[1]", '[{"step": "../x", "digest": ""}]', '[{"step": 9, "digest": "sha256:0"}]']
)
def test_list_of_checkpoints_that_cannot_be_used_deletes_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "surplus.json").write_text(content)
    training = session(tmp_path)
    for step in (5, 6):
        save(training, step)
    assert entries(tmp_path) == ["step-5", "step-6"]


def test_a_failed_save_leaves_the_last_checkpoint_only(tmp_path: Path) -> None:
    training = session(tmp_path)
    save(training, 5)
    with pytest.raises(ZeroDivisionError), training.saving(6) as folder:
        (folder / "model").write_text("half")
        raise ZeroDivisionError
    assert entries(tmp_path) == ["step-5"]


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    training = session(tmp_path)
    save(training, 5)
    with pytest.raises(CheckpointError, match="no space left for step 6"), training.saving(6):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert session(tmp_path).latest() == tmp_path / "checkpoints" / "step-5"


def test_a_checkpoint_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no rank has written a file"), session(tmp_path).saving(6):
        pass
    assert entries(tmp_path) == []


def test_a_checkpoint_is_due_when_the_interval_has_passed_since_the_last_one(tmp_path: Path) -> None:
    clock = Clock()
    training = session(tmp_path, clock)
    assert not training.due(1)
    clock.time += 60
    assert training.due(1)
    save(training, 1)
    clock.time += 59
    assert not training.due(2)
    clock.time += 1
    assert training.due(2)
    assert not training.due(1), "the step that was saved"


def test_a_checkpoint_is_due_once_for_each_order(tmp_path: Path) -> None:
    training = session(tmp_path)
    assert training.open_order() is None
    order(tmp_path, 8, by="2026-01-31T12:00:00Z", stop=True)
    found = training.open_order()
    assert found is not None
    assert (found.epoch, found.reason, found.stop) == (8, "Preempted", True)
    assert found.by is not None
    assert found.by.isoformat() == "2026-01-31T12:00:00+00:00"
    assert training.due(1)
    save(training, 1)
    assert not training.due(1)
    assert read_manifest(tmp_path / "checkpoints" / "step-1").epoch == 8
    order(tmp_path, 9)
    assert training.due(1), "an order is answered also by a step that was saved before"


def test_program_stops_once_it_has_saved_for_an_order_that_ends_its_pod(tmp_path: Path) -> None:
    training = session(tmp_path)
    assert not training.should_stop()
    order(tmp_path, 8, stop=True)
    assert not training.should_stop(), "it saves first"
    save(training, 1)
    assert training.should_stop()
    restarted = session(tmp_path)
    restarted.latest()
    assert restarted.should_stop(), "its container was restarted"
    order(tmp_path, 9)
    assert not training.should_stop()
    save(training, 2)
    assert not training.should_stop()


def test_program_that_has_saved_learns_later_that_its_pod_ends(tmp_path: Path) -> None:
    training = session(tmp_path)
    order(tmp_path, 8)
    save(training, 1)
    assert not training.should_stop()
    order(tmp_path, 8, stop=True)
    assert training.should_stop()
    assert training.open_order() is None, "it does not save twice for one order"


def test_an_order_that_the_resumed_checkpoint_answered_is_not_open(tmp_path: Path) -> None:
    order(tmp_path, 8)
    save(session(tmp_path), 1)
    resumed = session(tmp_path)
    resumed.latest()
    assert resumed.open_order() is None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version":2,"epoch":9,"action":"Save"}',
        '{"version":1,"epoch":9,"action":"None"}',
        "[" * 100_000,
    ],
)
def test_what_is_no_order_counts_as_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "orders.json").write_text(content)
    assert session(tmp_path).open_order() is None


def test_without_a_folder_nothing_is_due_and_saving_says_why(tmp_path: Path) -> None:
    training = Session({"ARGOSY_CHECKPOINT_INTERVAL": "0"})
    assert training.latest() is None
    assert not training.due(1)
    with pytest.raises(CheckpointError, match="ARGOSY_CHECKPOINT_DIR is not set"), training.saving(1):
        pass


def test_what_was_restored_is_resumed_unless_the_folder_has_a_newer_one(tmp_path: Path) -> None:
    save(session(tmp_path), 5)
    restored = tmp_path / "restored"
    (tmp_path / "checkpoints" / "step-5").rename(restored)
    variables = {"ARGOSY_RESUME": "1", "ARGOSY_RESUME_FROM": str(restored)}
    assert session(tmp_path, variables=variables).latest() == restored
    save(session(tmp_path), 4)
    assert session(tmp_path, variables=variables).latest() == restored
    save(session(tmp_path), 6)
    assert session(tmp_path, variables=variables).latest() == tmp_path / "checkpoints" / "step-6"


def test_what_was_restored_is_resumed_by_the_first_pod_of_its_number(tmp_path: Path) -> None:
    """That of a pod that was deleted is used again; without anything restored it starts anew."""
    restored = tmp_path / "restored"
    variables = {"ARGOSY_RESUME": "0", "ARGOSY_RESUME_FROM": str(restored)}
    first = session(tmp_path, variables=variables)
    assert first.latest() is None
    assert first.skipped == []
    save(first, 5)
    (tmp_path / "checkpoints" / "step-5").rename(restored)
    assert session(tmp_path, variables=variables).latest() == restored


def test_an_invalid_interval_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="ARGOSY_CHECKPOINT_INTERVAL: invalid value '5 min'"):
        session(tmp_path, variables={"ARGOSY_CHECKPOINT_INTERVAL": "5 min"}).due(1)


def reported(folder: Path) -> str:
    return (folder / "step").read_text() if (folder / "step").exists() else ""


def test_step_is_written_a_few_times_a_second(tmp_path: Path) -> None:
    clock = Clock()
    training = session(tmp_path, clock, {"ARGOSY_STEP_FILE": str(tmp_path / "step")})
    for step in (1, 2):
        training.due(step)
    assert reported(tmp_path) == "1\n"
    clock.time += 1
    training.due(3)
    assert reported(tmp_path) == "3\n"


def test_step_is_written_when_a_checkpoint_is_saved_and_resumed_from(tmp_path: Path) -> None:
    variables = {"ARGOSY_STEP_FILE": str(tmp_path / "step")}
    training = session(tmp_path, variables=variables)
    save(training, 5)
    assert reported(tmp_path) == "5\n"
    save(training, 9)
    (tmp_path / "checkpoints" / "step-9" / "model").write_text("damaged")
    session(tmp_path, variables=variables).latest()
    assert reported(tmp_path) == "5\n"


def test_step_is_written_by_one_process_of_a_pod(tmp_path: Path) -> None:
    variables = {"ARGOSY_STEP_FILE": str(tmp_path / "step"), "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    session(tmp_path, variables=variables).due(1)
    assert not reported(tmp_path)


def test_training_goes_on_if_its_step_cannot_be_written(tmp_path: Path) -> None:
    variables = {"ARGOSY_STEP_FILE": str(tmp_path / "missing" / "step")}
    assert session(tmp_path, variables=variables).due(1) is False
