"""Keys to work on: each once however often it was added, never twice at a time, never too soon.

A key that is added while it is being worked on runs again afterwards. A key that fails waits, twice as long
each time and with jitter. Every key rests after a pass five times as long as that worked (at most 200 ms),
so that an object with thousands of children, each of whose events adds it again, leaves the core to others.
Of the keys that are ready those added at once go before those that were put off (see `lanes`).

Namespaces take turns, and one has no more keys worked on than workers are left idle. So a single namespace
gets half of the workers, two get a third each, and there is always one for a namespace that has none.
"""

import asyncio
import heapq
from collections import Counter, deque
from collections.abc import Hashable
from itertools import count
from typing import Generic, TypeVar

from argosy.engine.backoff import Backoff
from argosy.engine.fairness import namespace_of
from argosy.engine.ready_queue import FairLanes

K = TypeVar("K", bound=Hashable)

REST_FACTOR = 5.0
REST_MOST = 0.2
SWEEP = 0.5
"""Seconds between looking for rests that are over, all at once: a timer for each would cost more than a
pass."""

SPARE = 64
"""Times that no longer hold and are kept all the same, before they are looked for."""


class Queue(Generic[K]):
    def __init__(
        self, backoff: Backoff = Backoff(initial=0.05, maximum=60.0), *, rest_most: float = REST_MOST
    ) -> None:
        self._backoff = backoff
        self._rest_most = rest_most
        self._ready: FairLanes[K] = FairLanes(namespace_of)
        self.workers: int | None = None
        """How many take keys, among whom namespaces share; None: any number."""
        self.waited = 0.0
        """Seconds that the key which was taken last had been ready."""
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._active: set[K] = set()
        self._active_in: Counter[str] = Counter()
        """How many of them by namespace."""
        self._again: set[K] = set()
        self._failures: dict[K, int] = {}
        self._resting: dict[K, float] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Keys that could be worked on now."""
        return len(self._ready)

    @property
    def age(self) -> float:
        """Seconds that the oldest ready key has waited; 0 when none is ready."""
        since = self._ready.oldest
        return 0.0 if since is None else asyncio.get_running_loop().time() - since

    @property
    def idle(self) -> bool:
        """Nothing ready and nothing being worked on; keys may still be due later."""
        return not self._ready and not self._active and not self._again

    def add(self, key: K) -> None:
        self._add(key, first=True)

    def _add(self, key: K, *, first: bool) -> None:
        if key in self._active:
            self._again.add(key)
            return
        rest = self._rest_left(key)
        if rest > 0:
            self._schedule(key, rest)
            return
        known = key in self._ready
        self._ready.add(key, asyncio.get_running_loop().time(), first=first)
        if not known:
            self._due.pop(key, None)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Run the key then, unless it runs sooner; the earliest time asked for wins."""
        if seconds <= 0:
            self.add(key)
        elif key not in self._ready:
            self._schedule(key, seconds)

    async def get(self) -> K:
        """The next key. What was due later for it is dropped: the pass that starts now decides anew."""
        while (taken := self._ready.take(self._may_start)) is None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()
                raise
        key, since = taken
        self.waited = asyncio.get_running_loop().time() - since
        self._due.pop(key, None)
        self._active.add(key)
        self._active_in[namespace_of(key)] += 1
        if self._ready:
            self._wake()  # others may be allowed one as well
        return key

    def _may_start(self, bucket: str) -> bool:
        return self.workers is None or self._active_in[bucket] < self.workers - len(self._active)

    def done(self, key: K, work_seconds: float = 0.0) -> None:
        """The pass is over; `took` seconds of work on it decide how long the key rests."""
        self._inactive(key)
        if work_seconds > 0 and self._rest_most > 0:
            self._rest(key, min(work_seconds * REST_FACTOR, self._rest_most))
        if key in self._again:
            self._again.discard(key)
            self._add(key, first=False)

    def _inactive(self, key: K) -> None:
        if key not in self._active:
            return
        self._active.discard(key)
        bucket = namespace_of(key)
        self._active_in[bucket] -= 1
        if not self._active_in[bucket]:
            del self._active_in[bucket]
        if self._ready:
            self._wake()

    def discard(self, key: K) -> None:
        """What the key named is gone. Being worked on, it runs once more, so that the pass notices."""
        if key in self._active:
            self._again.add(key)
        self._ready.drop(key)
        self._due.pop(key, None)
        self._failures.pop(key, None)
        self._resting.pop(key, None)

    def forget(self, key: K) -> None:
        """The key went well: its next failure counts as the first."""
        self._failures.pop(key, None)

    def add_rate_limited(self, key: K, at_least: float = 0.0) -> float:
        """Bring the key back after a delay that grows with each failure; returns the delay."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = max(self._backoff.delay(failures), at_least)
        self._again.discard(key)
        self._due.pop(key, None)
        self._schedule(key, delay)
        return delay

    def _rest(self, key: K, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._resting[key] = loop.time() + seconds
        if self._sweeper is None:
            self._sweeper = loop.call_later(SWEEP, self._sweep)

    def _sweep(self) -> None:
        """Forget the rests that are over: most keys are not asked for again so soon."""
        loop = asyncio.get_running_loop()
        self._resting = {key: until for key, until in self._resting.items() if until > loop.time()}
        self._sweeper = loop.call_later(SWEEP, self._sweep) if self._resting else None

    def _rest_left(self, key: K) -> float:
        until = self._resting.get(key)
        if until is None:
            return 0.0
        left = until - asyncio.get_running_loop().time()
        if left <= 0:
            del self._resting[key]
        return left

    def _schedule(self, key: K, seconds: float) -> None:
        when = asyncio.get_running_loop().time() + seconds
        if when < self._due.get(key, float("inf")):
            self._due[key] = when
            self._push(key, when)

    def _push(self, key: K, when: float) -> None:
        if len(self._heap) > 2 * len(self._due) + SPARE:
            self._tidy()
        heapq.heappush(self._heap, (when, next(self._order), key))
        if self._heap[0][2] is key or self._timer is None:
            self._arm()

    def _tidy(self) -> None:
        """Drop the times that no longer hold: a job that came to its end early had a deadline far away."""
        self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
        heapq.heapify(self._heap)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            _, _, key = heapq.heappop(self._heap)
            due = self._due.get(key)
            if due is not None and due <= now:
                del self._due[key]
                self._add(key, first=False)
        if self._heap:
            self._arm()

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
