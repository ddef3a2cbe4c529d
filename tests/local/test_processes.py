"""Tests that processes are identified by pid and start time, and that no others are signalled."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.local.processes import Options, Process, Run, read_run, strays, write_json
from tests.support.waiting import wait_for


@pytest.fixture
def sleeper() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_process_ends_when_signalled(sleeper: "subprocess.Popen[bytes]") -> None:
    process = Process.of(sleeper.pid)
    assert process.alive
    process.signal(signal.SIGTERM)
    assert process.wait_gone(5)
    assert sleeper.wait() == -signal.SIGTERM


def test_a_reused_pid_is_not_signalled(sleeper: "subprocess.Popen[bytes]") -> None:
    stranger = Process(sleeper.pid, Process.of(sleeper.pid).started + 1)
    assert not stranger.alive
    stranger.signal(signal.SIGKILL)
    assert sleeper.poll() is None
    sleeper.kill()
    sleeper.wait()


MAIN_THREAD_ENDS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_process_is_alive_until_its_last_thread_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", MAIN_THREAD_ENDS])
    process = Process.of(child.pid)
    status = Path(f"/proc/{child.pid}/status")
    wait_for(lambda: "State:\tZ" in status.read_text(), "the main thread has ended", 10)
    assert process.alive
    process.signal(signal.SIGKILL)
    assert process.wait_gone(5)
    assert child.wait() == -signal.SIGKILL


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = Run(Options(nodes=3, images={"a": "/b"}), Process(1, 2), {"apiserver": Process(3, 4)})
    write_json(tmp_path / "run.json", run)
    assert read_run(tmp_path / "run.json") == run


@pytest.mark.parametrize("content", [None, b"", b"{", b'{"options": 1}'])
def test_a_missing_or_invalid_file_is_no_run(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "run.json"
    if content is not None:
        path.write_bytes(content)
    assert read_run(path) is None


def test_running_components_are_found_by_their_state_folder(tmp_path: Path) -> None:
    sleepers = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", *words])
        for words in (
            ("argosy.local.node", "--state", str(tmp_path)),
            ("operator", "--local", str(tmp_path)),
            ("argosy.local.node", "--state", f"{tmp_path}2"),
            ("vim", "--state", str(tmp_path)),
        )
    ]
    try:
        wait_for(lambda: len(strays(tmp_path)) >= 2, "a new process shows its words a moment after its start")
        assert strays(tmp_path) == [Process.of(sleeper.pid) for sleeper in sleepers[:2]]
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
