"""Runs a reconcile function for queued keys, many at a time but never two for the same key.

A reconcile that raises is logged, counted and retried with exponential backoff; other keys are not affected.
A reconcile returns when its key should run again (`Requeue`), which replaces earlier requests.

`concurrency` is how many keys of one namespace are reconciled at a time. There are twice as many workers, so
that no namespace occupies all of them (see `queue`).
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
    """When a key should run again without any change, in seconds; None means never."""

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
        """When each running reconcile started; the first is the oldest."""
        self._last_progress = clock.monotonic()
        """When a reconcile last started or ended."""
        metrics = metrics or Metrics()
        metrics.longest_running_reconcile.labels(name).set_function(lambda: self.longest_running)
        metrics.workqueue_depth.labels(name).set_function(lambda: len(self.queue))
        metrics.workqueue_oldest_item.labels(name).set_function(lambda: self.queue.age)
        self._wait_duration = metrics.workqueue_wait_duration.labels(name)
        self._successes = metrics.reconcile_total.labels(name, "success")
        self._errors = metrics.reconcile_total.labels(name, "error")
        self._duration = metrics.reconcile_duration.labels(name)

    def enqueue(self, key: K, after: float = 0.0) -> None:
        self.queue.add_after(key, after)

    def discard(self, key: K) -> None:
        """Drop all state of a key whose object was deleted."""
        self.queue.discard(key)

    @property
    def longest_running(self) -> float:
        """Seconds that the oldest running reconcile has taken so far; 0 if none is running."""
        started = next(iter(self._running.values()), None)
        return 0.0 if started is None else self._clock.monotonic() - started

    @property
    def stalled(self) -> float:
        """Seconds for which keys were ready while no reconcile started or ended; 0 if no key is ready."""
        return min(self.queue.age, self._clock.monotonic() - self._last_progress)

    async def run(self) -> None:
        """Run the workers until cancelled; running reconciles are cancelled, too."""
        self._last_progress = self._clock.monotonic()
        async with asyncio.TaskGroup() as workers:
            for _ in range(self._workers):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            key = await self.queue.get()
            self._wait_duration.observe(self.queue.waited)
            with log_context(controller=self.name, object=str(key)):
                await self._reconcile_key(key)
            await asyncio.sleep(0)  # reconciles that never wait must not block the event loop

    async def _reconcile_key(self, key: K) -> None:
        started = self._last_progress = self._running[key] = self._clock.monotonic()
        measured = MeasuredAwaitable(self._reconcile(key), self._clock.monotonic)
        try:
            requeue = await measured
        except Exception as error:
            self._retry(key, error)
        else:
            self._successes.inc()
            self.queue.forget(key)
            if requeue is not None and requeue.after is not None:
                self.queue.add_after(key, max(requeue.after, MIN_REQUEUE_SECONDS))
        finally:
            del self._running[key]
            self._last_progress = self._clock.monotonic()
            self._duration.observe(self._last_progress - started)
            self.queue.done(key, measured.seconds)

    def _retry(self, key: K, error: Exception) -> None:
        self._errors.inc()
        delay = self.queue.add_rate_limited(key, error.retry_after if isinstance(error, Throttled) else 0.0)
        is_api_error = isinstance(error, ApiError)
        log.warning(
            "reconcile failed; retrying",
            error=str(error) if is_api_error else repr(error),
            seconds=round(delay, 2),
            exc_info=None if is_api_error else error,
        )


MIN_REQUEUE_SECONDS = 0.001
"""A requeue after 0 seconds must not go before other ready keys."""
