"""Tests for remote exec: the files that it writes, and that it behaves like ssh towards mpirun.

kubectl is replaced by a script that records its arguments and runs the command locally; it can fail as
kubectl does when the connection to the API server is cut.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from argosy.helper.errors import RejectedError
from argosy.helper.remote import prepare

KUBECTL = f"""#!{sys.executable}
import json, os, subprocess, sys
arguments = sys.argv[1:]
split = arguments.index("--")
command = arguments[split + 1:]
with open(os.environ["NOTES"], "a+") as notes:
    notes.seek(0)
    calls = len(notes.readlines())
    notes.write(json.dumps([os.environ.get("KUBECONFIG"), arguments[:split]]) + "\\n")
faults = os.environ.get("FAULTS", "").split(",")
fault = faults[calls] if calls < len(faults) else ""
if fault in ("cut", "cut at the end"):
    null = subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=null, stdout=null, start_new_session=True)
    if fault == "cut at the end":
        process.wait()
if fault:
    sys.exit(fault)
os.execvp(command[0], command)
"""


@dataclass
class Case:
    arguments: list[str]
    stdin: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    want_kubectl: list[str] = field(default_factory=lambda: ["exec", "--quiet", "-i", "mnist-worker-1"])
    want_output: str = ""
    want_code: int = 0


CASES = {
    "plain words: executed": Case(["mnist-worker-1", "echo", "a", "b"], want_output="a b\n"),
    "exit code of the command: returned": Case(["mnist-worker-1", "exit 37"], want_code=37),
    "standard input: passed to the command": Case(
        ["mnist-worker-1", "cat"], stdin="x\ny", want_output="x\ny"
    ),
    "-n: standard input is not read": Case(
        ["-n", "mnist-worker-1", "cat"],
        stdin="x",
        want_kubectl=["exec", "--quiet", "mnist-worker-1"],
    ),
    "options after the host, as with Horovod: ignored": Case(
        ["mnist-worker-1", "-o", "StrictHostKeyChecking=no", "-p", "22", "echo ok"], want_output="ok\n"
    ),
    "options after the command: passed to the command": Case(
        ["-o", "A=b", "mnist-worker-1", "printf", "%s,", "-o", "x"], want_output="-o,x,"
    ),
    "host after --: used": Case(
        ["-n", "--", "mnist-worker-1", "echo ok"],
        want_output="ok\n",
        want_kubectl=["exec", "--quiet", "mnist-worker-1"],
    ),
    "-x, as with MPICH: ignored": Case(["-x", "mnist-worker-1", "echo", "ok"], want_output="ok\n"),
    "host with a domain: pod is its first label": Case(
        ["mnist-worker-1.mnist.default.svc", "echo ok"], want_output="ok\n"
    ),
    "quotes: interpreted by the remote shell, as with ssh": Case(
        ["mnist-worker-1", "printf '%s|' \"a  b\" 'it'\\''s' \"\\\"q\\\"\""], want_output='a  b|it\'s|"q"|'
    ),
    "quoted path of the command: unquoted by the remote shell": Case(
        ["-x", "mnist-worker-1", '"/bin/echo"', "--control-port", "h:1"], want_output="--control-port h:1\n"
    ),
    "quoted words with blanks and special characters: unchanged": Case(
        ["mnist-worker-1", "printf", "%s,", shlex.quote("a  b"), shlex.quote("$HOME `id` \\")],
        want_output="a  b,$HOME `id` \\,",
    ),
    "container and namespace in the environment: used": Case(
        ["mnist-worker-1", "true"],
        environment={"ARGOSY_EXEC_CONTAINER": "main", "ARGOSY_NAMESPACE": "team"},
        want_kubectl=["exec", "--quiet", "-i", "-n", "team", "-c", "main", "mnist-worker-1"],
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    kubectl = tmp_path / "source" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    prepare(tmp_path / "bin", str(kubectl))
    return tmp_path / "bin"


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("shell", [[], ["sh"], ["bash", "--posix"]], ids=["by its path", "sh", "bash"])
def test_remote_exec(case: Case, shell: list[str], folder: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    result = subprocess.run(
        [*shell, str(folder / "remote-exec"), *case.arguments],
        input=case.stdin,
        env={"PATH": os.environ["PATH"], "NOTES": str(notes), **case.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (case.want_code, case.want_output), result.stderr
    assert calls_in(notes)[0] == ["/dev/null", case.want_kubectl]


def test_ssh_in_the_folder_bin_runs_remote_exec(folder: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    words = "-o PasswordAuthentication=no -o StrictHostKeyChecking=no -p 22 mnist-worker-1 'echo ok'"
    result = subprocess.run(
        ["sh", "-c", f"ssh {words}"], env={"PATH": path, "NOTES": str(notes)}, capture_output=True, check=True
    )
    assert result.stdout == b"ok\n"
    assert calls_in(notes)[0] == ["/dev/null", ["exec", "--quiet", "-i", "mnist-worker-1"]]


def calls_in(notes: Path) -> list[object]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


@dataclass
class Fault:
    faults: str
    """What happens to each call of kubectl in turn."""
    want_calls: int | None
    """None: as many as there is time for."""
    want_code: int
    command: str = "touch $DONE; exit 3"
    want_done: bool = True
    want_left: bool = False
    """Whether the command's code lies there still."""


