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
"""Held by a shim for as long as it lives."""


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
    """When it started, while it runs."""
    ended: Termination | None
    """How the present run ended, when it has and no other began."""
    last: Termination | None
    """How the run before ended."""
    restarts: int
    waiting: str
    waiting_message: str
    ready: bool
    started: bool


class PodState(TypedDict):
    pid: int
    """Of the shim, as the machine sees it."""
    start_time: int
    address: str
    containers: dict[str, ContainerState]
    finished: bool
    """All that will ever run has ended and the shim is leaving."""
    stopping: bool
    error: str
    """Why the pod could not even be set up (namespaces, network)."""
    notes: list[str]
    """Warnings for people: what was asked for and could not be had."""


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
