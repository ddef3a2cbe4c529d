"""Reports the step that the program of a pod has reached, from the file in which the program writes it.

Each report is a write of the pod, so there is one at the start, one a minute, one when training goes back to
an earlier step, and one when the pod ends. Of a role only the first pod reports.
"""

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from argosy.helper.endpoint import Endpoint

REPORT_SECONDS = 60.0
TIMEOUT_SECONDS = 10.0
MAX_FILE_BYTES = 64
MAX_STEP = 2**53 - 1
LAST_ATTEMPTS = 3
"""How often the last report is tried: the operator may have written the pod a moment ago."""


class StepReporter:
    """Passes on the step of a pod."""

    def __init__(
        self,
        endpoint: Endpoint,
        path: Path | None,
        pod: Mapping[str, object],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._path = path
        """None: this pod reports nothing."""
        self._pod = pod
        self._clock = clock
        self._pause = pause
        self._reported: int | None = None
        self._next = clock()

    def look(self, *, is_last: bool = False) -> None:
        """Report the step if that is due; at the end it is, unless it is known."""
        step = read_step(self._path) if self._path else None
        if step is None or step == self._reported:
            return
        went_back = self._reported is not None and step < self._reported
        if not (is_last or went_back or self._clock() >= self._next):
            return
        self._next = self._clock() + REPORT_SECONDS
        for left in reversed(range(LAST_ATTEMPTS if is_last else 1)):
            problem = self._endpoint.post_json(
                "checkpoints/step", {**self._pod, "step": step}, TIMEOUT_SECONDS
            )
            if not problem:
                self._reported = step
                return
            if left:
                self._pause(1.0)
        print(f"argosy: step {step} not reported: {problem}", file=sys.stderr, flush=True)


def read_step(path: Path) -> int | None:
    """Return the number in a file; None if there is none. Programs of users write it."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES).strip()
    except OSError:
        return None
    if not text.isdigit() or len(text) > len(str(MAX_STEP)):
        return None
    return min(int(text), MAX_STEP)