UNREACHABLE = "Unable to connect to the server: dial tcp 10.0.0.1:443: connect: connection refused"
FORBIDDEN = 'Error from server (Forbidden): pods "mnist-worker-1" is forbidden'
NOT_FOUND = 'Error from server (NotFound): pods "mnist-worker-1" not found'

UNTIL_WATCHED = "until [ $(wc -l < $NOTES) -ge 2 ]; do sleep 0.1; done; touch $DONE"

FAULTS = {
    "connection lost, command fails later: waits, exit code 255": Fault(
        "cut", 2, 255, command=f"{UNTIL_WATCHED}; exit 3"
    ),
    "connection lost, command succeeds later: waits, exit code 0": Fault("cut", 2, 0, command=UNTIL_WATCHED),
    "connection lost, API server unavailable for a while: retries": Fault(
        f"cut,{UNREACHABLE}", 3, 0, command=UNTIL_WATCHED
    ),
    "connection lost, command has failed already: exit code 255": Fault("cut at the end", 2, 255),
    "connection lost, command has succeeded already: exit code 0": Fault(
        f"cut at the end,{UNREACHABLE}", 3, 0, command="touch $DONE"
    ),
    "command fails: its exit code": Fault("", 2, 3),
    "forbidden for a while: retries": Fault(
        f"{FORBIDDEN},{FORBIDDEN},{FORBIDDEN},{FORBIDDEN}", 5, 0, command="touch $DONE", want_left=True
    ),
    "forbidden: gives up": Fault(",".join([FORBIDDEN] * 400), None, 1, want_done=False),
    "pod deleted: gives up": Fault(f"cut,{NOT_FOUND}", 2, 1, command="true", want_done=False, want_left=True),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_remote_exec_with_failing_connections(fault: Fault, folder: Path, tmp_path: Path) -> None:
    notes, done = tmp_path / "notes", tmp_path / "done"
    left_before = exit_code_files()
    agent = subprocess.Popen(
        [folder / "remote-exec", "mnist-worker-1", fault.command],
        env={
            "PATH": f"{short_sleep(tmp_path)}:{os.environ['PATH']}",
            "NOTES": str(notes),
            "FAULTS": fault.faults,
            "DONE": str(done),
        },
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    _, stderr = agent.communicate(timeout=60)
    assert (agent.returncode, done.exists()) == (fault.want_code, fault.want_done), stderr
    assert fault.want_calls in (None, len(calls_in(notes)))
    # Not all files with the agent's PID: an earlier process may have had the same one and left its file.
    left = {path for path in exit_code_files() - left_before if path.name.split("-")[2] == str(agent.pid)}
    for path in left:
        path.unlink()
    assert bool(left) is fault.want_left


def short_sleep(folder: Path) -> Path:
    """A folder with a program `sleep` that shortens the seconds between the agent's retries."""
    program = folder / "short" / "sleep"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nexec /bin/sleep 0.1\n")
    program.chmod(0o755)
    return program.parent


def exit_code_files() -> set[Path]:
    """Return the files in which commands left their exit codes, named after the agent's PID and a time."""
    return set(Path("/dev/shm").glob("argosy-start-*-*"))


@pytest.mark.parametrize("faults", ["", "cut"], ids=["while connected", "while it waits for the command"])
def test_sigterm_ends_remote_exec(faults: str, folder: Path, tmp_path: Path) -> None:
    notes, pid = tmp_path / "notes", tmp_path / "pid"
    agent = subprocess.Popen(
        [folder / "remote-exec", "mnist-worker-1", f"sleep 60 & echo $! > {pid}; wait"],
        env={"PATH": os.environ["PATH"], "NOTES": str(notes), "FAULTS": faults},
    )
    try:
        eventually(lambda: notes.exists() and len(calls_in(notes)) == (2 if faults else 1))
        eventually(lambda: pid.exists() and pid.read_text().strip())
        agent.terminate()
        assert agent.wait(5) == 143
    finally:
        agent.kill()
        kill_sleep(int(pid.read_text()))


def kill_sleep(pid: int) -> None:
    """Kill the process unless it has ended and its PID belongs to another one."""
    try:
        if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x0060\x00":
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass


def eventually(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_unused_exit_code_files_are_deleted_after_an_hour(folder: Path, tmp_path: Path) -> None:
    codes = {age: Path(f"/dev/shm/argosy-start-{os.getpid()}-{int(time.time()) - age}") for age in (60, 4000)}
    for code in codes.values():
        code.write_text("0\n")
    environment = {"PATH": os.environ["PATH"], "NOTES": str(tmp_path / "notes")}
    try:
        subprocess.run([folder / "remote-exec", "mnist-worker-1", "true"], env=environment, check=True)
        assert [age for age, code in codes.items() if code.exists()] == [60]
    finally:
        codes[60].unlink()


def test_missing_command_prints_the_usage(folder: Path) -> None:
    result = subprocess.run([folder / "remote-exec", "host"], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (255, "usage: remote-exec [-x] [-n] HOST COMMAND...\n")


def test_missing_kubectl_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RejectedError, match="the helper's image must carry one"):
        prepare(tmp_path, str(tmp_path / "missing"))
