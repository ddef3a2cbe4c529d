"""The state of a pod as its shim reports it: JSON in the pod's folder and over the shim's socket.

The file is replaced atomically at every change, so that a reader after a crash sees a consistent state. Times
are seconds since 1970. Standard library only.
"""

import json
import os
import time
from pathlib import Path
from typing import Final, TypedDict

from argosy.local.node import kernel

STATE_FILE: Final = "state.json"
LOCK_FILE: Final = "lock"
"""Locked by a shim while it runs."""


class Termination(TypedDict):
    exit_code: int
    signal: int
    reason: str
    message: str
    started: float
    finished: float


class ContainerState(TypedDict):
    name: str
    running: float | None
    """Start time of the present run, if it is running."""
    ended: Termination | None
    """How the present run ended; None while it is running."""
    last: Termination | None
    """How the run before it ended."""
    restarts: int
    waiting: str
    waiting_message: str
    ready: bool
    started: bool


class PodState(TypedDict):
    pid: int
    """The shim's, in the machine's PID namespace."""
    start_time: int
    address: str
    containers: dict[str, ContainerState]
    finished: bool
    """Whether all containers have ended for good and the shim is exiting."""
    stopping: bool
    error: str
    """Why the pod's namespaces or network could not be set up."""
    notes: list[str]
    """Warnings for users about requested features that are not supported."""


def read_state(folder: Path) -> PodState | None:
    try:
        report: PodState = json.loads((folder / STATE_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return report


def write_state(folder: Path, report: PodState) -> None:
    replace_file(folder / STATE_FILE, json.dumps(report).encode())


def replace_file(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Replace a file atomically, also across a crash."""
    fresh = path.with_name(f".{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        os.write(descriptor, content)
    finally:
        os.close(descriptor)
    try:
        kernel.exchange_files(str(fresh), str(path))
        fresh.unlink()
    except (OSError, KeyError):  # there was no file, or the file system does not support it
        fresh.rename(path)


def waiting_state(name: str, reason: str) -> ContainerState:
    return ContainerState(
        name=name,
        running=None,
        ended=None,
        last=None,
        restarts=0,
        waiting=reason,
        waiting_message="",
        ready=False,
        started=False,
    )


def exit_code(status: int) -> tuple[int, int]:
    """Return the exit code as container runtimes report it (128 + signal), and the signal."""
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status), os.WTERMSIG(status)
    return os.WEXITSTATUS(status), 0


def containers_after_loss(before: PodState) -> dict[str, ContainerState]:
    """Return the container states of a pod whose shim died: what was running counts as killed."""
    for entry in before["containers"].values():
        if entry["running"] is not None:
            entry["ended"] = Termination(
                exit_code=137,
                signal=9,
                reason="Error",
                message="the pod's processes were lost",
                started=entry["running"],
                finished=time.time(),
            )
        entry.update(
            {"running": None, "ready": False, "started": False, "waiting": "", "waiting_message": ""}
        )
    return before["containers"]
