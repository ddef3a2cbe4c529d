"""Runs a reconcile function for every key that needs it, many at a time and each key alone.

A pass that raises is logged, counted and tried again later, with growing delays; it takes nothing from other
keys. A pass says itself when it wants to run again (`Requeue`); its word replaces what earlier passes said.

`concurrency` is how many keys of one namespace are worked on at a time. There are twice as many workers, so
that no namespace has them all (see `queue`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import ApiError, Throttled
from argosy.engine.logs import Logger, log_context
from argosy.engine.metrics import Metrics
from argosy.engine.objects import Key
from argosy.engine.queue import Queue
from argosy.engine.work_time import MeasuredAwaitable

__all__ = ["Controller", "Key", "Requeue"]

K = TypeVar("K", bound=Hashable)

log = Logger(__name__)


@dataclass(frozen=True)
class Requeue:
    """When a key should run again though nothing changes; never, if `after` is none."""

    after: float | None = None


class Controller(Generic[K]):
    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Requeue | None]],
        *,
        concurrency: int = 32,
        queue: Queue[K] | None = None,
        clock: Clock = SystemClock(),
        metrics: Metrics | None = None,
    ) -> None:
        self.name = name
        self.queue: Queue[K] = Queue() if queue is None else queue
        self._reconcile = reconcile
        self._workers = 2 * concurrency
        self.queue.workers = self._workers
        self._clock = clock
        self._running: dict[K, float] = {}
        """When each pass under way began; the first is the oldest."""
        self._moved = clock.monotonic()
        """When a pass began or ended last."""
        metrics = metrics or Metrics()
        metrics.longest_running_reconcile.labels(name).set_function(lambda: self.longest_running)
        metrics.workqueue_depth.labels(name).set_function(lambda: len(self.queue))
        metrics.workqueue_oldest_item.labels(name).set_function(lambda: self.queue.age)
        self._waited = metrics.workqueue_wait_duration.labels(name)
        self._passes = {
            result: metrics.reconcile_total.labels(name, result) for result in ("success", "error")
        }
        self._seconds = metrics.reconcile_duration.labels(name)

    def enqueue(self, key: K, after: float = 0.0) -> None:
        self.queue.add_after(key, after)

    def discard(self, key: K) -> None:
        """What the key named is gone: nothing more is kept of it."""
        self.queue.discard(key)

    @property
    def longest_running(self) -> float:
        """Seconds that the oldest pass under way has taken so far; 0 if there is none."""
        began = next(iter(self._running.values()), None)
        return 0.0 if began is None else self._clock.monotonic() - began

    @property
    def stalled(self) -> float:
        """Seconds for which keys have been ready and no pass has begun or ended; 0 if no key is ready."""
        return min(self.queue.age, self._clock.monotonic() - self._moved)

    async def run(self) -> None:
        """Work until cancelled; passes under way are cancelled with it."""
        self._moved = self._clock.monotonic()
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._workers):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            self._waited.observe(self.queue.waited)
            with log_context(controller=self.name, object=str(key)):
                await self._pass(key)
            await asyncio.sleep(0)  # thousands of passes with nothing to wait for must not keep the loop

    async def _pass(self, key: K) -> None:
        began = self._moved = self._running[key] = self._clock.monotonic()
        effort = MeasuredAwaitable(self._reconcile(key), self._clock.monotonic)
        try:
            wake = await effort
        except Exception as error:
            self._failed(key, error)
        else:
            self._passes["success"].inc()
            self.queue.forget(key)
            if wake is not None and wake.after is not None:
                self.queue.add_after(key, max(wake.after, MOMENT))
        finally:
            del self._running[key]
            self._moved = self._clock.monotonic()
            self._seconds.observe(self._moved - began)
            self.queue.done(key, effort.seconds)

    def _failed(self, key: K, error: Exception) -> None:
        self._passes["error"].inc()
        delay = self.queue.add_rate_limited(key, error.retry_after if isinstance(error, Throttled) else 0.0)
        expected = isinstance(error, ApiError)
        log.warning(
            "pass failed, trying again",
            error=str(error) if expected else repr(error),
            seconds=round(delay, 2),
            exc_info=None if expected else error,
        )


MOMENT = 0.001
"""A wake of zero still lets other keys run first."""
