"""Remote exec on one machine: a stand-in for kubectl runs the commands for another pod as local processes.

A connection can be cut, new ones can fail as with kubectl, and `kubectl get` prints what a test wants. The
script waits for shorter times. All processes carry a variable by which they are found, and killed at the end.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from argosy.dialects.et.attach import kubexec_script
from argosy.dialects.et.files import KUBECTL_FOLDER
from argosy.helper.remote import prepare, render_remote_exec

_KUBECTL = f"""#!{sys.executable} -SE
import json, os, signal, subprocess, sys, threading
folder = os.environ["FAKE_POD"]

def content(name):
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read()
    except FileNotFoundError:
        return ""

arguments = sys.argv[1:]
if arguments[0] == "get":
    answer = content("pod")
    print(answer)
    sys.exit(1 if answer.startswith("Error") else 0)
split = arguments.index("--")
command = arguments[split + 1:]
with open(os.path.join(folder, "calls"), "a+") as calls:
    calls.seek(0)
    number = len(calls.readlines())
    calls.write(json.dumps([os.environ.get("KUBECONFIG"), arguments[:split]]) + "\\n")
faults = json.loads(content("faults") or "[]")
fault = faults[number] if number < len(faults) else content("fault")
if fault:
    sys.exit(fault)
with open(os.path.join(folder, "connections"), "a") as connections:
    print(os.getpid(), file=connections)
if command[0] == "/bin/sh":
    command[:1] = json.loads(content("shell"))
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
    signal.signal(number, signal.SIG_DFL)  # a container's process has not inherited them from a shell
environment = json.loads(content("environment"))
if content("killed by the runtime"):
    os.execvpe(command[0], command, environment)

pipe = subprocess.PIPE
child = subprocess.Popen(
    command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, env=environment
)

def copy(source, target):
    try:
        while data := os.read(source, 65536):
            while data:
                data = data[os.write(target, data):]
    except OSError:
        pass

lock = threading.Lock()

def close_input():
    with lock:
        child.stdin.close()

def feed():
    copy(0, child.stdin.fileno())
    close_input()

def drain(source, target):
    copy(source, target)
    close_input()  # as containerd does with the first output that ends

threading.Thread(target=feed, daemon=True).start()
outputs = [threading.Thread(target=drain, args=pair, daemon=True)
           for pair in ((child.stdout.fileno(), 1), (child.stderr.fileno(), 2))]
for output in outputs:
    output.start()
code = child.wait()
for output in outputs:
    output.join(1)
