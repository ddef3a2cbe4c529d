"""Reads the system's clocks; no other module does.

`monotonic` includes the time in which the machine was suspended, where the system supports that. So a process
on a laptop that was asleep knows that its lease has expired.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """Return the current time, timezone-aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, for measuring durations."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return _monotonic()


def _monotonic() -> float:
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
