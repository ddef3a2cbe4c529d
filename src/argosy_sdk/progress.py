"""Reports the step of training in a file, from which it is known how many steps a lost machine has cost.

Only a number in a file: whoever reads it decides how often it is passed on. Training never fails because of
it.
"""

import os
from pathlib import Path
from typing import Callable, Optional

_SECONDS = 0.2


class StepFile:
    """The file with the last step of this process."""

    def __init__(self, path: Optional[Path], clock: Callable[[], float]) -> None:
        self._path = path
        self._clock = clock
        self._next = clock()

    def report(self, step: int) -> None:
        """Write the step, if the last one was not written a moment ago."""
        if self._path is not None and self._clock() >= self._next:
            self.write(step)

    def write(self, step: int) -> None:
        """Write the step."""
        if self._path is None:
            return
        self._next = self._clock() + _SECONDS
        written = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            written.write_text(f"{int(step)}\n")
            written.replace(self._path)
        except (OSError, ValueError, TypeError):
            pass
