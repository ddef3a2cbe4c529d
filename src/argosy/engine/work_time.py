"""Measures how long a coroutine itself computes, without the time it waits.

The cooldown of a work queue depends on this: a reconcile blocks other keys only while it computes, not while
it waits for the API server.
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
            started = self._monotonic()
            try:
                awaited = next(steps) if thrown is None else steps.throw(thrown)
            except StopIteration as stop:
                result: R = stop.value
                return result
            finally:
                self.seconds += self._monotonic() - started
            thrown = None
            try:
                yield awaited
            except BaseException as error:
                thrown = error
