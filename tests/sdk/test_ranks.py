"""Several ranks that save one checkpoint: who commits, and what a rank that dies leaves."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from argosy.checkpoint.drivers.folder_manifest import read_manifest
from argosy_sdk import CheckpointError
from argosy_sdk.environment import Place, place
from argosy_sdk.session import Session
from tests.support.waiting import wait_for


def rank_session(folder: Path, rank: int, world: int = 3, **variables: str) -> Session:
    environ = {"ARGOSY_CHECKPOINT_DIR": str(folder), "RANK": str(rank), "WORLD_SIZE": str(world), **variables}
    return Session(environ)


def run_ranks(*ranks: Callable[[], None]) -> list[BaseException | None]:
    """Run functions in threads; returns the exception of each."""
    errors: list[BaseException | None] = [None] * len(ranks)

    def run(number: int) -> None:
        try:
            ranks[number]()
        except CheckpointError as error:
            errors[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(ranks))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def saving(
    session: Session,
    step: int,
    files: Mapping[str, str],
    fail: Exception | None = None,
    written: threading.Barrier | None = None,
) -> Callable[[], None]:
    """Return a function that saves a checkpoint; it fails inside of the block if `fail` is given.

    It goes on only after all ranks of the barrier `written` have written their files.
    """

    def run() -> None:
        try:
            with session.saving(step, timeout=60.0) as folder:
                for name, content in files.items():
                    (folder / name).parent.mkdir(exist_ok=True)
                    (folder / name).write_text(content)
                if written:
                    written.wait(60)
                if fail:
                    raise fail
        except ValueError:
            pass

    return run


def test_the_manifest_has_the_files_of_all_ranks(tmp_path: Path) -> None:
    files = [{"rank-0.pt": "0", "model.pt": "m"}, {"rank-1/a": "1", "rank-1/b": "1"}, {"__2_0.distcp": "2"}]
    sessions = [rank_session(tmp_path, rank) for rank in range(3)]
    assert run_ranks(*map(saving, sessions, [7] * 3, files)) == [None] * 3
    manifest = read_manifest(tmp_path / "step-7")
    assert {part.path: part.rank for part in manifest.parts} == {
        "rank-0.pt": 0,
        "model.pt": 0,
        "__2_0.distcp": 0,
        "rank-1/a": 1,
        "rank-1/b": 1,
    }
    assert (manifest.world, manifest.ranks) == (3, ())
    assert sorted(path.name for path in (tmp_path / "step-7").iterdir()) == sorted(
        ["manifest.json", "rank-0.pt", "model.pt", "__2_0.distcp", "rank-1"]
    )
    assert {session.latest() for session in sessions} == {tmp_path / "step-7"}


def test_files_of_a_rank_that_died_are_not_mixed_into_a_later_save(tmp_path: Path) -> None:
    """Rank 1 of an earlier run has announced its file, then rank 0 died; nobody called `latest`."""
    left = tmp_path / "step-7.tmp"
    left.mkdir()
    (left / ".save").write_text(json.dumps({"id": "of-the-dead"}))
    (left / "rank-1.pt").write_text("old")
    (left / ".rank-1.json").write_text(json.dumps({"id": "of-the-dead", "parts": []}))
    sessions = [rank_session(tmp_path, rank, 2) for rank in range(2)]
    started = threading.Event()

    def late() -> None:
        wait_for(lambda: "of-the-dead" not in (left / ".save").read_text(), lambda: "no new id")
        started.set()
        saving(sessions[1], 7, {"rank-1.pt": "new"})()

    assert run_ranks(saving(sessions[0], 7, {"rank-0.pt": "new"}), late) == [None, None]
    assert started.is_set()
    assert (tmp_path / "step-7" / "rank-1.pt").read_text() == "new"
    assert [part.path for part in read_manifest(tmp_path / "step-7").parts] == ["rank-0.pt", "rank-1.pt"]


def test_a_rank_that_fails_ends_the_save_of_all(tmp_path: Path) -> None:
    sessions, written = [rank_session(tmp_path, rank, 2) for rank in range(2)], threading.Barrier(2)
    failing = saving(sessions[1], 7, {"rank-1.pt": "1"}, ValueError("bad loss"), written)
    errors = run_ranks(saving(sessions[0], 7, {"rank-0.pt": "0"}, written=written), failing)
    assert "step 7: rank 1 failed: ValueError: bad loss" in str(errors[0])
    assert list(tmp_path.iterdir()) == []


def test_a_first_rank_that_fails_ends_the_save_of_all(tmp_path: Path) -> None:
    sessions, written = [rank_session(tmp_path, rank, 2) for rank in range(2)], threading.Barrier(2)
    failing = saving(sessions[0], 7, {"rank-0.pt": "0"}, ValueError("bad loss"), written)
    errors = run_ranks(failing, saving(sessions[1], 7, {"rank-1.pt": "1"}, written=written))
    assert errors[0] is None
    assert str(errors[1]) == "step 7: the first rank has given this checkpoint up"
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_never_comes_ends_the_save_at_the_timeout(tmp_path: Path) -> None:
    session = rank_session(tmp_path, 0, 2)
    with pytest.raises(CheckpointError, match="step 7: ranks without files after 0 s: 1"):  # noqa: SIM117
        with session.saving(7, timeout=0.0) as folder:
            (folder / "rank-0.pt").write_text("0")
    assert list(tmp_path.iterdir()) == []


_DIES = """
import os, signal, sys
from argosy_sdk import saving
with saving(7) as folder:
    (folder / f"rank-{os.environ['RANK']}.pt").write_text("x")
    print("in", flush=True)
    if os.environ["RANK"] == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_rank_that_is_killed_leaves_an_unfinished_folder_only(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _DIES, "1"],
            env={**os.environ, "ARGOSY_CHECKPOINT_DIR": str(tmp_path), "RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    assert processes[1].wait(60) == -signal.SIGKILL
    stdout = processes[0].stdout
    assert stdout is not None
    assert stdout.readline() == b"in\n"
    processes[0].kill()
    for process in processes:
        process.communicate()
    assert [path.name for path in tmp_path.iterdir()] == ["step-7.tmp"]
    assert rank_session(tmp_path, 0, 2).latest() is None
    assert list(tmp_path.iterdir()) == []


def test_a_pod_with_its_own_folder_commits_its_ranks_only(tmp_path: Path) -> None:
    """Ranks 2 and 3 of 4 share a pod; the others write elsewhere."""
    variables = {"ARGOSY_CHECKPOINT_SHARED": "0", "LOCAL_WORLD_SIZE": "2"}
    sessions = [rank_session(tmp_path, rank, 4, **variables, LOCAL_RANK=str(rank - 2)) for rank in (2, 3)]
    files = [{"rank-2.pt": "2"}, {"rank-3.pt": "3"}]
    assert run_ranks(*map(saving, sessions, [7] * 2, files)) == [None] * 2
    manifest = read_manifest(tmp_path / "step-7")
    assert (manifest.world, manifest.ranks, len(manifest.parts)) == (4, (2, 3), 2)
    assert sessions[0].latest() is None, "it has files of two ranks only"


PLACES: Mapping[str, tuple[dict[str, str], Place]] = {
    "no launcher: one process": ({}, Place(0, 1, True, 1)),
    "torchrun": ({"RANK": "3", "WORLD_SIZE": "4"}, Place(3, 4, False, 4)),
    "Open MPI": ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, Place(0, 2, True, 2)),
    "Hydra": ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Place(1, 2, False, 2)),
    "JAX": ({"JAX_PROCESS_ID": "1", "JAX_NUM_PROCESSES": "2"}, Place(1, 2, False, 2)),
    "TensorFlow: workers after the chief": (
        {
            "TF_CONFIG": json.dumps(
                {"cluster": {"chief": ["a"], "worker": ["b", "c"]}, "task": {"type": "worker", "index": 1}}
            )
        },
        Place(2, 3, False, 3),
    ),
    "TF_CONFIG that is no JSON: one process": ({"TF_CONFIG": "{"}, Place(0, 1, True, 1)),
    "ARGOSY_RANK: before all others": (
        {"ARGOSY_RANK": "0", "ARGOSY_WORLD_SIZE": "2", "RANK": "1", "WORLD_SIZE": "8"},
        Place(0, 2, True, 2),
    ),
    "a folder for each pod: its first rank commits": (
        {
            "RANK": "2",
            "WORLD_SIZE": "4",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "2",
            "ARGOSY_CHECKPOINT_SHARED": "0",
        },
        Place(2, 4, True, 2),
    ),
}


@pytest.mark.parametrize(("environ", "want"), PLACES.values(), ids=PLACES)
def test_place_of_a_process(environ: dict[str, str], want: Place) -> None:
    assert place(environ, None, None) == want


def test_a_rank_beyond_the_world_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="rank 2: must be from 0 to 1"):
        place({}, 2, 2)
