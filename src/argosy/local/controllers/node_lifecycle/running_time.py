"""Measures how long this process has been running, as opposed to how much time has passed.

A process that is stopped (SIGSTOP) or whose machine sleeps receives nothing, and usually the nodes slept too.
Silence counted in running time therefore leaves nodes their full grace period after they resume.
"""

import asyncio
from collections.abc import Callable

STEP_SECONDS = 1.0


class RunningTime:
    """Adds up the time between readings; a gap of more than two steps counts as two."""

    def __init__(self, monotonic: Callable[[], float], step: float = STEP_SECONDS) -> None:
        self._monotonic = monotonic
        self._step = step
        self._read_at = monotonic()
        self._total = 0.0

    def seconds(self) -> float:
        now = self._monotonic()
        self._total += min(now - self._read_at, 2 * self._step)
        self._read_at = now
        return self._total

    async def run(self) -> None:
        """Read the clock so often that only a stopped process causes a gap."""
        while True:
            self.seconds()
            await asyncio.sleep(self._step)
