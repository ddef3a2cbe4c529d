"""Records the processes of a local control plane and finds those that still run.

A process is recorded by pid and start time, because pids are reused: a signal is sent only if both match. The
record is `run.json`, which is replaced atomically.
"""

import os
import signal
import time
from itertools import pairwise
from pathlib import Path

import msgspec
from msgspec import Struct, field

from argosy.local.procfs import is_alive, start_time

NODE_MONITOR_GRACE_SECONDS = 40.0
"""How long a node may be silent before it is NotReady, by default as in Kubernetes."""


class Process(Struct, frozen=True):
    pid: int
    started: int
    """Start time in clock ticks since boot, from /proc/PID/stat."""

    @classmethod
    def of(cls, pid: int) -> "Process":
        return cls(pid, start_time(pid) or 0)

    @property
    def alive(self) -> bool:
        return is_alive(self.pid, self.started)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, unless the pid belongs to another process now."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the process has ended; return False if it has not within the time."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True


class Options(Struct, frozen=True):
    """The options of `argosy up`."""

    nodes: int = 1
    pretend_gpus: int = 0
    port: int = 0
    images: dict[str, str] = field(default_factory=dict)
    operator: bool = True
    node_monitor_grace: float = NODE_MONITOR_GRACE_SECONDS


class Run(Struct, frozen=True):
    """The contents of run.json."""

    options: Options
    supervisor: Process
    components: dict[str, Process] = field(default_factory=dict)


def write_json(path: Path, content: Struct) -> None:
    """Replace a file atomically: a reader gets the old content or the new one."""
    temporary = path.with_suffix(".new")
    temporary.write_bytes(msgspec.json.encode(content))
    temporary.replace(path)


def read_run(path: Path) -> Run | None:
    """Return the last run that was recorded; its processes may have ended since."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Run)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def strays(folder: Path, *, among: Path = Path("/proc")) -> list[Process]:
    """Find running components whose command line names this state folder, the oldest first.

    So they are found even if run.json is lost.
    """
    wanted = os.fsencode(folder)
    processes = []
    for entry in among.iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
        except OSError:
            continue
        ours = any(word.startswith(b"argosy.local.") or word == b"operator" for word in words)
        names_folder = any(pair in ((b"--state", wanted), (b"--local", wanted)) for pair in pairwise(words))
        if ours and names_folder and int(entry.name) != os.getpid():
            processes.append(Process.of(int(entry.name)))
    return sorted((process for process in processes if process.alive), key=lambda process: process.started)
