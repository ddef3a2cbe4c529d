"""A work queue with the guarantees of client-go's: no duplicates, no concurrent work on one key, rate limits.

A key added while a worker processes it runs again afterwards. A key that fails is retried with exponential
backoff and jitter. After each run a key cools down for five times as long as the run worked, at most 200 ms:
an object with thousands of children, whose events all add its key, leaves CPU time to the others. Ready keys
that were added without delay go before deferred ones (see `ready_queue`).

Namespaces take turns. A namespace may use only as many workers as are idle, so one namespace alone uses half
of the workers, two use a third each, and there is always an idle worker for another namespace.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

from argosy.engine.backoff import Backoff
from argosy.engine.ready_queue import FairReadyQueue
from argosy.engine.round_robin import namespace_of

K = TypeVar("K", bound=Hashable)

COOLDOWN_FACTOR = 5.0
MAX_COOLDOWN_SECONDS = 0.2
COOLDOWN_SWEEP_SECONDS = 0.5
"""Interval between removals of expired cooldowns. One timer per key would cost more than a reconcile."""

HEAP_SLACK = 64
"""Outdated heap entries that are tolerated before the heap is rebuilt."""


class Queue(Generic[K]):
    def __init__(
        self,
        backoff: Backoff = Backoff(initial=0.05, maximum=60.0),
        *,
        max_cooldown: float = MAX_COOLDOWN_SECONDS,
    ) -> None:
        self._backoff = backoff
        self._max_cooldown = max_cooldown
        self._ready: FairReadyQueue[K] = FairReadyQueue(namespace_of)
        self.workers: int | None = None
        """How many workers the namespaces share; None means that namespaces are not limited."""
        self.waited = 0.0
        """Seconds that the key returned last had been ready."""
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._active: set[K] = set()
        self._active_in: Counter[str] = Counter()
        """Active keys by namespace."""
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._cooling_down: dict[K, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """The number of ready keys."""
        return len(self._ready)

    @property
    def age(self) -> float:
        """Seconds that the oldest ready key has waited; 0 if no key is ready."""
        since = self._ready.oldest
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    @property
    def idle(self) -> bool:
        """True if no key is ready or active. Keys may still become ready later."""
        return not self._ready and not self._active and not self._again

    def add(self, key: K) -> None:
        self._add(key, immediate=True)

    def _add(self, key: K, *, immediate: bool) -> None:
        if key in self._active:
            self._again.add(key)
            return
        cooldown = self._remaining_cooldown(key)
        if cooldown > 0:
            self._schedule(key, cooldown)
            return
        is_new = key not in self._ready
        self._ready.add(key, asyncio.get_running_loop().time(), immediate=immediate)
        if is_new:
            self._due.pop(key, None)
            self._wake_worker()

    def add_after(self, key: K, seconds: float) -> None:
        """Add the key after a delay, unless it runs sooner; the earliest requested time wins."""
        if seconds <= 0:
            self.add(key)
        elif key not in self._ready:
            self._schedule(key, seconds)

    async def get(self) -> K:
        """Wait for the next key, and drop the later time scheduled for it: this run decides the next time."""
        while (taken := self._ready.take(self._can_start)) is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_worker()
                raise
        key, since = taken
        self.waited = asyncio.get_running_loop().time() - since
        self._due.pop(key, None)
        self._active.add(key)
        self._active_in[namespace_of(key)] += 1
        if self._ready:
            self._wake_worker()  # another namespace may be able to start, too
        return key

    def _can_start(self, namespace: str) -> bool:
        return self.workers is None or self._active_in[namespace] < self.workers - len(self._active)

    def done(self, key: K, work_seconds: float = 0.0) -> None:
        """Finish a key taken by `get`; the seconds it worked determine its cooldown."""
        self._deactivate(key)
        if work_seconds > 0 and self._max_cooldown > 0:
            self._cool_down(key, min(work_seconds * COOLDOWN_FACTOR, self._max_cooldown))
        if key in self._again:
            self._again.discard(key)
            self._add(key, immediate=False)

    def _deactivate(self, key: K) -> None:
        if key not in self._active:
            return
        self._active.discard(key)
        namespace = namespace_of(key)
        self._active_in[namespace] -= 1
        if not self._active_in[namespace]:
            del self._active_in[namespace]
        if self._ready:
            self._wake_worker()

    def discard(self, key: K) -> None:
        """Remove a key whose object was deleted. An active key runs once more and sees the deletion."""
        if key in self._active:
            self._again.add(key)
        self._ready.discard(key)
        self._due.pop(key, None)
        self._failures.pop(key, None)
        self._cooling_down.pop(key, None)

    def forget(self, key: K) -> None:
        """Reset the backoff of a key after a success."""
        self._failures.pop(key, None)

    def add_rate_limited(self, key: K, at_least: float = 0.0) -> float:
        """Add the key after a delay that grows with each failure, and return the delay in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(self._backoff.delay(failures), at_least)
        self._again.discard(key)
        self._due.pop(key, None)
        self._schedule(key, delay)
        return delay

    def _cool_down(self, key: K, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._cooling_down[key] = loop.time() + seconds
        if self._sweeper is None:
            self._sweeper = loop.call_later(COOLDOWN_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Remove expired cooldowns: most keys are not added again soon enough to remove their own."""
        loop = asyncio.get_running_loop()
        self._cooling_down = {key: end for key, end in self._cooling_down.items() if end > loop.time()}
        self._sweeper = loop.call_later(COOLDOWN_SWEEP_SECONDS, self._sweep) if self._cooling_down else None

    def _remaining_cooldown(self, key: K) -> float:
        end = self._cooling_down.get(key)
        if end is None:
            return 0.0
        remaining = end - asyncio.get_running_loop().time()
        if remaining <= 0:
            del self._cooling_down[key]
        return remaining

    def _schedule(self, key: K, seconds: float) -> None:
        when = asyncio.get_running_loop().time() + seconds
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            self._push(key, when)

    def _push(self, key: K, when: float) -> None:
        if len(self._heap) > 2 * len(self._due) + HEAP_SLACK:
            self._rebuild_heap()
        heapq.heappush(self._heap, (when, next(self._order), key))
        if self._heap[0][2] is key or self._timer is None:
            self._set_timer()

    def _rebuild_heap(self) -> None:
        """Drop outdated entries, such as the distant deadlines of jobs that finished early."""
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._add_due_keys)

    def _add_due_keys(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            due = self._due.get(key)
            if due is not None and due <= now:
                del self._due[key]
                self._add(key, immediate=False)
        if self._heap:
            self._set_timer()

    def _wake_worker(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
