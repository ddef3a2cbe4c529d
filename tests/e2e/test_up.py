"""`argosy up` under adverse conditions prints a clear message and does no damage."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos import command_lines, kill_component, kill_everything, leftovers, run_state
from tests.support.local_control_plane import ARGOSY, REPOSITORY, ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

_UP = ("up", "--timeout", "60")
_NOBODY = 65534


@pytest.fixture
def down_plane() -> Iterator[ControlPlane]:
    """A control plane that has not been started; it is stopped after the test."""
    plane = ControlPlane(Path(tempfile.mkdtemp(prefix="argosy-")))
    yield plane
    plane.argosy("down", code=None)
    left = leftovers(plane)
    shutil.rmtree(plane.home, ignore_errors=True)
    assert left == []


def test_up_names_a_port_in_use_and_chooses_a_free_one_if_no_port_is_requested(
    down_plane: ControlPlane,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = down_plane.argosy(*_UP, "--port", port, code=1)
        assert f"port {port} is in use by another program" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    down_plane.argosy(*_UP, "--port", port)
    assert run_state(down_plane).options.port == int(port)
    down_plane.argosy("down")
    with socket.create_server(("127.0.0.1", int(port))):
        down_plane.argosy(*_UP)
    down_plane.argosy("status")


def test_concurrent_ups_start_one_control_plane(down_plane: ControlPlane) -> None:
    ups = [down_plane.start(*_UP) for _ in range(3)]
    outputs = [process.communicate(timeout=100)[0] for process in ups]
    codes = [process.returncode for process in ups]
    assert 0 in codes, outputs
    for code, text in zip(codes, outputs, strict=True):
        assert code == 0 or "another `argosy up` or `argosy down` is running" in text, text
    assert sum("argosy.local.supervisor" in words for words in command_lines(down_plane).values()) == 1
    down_plane.argosy("status")


def test_up_with_other_settings_while_running_is_refused_and_changes_nothing(
    down_plane: ControlPlane,
) -> None:
    down_plane.argosy(*_UP)
    before = run_state(down_plane)
    refused = down_plane.argosy(*_UP, "--nodes", "2", code=1)
    assert "is running with other settings; run `argosy down`" in refused.stderr
    down_plane.argosy(*_UP)
    assert run_state(down_plane) == before


@pytest.mark.long
def test_up_after_an_up_that_was_killed_while_creating_keys_starts_afresh(down_plane: ControlPlane) -> None:
    down_plane.argosy(*_UP)
    before = run_state(down_plane)
    down_plane.state.prepared.unlink()  # as `argosy up` leaves it when killed
    down_plane.argosy(*_UP)
    assert run_state(down_plane).supervisor != before.supervisor
    assert not before.supervisor.alive
    down_plane.argosy("status")


@pytest.mark.long
@pytest.mark.root
def test_up_works_despite_stale_sockets_after_a_machine_crash(down_plane: ControlPlane) -> None:
    down_plane.argosy(*_UP)
    down_plane.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    state = down_plane.state
    wait_for(state.operator_socket.exists, "the operator does not listen")
    kill_everything(down_plane)
    for stale in (state.api_socket, state.agent_socket, state.operator_socket, state.run):
        assert stale.exists(), f"{stale} should still exist"
    assert down_plane.argosy("status", code=1).stdout == "not running; `argosy up` starts it\n"
    problem = down_plane.argosy("ps", code=1).stderr
    assert "No cluster? `argosy up` starts a control plane on this machine." in problem
    down_plane.argosy(*_UP)
    down_plane.argosy("status")
    assert down_plane.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}").stdout == "b"
    assert "hello" in down_plane.argosy("run", "--", "echo", "hello").stdout


@pytest.mark.root
def test_full_disk_refuses_writes_and_does_no_damage(down_plane: ControlPlane) -> None:
    with _small_disk(down_plane.home, megabytes=12):
        down_plane.argosy(*_UP)
        count = "i=0; while true; do i=$((i + 1)); echo $i; sleep 0.1; done"
        down_plane.argosy("run", "-d", "--name", "counter", "--", "sh", "-c", count)
        wait_for(lambda: down_plane.argosy("logs", "counter", code=None).stdout, "the job prints nothing")
        fill = down_plane.home / "fill"
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        large = f"--from-literal=a={'x' * 100_000}"
        refused = down_plane.kubectl("create", "configmap", "large", large, code=1)
        assert "disk is full" in refused.stderr
        refused = down_plane.argosy("run", "--env", f"A={'x' * 60_000}", "--", "true", code=1)
        assert "the API server failed" in refused.stderr
        assert "disk is full" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert "counter" in down_plane.argosy("ps").stdout
        _kill_without_awaiting_restart(down_plane, "operator")
        status = down_plane.argosy("status", code=1).stdout
        assert f"disk        full: 0 kB free in {down_plane.state.folder}; free disk space" in status
        assert "not responding" not in status
        fill.unlink()
        down_plane.kubectl("create", "configmap", "large", large)
        assert "hello" in down_plane.argosy("run", "--", "echo", "hello").stdout
        wait_for(lambda: _healthy(down_plane), "the control plane is not healthy")
        numbers = [
            int(line.split("│")[1])
            for line in down_plane.argosy("logs", "counter", "--tail", "5").stdout.splitlines()
        ]
        assert numbers == list(range(numbers[0], numbers[0] + 5))
        kill_component(down_plane, "apiserver")
        wait_for(lambda: _healthy(down_plane), "the control plane is not healthy")
        assert down_plane.kubectl("get", "configmap", "large", "-o", "name").stdout == "configmap/large\n"
        down_plane.argosy("down")


@pytest.mark.root
def test_up_on_a_full_disk_reports_it_in_one_line(down_plane: ControlPlane) -> None:
    with _small_disk(down_plane.home, megabytes=1):
        with contextlib.suppress(OSError), (down_plane.home / "fill").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        refused = down_plane.argosy(*_UP, code=1)
        assert "cannot be written (No space left on device); free disk space" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


@pytest.mark.root
def test_read_only_home_is_reported(down_plane: ControlPlane) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", down_plane.home], check=True)
    try:
        for words in (_UP, ("run", "--", "true")):
            refused = down_plane.argosy(*words, code=1)
            assert "Traceback" not in refused.stderr
        assert "cannot be written (Read-only file system)" in down_plane.argosy(*_UP, code=1).stderr
        assert down_plane.argosy("down").stdout == "nothing was running\n"
        assert down_plane.argosy("status", code=1).stdout == "not running; `argosy up` starts it\n"
    finally:
        subprocess.run(["umount", down_plane.home], check=True)


def test_path_too_long_for_a_socket_is_reported_in_one_line(down_plane: ControlPlane) -> None:
    deep = ControlPlane(down_plane.home / ("x" * 100))
    refused = deep.argosy(*_UP, code=1)
    assert "the path is too long for a Unix socket" in refused.stderr
    assert "set ARGOSY_HOME to a shorter folder" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.long
@pytest.mark.root
@pytest.mark.timeout(240)
def test_up_and_run_work_for_an_unprivileged_user() -> None:
    """The control plane uses user namespaces; processes in its pods see themselves as root."""
    python = _world_executable_python()
    if python is None:
        pytest.skip("no Python 3.11 that an unprivileged user may run")
    home = Path(tempfile.mkdtemp(prefix="argosy-"))
    os.chown(home, _NOBODY, _NOBODY)
    user = _User(home, python)
    try:
        user.argosy(*_UP, "--nodes", "2")
        out = user.argosy("run", "--replicas", "2", "--", "sh", "-c", 'echo "index $INDEX as $(id -u)"')
        assert "index 0 as 0" in out
        assert "index 1 as 0" in out
        assert "Succeeded" in out.splitlines()[-1]
        assert not [entry for entry in home.rglob("*") if entry.lstat().st_uid != _NOBODY]
    finally:
        user.argosy("down")
    plane = ControlPlane(home)
    assert leftovers(plane) == []
    shutil.rmtree(home)


class _User:
    """Runs the `argosy` command as an unprivileged user."""

    def __init__(self, home: Path, python: str) -> None:
        self._home = home
        self._python = python

    def argosy(self, *words: str) -> str:
        packages = [str(REPOSITORY / "src"), sysconfig.get_path("purelib")]
        done = subprocess.run(
            [self._python, "-m", "argosy", *words],
            user=_NOBODY,
            group=_NOBODY,
            extra_groups=[],
            env={
                "HOME": str(self._home),
                "ARGOSY_HOME": str(self._home),
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": os.pathsep.join(packages),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd=self._home,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self._logs()
        return done.stdout

    def _logs(self) -> str:
        return "".join(path.read_text()[-2000:] for path in self._home.glob("local/logs/*.log"))


def _world_executable_python() -> str | None:
    """A Python that an unprivileged user may run; that of the tests may be in a private folder."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        check = [candidate, "-c", f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"]
        with contextlib.suppress(OSError):
            if subprocess.run(check, user=_NOBODY, group=_NOBODY, extra_groups=[], cwd="/").returncode == 0:
                return candidate
    return None


@contextlib.contextmanager
def _small_disk(folder: Path, *, megabytes: int) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run([ARGOSY, "down"], env={**os.environ, "ARGOSY_HOME": str(folder)}, check=False)
        subprocess.run(["umount", folder], check=True)


def _kill_without_awaiting_restart(plane: ControlPlane, component: str) -> None:
    """Kill a component whose restart cannot be recorded in run.json, because the disk is full."""
    victim = run_state(plane).components[component]
    os.kill(victim.pid, 9)
    assert victim.wait_gone(10)


def _healthy(plane: ControlPlane) -> bool:
    return plane.argosy("status", code=None).returncode == 0
