"""Tests that the supervisor continues on errors and writes later what it could not write at once."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from argosy.local import supervisor
from argosy.local.processes import Options, Process, Run, read_run
from argosy.local.state import State


def test_the_supervisor_continues_if_run_json_cannot_be_written(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = Run(Options(), Process(1, 2))
    assert not supervisor._save_run(run, tmp_path / "missing" / "run.json")
    assert "trying again" in capfd.readouterr().err
    assert supervisor._save_run(run, tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run


def test_components_that_exit_at_once_are_restarted_with_backoff(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = supervisor._Child(
        supervisor.Component("short", (sys.executable, "-c", "raise SystemExit(3)")), log
    )
    delays = []
    for now in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0):
        child.start(now)
        assert child.process is not None
        child.process.wait()
        assert child.reap(now)
        delays.append(child.due - now)
    assert delays[0] == 0.0
    assert delays[1:] == sorted(delays[1:])
    assert delays[-1] == 5.0
    assert log.read_text().splitlines()[0] == "supervisor: short ended with 3; start 2"


def test_a_component_that_ran_for_long_is_restarted_at_once(tmp_path: Path) -> None:
    child = supervisor._Child(supervisor.Component("steady", ("sleep", "60")), tmp_path / "log")
    child.failures = 5
    child.start(0.0)
    assert child.process is not None
    child.process.kill()
    child.process.wait()
    assert child.reap(100.0)
    assert child.due == 100.0


def test_a_supervisor_whose_components_cannot_run_stops_at_sigterm(tmp_path: Path) -> None:
    """Nothing it needs is in the state folder, so every component fails; it goes on and can be ended."""
    state = State(tmp_path / "s")
    state.create()
    options = msgspec.json.encode(Options(operator=False)).decode()
    process = subprocess.Popen(
        [sys.executable, "-m", "argosy.local.supervisor", "--state", str(state.folder), "--options", options]
    )
    deadline = time.monotonic() + 30
    while "ended with" not in _text(state.logs / "controllers.log") and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert read_run(state.run) is None


_ALWAYS_FAILING = """
import sys
from pathlib import Path
from argosy.local import supervisor
from argosy.local.processes import Options
from argosy.local.state import State

supervisor._MAX_BACKOFF_SECONDS = 0.5
supervisor.components = lambda state, options: (supervisor.Component("failing", ("false",)),)
supervisor.stop_pods = lambda state: None
supervisor.supervise(State(Path(sys.argv[1])), Options())
"""


def test_a_supervisor_continues_after_sigstop_and_sigcont(tmp_path: Path) -> None:
    """Its only component fails at once, so it waits for the next start for half a second at a time."""
    state = State(tmp_path / "s")
    state.create()
    process = subprocess.Popen([sys.executable, "-c", _ALWAYS_FAILING, str(state.folder)])
    try:
        _wait_for_failures(process, state, 4)
        process.send_signal(signal.SIGSTOP)
        time.sleep(1)  # the stop itself: the longest wait is half a second
        process.send_signal(signal.SIGCONT)
        _wait_for_failures(process, state, 6)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


def _wait_for_failures(process: subprocess.Popen[bytes], state: State, count: int) -> None:
    deadline = time.monotonic() + 60
    while _text(state.logs / "failing.log").count("ended with 1") < count:
        assert process.poll() is None, "the supervisor ended without a signal"
        assert time.monotonic() < deadline, f"the component did not fail {count} times"
        time.sleep(0.05)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