os._exit(code if code >= 0 else 128 - code)
"""

_PAUSE = "pause=$((($$ % 3 + 1) * (backoff + 1) + (backoff ? crowd / 50 : 0)))"

QUICK = {"tick": 1, "cycle": 1, "patience": 6, "grace": 2, "drain": 6, "right": 3, "revoked": 5}
"""The settings of the script in tests, in seconds."""

POD = "mnist-worker-1"
UNTIL_END = "until [ -e $FAKE_POD/end ]; do sleep 0.05; done"
"""A command that ends as soon as the test writes the file `end`."""
STUBBORN = (
    "trap '' TERM HUP INT; (trap '' TERM HUP INT; setsid sleep 600 &) ; sleep 600 & echo started; wait; wait"
)
"""A command of several processes in two sessions that ignore all signals but SIGKILL."""

RUNNING = '{"status":{"phase":"Running"}}'
UNREACHABLE = "Unable to connect to the server: dial tcp 10.0.0.1:443: connect: connection refused"
FORBIDDEN = 'Error from server (Forbidden): pods "mnist-worker-1" is forbidden'
NOT_FOUND = 'Error from server (NotFound): pods "mnist-worker-1" not found'


@dataclass(frozen=True)
class Shell:
    """The shell of both sides, and its other programs if not those of the machine."""

    words: tuple[str, ...]
    programs: Path | None = None


def shells(folder: Path) -> dict[str, Shell]:
    """The shells of this machine among those that are supported; busybox comes with all of its programs."""
    found = {
        name: Shell(words)
        for name, words in {"dash": ("dash",), "bash": ("bash", "--posix")}.items()
        if shutil.which(words[0])
    }
    if busybox := shutil.which("busybox"):
        programs = folder / "busybox"
        programs.mkdir(parents=True)
        listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout
        for name in listed.split():
            (programs / name).symlink_to(busybox)
        found["busybox"] = Shell((str(programs / "sh"),), programs)
    return found


class FakePod:
    """Another pod, and remote exec into it."""

    def __init__(self, folder: Path, shell: Shell, **seconds: int) -> None:
        self.folder = folder
        self.shell = shell
        self._seconds = {**QUICK, **seconds}
        self._agents: list[subprocess.Popen[bytes]] = []
        self.kept = folder / "shm"
        """Stands for /dev/shm of the pod."""
        for name in ("shm", "tmp", "tools"):
            (folder / name).mkdir(parents=True)
        self.write("shell", json.dumps(shell.words))
        self.write("environment", json.dumps(self.environment))
        self.write("pod", RUNNING)
        source = folder / "source-of-kubectl"
        source.write_text(_KUBECTL)
        source.chmod(0o755)
        prepare(folder / "bin", str(source))
        self.edit({})
        self.add_tool("curl", '[ -z "$(cat "$FAKE_POD/fault" 2> /dev/null)" ]')

    def edit(self, changes: dict[str, str]) -> None:
        """Render the script with short times and with changes of its text."""
        text = render_remote_exec()
        for name, value in self._seconds.items():
            text, count = re.subn(rf"^{name}=\d+ ", f"{name}={value} ", text, flags=re.MULTILINE)
            assert count == 1, name
        always = {"for r_base in /dev/shm ": f"for r_base in {self.kept} ", _PAUSE: "pause=1"}
        for old, new in {**always, **changes}.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (self.folder / "bin" / "remote-exec").write_text(text)

    @property
    def script(self) -> Path:
        return self.folder / "bin" / "remote-exec"

    def write_kubexec(self, container: str) -> Path:
        """Write kubexec.sh as a TrainingJob has it, for the folder of this pod."""
        path = self.folder / "kubexec.sh"
        path.write_text(kubexec_script(container).replace(KUBECTL_FOLDER, str(self.folder / "bin")))
        path.chmod(0o755)
        return path

    @property
    def environment(self) -> dict[str, str]:
        programs = self.shell.programs or os.environ["PATH"]
        return {
            "PATH": f"{self.folder / 'tools'}:{programs}",
            "FAKE_POD": str(self.folder),
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": str(self.folder),
            "ARGOSY_NAMESPACE": "team",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "LC_ALL": "C.UTF-8",
        }

    def start(
        self,
        *words: str,
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        environment: dict[str, str] | None = None,
    ) -> "subprocess.Popen[bytes]":
        agent = subprocess.Popen(
            [*self.shell.words, str(self.script), *words],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**self.environment, **(environment or {})},
            preexec_fn=_default_interrupt,  # a test run in the background ignores SIGINT
        )
        self._agents.append(agent)
        return agent

    def write(self, name: str, text: str) -> None:
        temporary = self.folder / f".{name}"
        temporary.write_text(text)
        temporary.replace(self.folder / name)

    def calls(self) -> list[list[object]]:
        """The value of KUBECONFIG and the arguments of each `kubectl exec`, without the command."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def refuse(self, fault: str = UNREACHABLE) -> None:
        """Let new connections fail, and the API server not be reached from the pod."""
        self.write("fault", fault)

    def accept(self) -> None:
        self.write("fault", "")

    def cut(self) -> None:
        """Kill the connections."""
        started = (self.folder / "connections").read_text().split()
        for pid in self._marked():
            if str(pid) in started:
                _kill(pid)

    def command_processes(self) -> list[int]:
        """The processes of the commands that were started through remote exec."""
        return [pid for pid in self._marked() if b"\0ARGOSY_REMOTE_" in b"\0" + _read(pid, "environ")]

    def keeper_processes(self) -> list[int]:
        """The processes in the pod that are not of a command."""
        return [pid for pid in self._marked() if b": argosy-remote;" in _read(pid, "cmdline")]

    def children(self, pid: int) -> list[int]:
        return [int(word) for word in _read(pid, f"task/{pid}/children").split()]

    def end_processes(self) -> None:
        """End all processes in the pod and delete its files, as with the pod."""
        while pids := [*self.keeper_processes(), *self.command_processes()]:
            for pid in pids:
                _kill(pid)
        for path in self.kept.iterdir():
            shutil.rmtree(path)

    def remaining(self) -> list[str]:
        """The command lines of all processes that run still: agents, keepers and commands."""
        return [_read(pid, "cmdline").replace(b"\0", b" ").decode() for pid in self._marked()]

    def leftovers(self) -> list[Path]:
        """The files that remote exec has left in the pod and beside the agent."""
        return [*self.kept.iterdir(), *(self.folder / "tmp").iterdir()]

    def _marked(self) -> list[int]:
        mark = f"\0FAKE_POD={self.folder}\0".encode()
        return [
            pid
            for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())
            if mark in b"\0" + _read(pid, "environ") and b") Z" not in _read(pid, "stat")
        ]

    def clean(self) -> None:
        """Kill what is left of a failed test, and close the streams of its agents."""
        for _ in range(100):
            for pid in (left := self._marked()):
                _kill(pid)
            if not left:
                break
        for agent in self._agents:
            agent.wait()
            for stream in (agent.stdin, agent.stdout, agent.stderr):
                if stream:
                    stream.close()

    def add_tool(self, name: str, script: str) -> None:
        """Put a program first on the PATH of both sides."""
        path = self.folder / "tools" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)


def read_line(agent: "subprocess.Popen[bytes]") -> bytes:
    assert agent.stdout
    return agent.stdout.readline()


def _default_interrupt() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
