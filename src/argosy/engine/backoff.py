"""How long to wait after a failure: twice as long each time, with jitter, up to a limit."""

import random
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    initial: float = 0.1
    maximum: float = 30.0
    jitter: Callable[[], float] = random.random
    """Draws from [0, 1)."""

    def delay(self, failures: int) -> float:
        """Seconds after that many failures in a row: between half and all of the doubled step."""
        step: float = min(self.initial * 2.0 ** min(failures - 1, 30), self.maximum)
        return step * (0.5 + 0.5 * self.jitter())
