"""Identifies processes by pid and start time, because pids are reused.

Standard library only: shims and the zygote import this.
"""

from pathlib import Path
from typing import TypedDict


class ProcessId(TypedDict):
    """Identifies a process in JSON files."""

    pid: int
    start_time: int


def start_time(pid: int | str) -> int | None:
    """Return the start time of a live process in clock ticks since boot.

    None if the process has ended, including when only its exit code is left to be collected. A process whose
    main thread has ended is alive as long as other threads run: they still hold its sockets and locks.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    state, threads, started = fields[0], int(fields[17]), int(fields[19])
    return None if state in (b"Z", b"X") and threads <= 1 else started


def is_alive(pid: int, started: int) -> bool:
    """Return True if the process with this pid is the one that started then, and is not a zombie."""
    return start_time(pid) == started


def process_id(pid: int) -> ProcessId:
    """Return the identity of a live process; for one that has ended, an identity that matches no process."""
    return ProcessId(pid=pid, start_time=start_time(pid) or 0)
