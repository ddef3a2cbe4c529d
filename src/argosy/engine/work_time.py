"""How long a coroutine itself works: the time of its steps, without that in which it waits.

What a pass takes from others on the core is this, not how long the API server takes to answer it.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import Generic, TypeVar

R = TypeVar("R")


class MeasuredAwaitable(Generic[R]):
    """Awaits `work`; afterwards `seconds` is how long its own steps took."""

    def __init__(self, work: Awaitable[R], monotonic: Callable[[], float]) -> None:
        self.seconds = 0.0
        self._work = work
        self._monotonic = monotonic

    def __await__(self) -> Generator[object, None, R]:
        steps = self._work.__await__()
        thrown: BaseException | None = None
        while True:
            began = self._monotonic()
            try:
                waiting_for = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as ended:
                result: R = ended.value
                return result
            finally:
                self.seconds += self._monotonic() - began
            thrown = None
            try:
                yield waiting_for
            except BaseException as error:
                thrown = error
