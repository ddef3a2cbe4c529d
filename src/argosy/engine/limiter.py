"""Limits the number of concurrent writes by what the API server accepts, instead of a fixed rate.

The window starts at `initial`, so that a first burst does not open hundreds of connections, and grows with
every successful write. It is halved after 429, once per window, because a server rejects a full window at
once; and all writes wait as long as Retry-After says. An additional rate limit with a burst can be set.

Waiting writes are started by namespaces in turn. A namespace may use at most eight times as many slots as are
free: alone it uses 64 of 72. So a namespace whose writes hang, for example because its admission webhook does
not respond, leaves slots to the others.
"""

import asyncio
from collections import Counter

from msgspec import Struct

from argosy.engine.round_robin import RoundRobin


class WriteLimits(Struct, frozen=True):
    in_flight: int = 72
    """Maximum size of the window."""
    initial: int = 36
    """Initial size of the window."""
    per_second: float | None = None
    burst: int = 1
    """Writes that may start at once after a pause, if there is a limit per second."""


class WriteLimiter:
    def __init__(self, limits: WriteLimits = WriteLimits()) -> None:
        self._limits = limits
        self._window = float(min(limits.initial, limits.in_flight))
        self._active = 0
        self._active_in: Counter[str] = Counter()
        """Active writes by namespace."""
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()
        self._not_before = float("-inf")
        self._rate_limited_until = float("-inf")
        """When the writes so far no longer exceed the limit per second."""
        self._halved_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @property
    def window(self) -> int:
        return max(int(self._window), 1)

    @property
    def active(self) -> int:
        return self._active

    async def acquire(self, bucket: str = "") -> float:
        """Wait for a slot; return the start time of the write, which `throttled` needs."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._waiting or not self._has_free_slot(now) or not self._is_allowed(bucket):
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.push(bucket, waiter)
            self._start_waiting()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self.release(bucket)
                raise
            return loop.time()
        self._take(bucket, now)
        return now

    def release(self, bucket: str = "") -> None:
        self._active -= 1
        self._active_in[bucket] -= 1
        if not self._active_in[bucket]:
            del self._active_in[bucket]
        if self._waiting:
            self._start_waiting()

    def succeeded(self) -> None:
        self._window = min(self._window + max(1 / self._window, MIN_GROWTH), float(self._limits.in_flight))

    def throttled(self, started: float, retry_after: float) -> None:
        now = asyncio.get_running_loop().time()
        self._not_before = max(self._not_before, now + retry_after)
        if started >= self._halved_at:
            self._halved_at = now
            self._window = max(self._window / 2, 1.0)

    def _has_free_slot(self, now: float) -> bool:
        return self._active < self.window and now >= self._paused_until

    def _is_allowed(self, bucket: str) -> bool:
        """Return True if the namespace does not exceed its share of the slots."""
        return self._active_in[bucket] < FREE_SHARE * (self.window - self._active)

    @property
    def _paused_until(self) -> float:
        """The time before which no write may start, even if slots are free."""
        rate = self._limits.per_second
        rate_limited = (
            self._rate_limited_until - (self._limits.burst - 1) / rate if rate else self._not_before
        )
        return max(self._not_before, rate_limited)

    def _take(self, bucket: str, now: float) -> None:
        self._active += 1
        self._active_in[bucket] += 1
        if self._limits.per_second:
            self._rate_limited_until = max(self._rate_limited_until, now) + 1 / self._limits.per_second

    def _start_waiting(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._has_free_slot(now) and (
            next_up := self._waiting.peek(lambda name, _: self._is_allowed(name))
        ):
            bucket, waiter = next_up
            self._waiting.take(bucket)
            if not waiter.done():
                self._take(bucket, now)
                waiter.set_result(None)
        if self._waiting and now < (paused_until := self._paused_until) and self._timer is None:
            self._timer = loop.call_at(paused_until, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._start_waiting()


FREE_SHARE = 8
"""A namespace may use this many times as many slots as are free."""

MIN_GROWTH = 1 / 16
"""Minimum growth of the window per successful write: from 1 to 64 in about a thousand writes."""
