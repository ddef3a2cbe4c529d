"""The one place that reads the system's clocks.

`monotonic` also counts the time a machine was suspended (where the system can tell), so that a lease held
by a laptop that slept is known to be over when it wakes.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime:
        """The time of day, aware and in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only ever grow; for differences."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return _monotonic()


def _monotonic() -> float:
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boottime is None else time.clock_gettime(boottime)
