"""Exponential backoff with jitter, up to a maximum."""

import random
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    initial: float = 0.1
    """Seconds after the first failure."""
    maximum: float = 30.0
    jitter: Callable[[], float] = random.random
    """Returns a random number in [0, 1)."""

    def delay(self, failures: int) -> float:
        """Return the delay after this many failures in a row: between half and all of the doubled step."""
        step: float = min(self.initial * 2.0 ** min(failures - 1, 30), self.maximum)
        return step * (0.5 + 0.5 * self.jitter())
