"""How many writes may be in flight: as many as the API server takes, and no fixed rate.

The window starts at `first`, so that a first burst does not open connections by the hundred, and climbs with
every write that succeeds. It halves when the server says 429 (once per window, not once per refusal: a full
window is refused together), and everything is held back for as long as Retry-After says. A cap per second,
with a burst that may go before it holds, exists for clusters whose owner wants one.

Writes that wait are let go by namespaces in turn, and a namespace holds at most eight times as many places as
are free. So one alone has 64 of 72, and a namespace whose writes hang (an admission webhook of its own that
does not answer) leaves room for all others.
"""

import asyncio
from collections import Counter

from msgspec import Struct

from argosy.engine.round_robin import RoundRobin


class WriteLimits(Struct, frozen=True):
    in_flight: int = 72
    first: int = 36
    per_second: float | None = None
    burst: int = 1
    """How many may go at once, after a while without any, where there is a cap per second."""


class WriteLimiter:
    def __init__(self, limits: WriteLimits = WriteLimits()) -> None:
        self._limits = limits
        self._window = float(min(limits.first, limits.in_flight))
        self._active = 0
        self._active_in: Counter[str] = Counter()
        """How many of them by namespace."""
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()
        self._not_before = float("-inf")
        self._paid_until = float("-inf")
        """When all writes so far are within the cap per second."""
        self._halved_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @property
    def window(self) -> int:
        return max(int(self._window), 1)

    @property
    def active(self) -> int:
        return self._active

    async def acquire(self, bucket: str = "") -> float:
        """Wait for a place; returns when the write started, to hand back to `throttled`."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._waiting or not self._open(now) or not self._is_allowed(bucket):
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.push(bucket, turn)
            self._wake()
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
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
            self._wake()

    def succeeded(self) -> None:
        self._window = min(self._window + max(1 / self._window, CLIMB), float(self._limits.in_flight))

    def throttled(self, started: float, retry_after: float) -> None:
        now = asyncio.get_running_loop().time()
        self._not_before = max(self._not_before, now + retry_after)
        if started >= self._halved_at:
            self._halved_at = now
            self._window = max(self._window / 2, 1.0)

    def _open(self, now: float) -> bool:
        return self._active < self.window and now >= self._opens_at

    def _is_allowed(self, bucket: str) -> bool:
        """Return True if the namespace keeps to its share."""
        return self._active_in[bucket] < FREE_SHARE * (self.window - self._active)

    @property
    def _opens_at(self) -> float:
        """Until when nothing may go, however much room there is."""
        rate = self._limits.per_second
        capped = self._paid_until - (self._limits.burst - 1) / rate if rate else self._not_before
        return max(self._not_before, capped)

    def _take(self, bucket: str, now: float) -> None:
        self._active += 1
        self._active_in[bucket] += 1
        if self._limits.per_second:
            self._paid_until = max(self._paid_until, now) + 1 / self._limits.per_second

    def _wake(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        while self._open(now) and (found := self._waiting.peek(lambda one, _: self._is_allowed(one))):
            bucket, turn = found
            self._waiting.take(bucket)
            if not turn.done():
                self._take(bucket, now)
                turn.set_result(None)
        if self._waiting and now < (opens_at := self._opens_at) and self._timer is None:
            self._timer = loop.call_at(opens_at, self._timer_fired)

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake()


FREE_SHARE = 8
"""How many times as many places as are free a namespace may hold."""

CLIMB = 1 / 16
"""How much of a place each success adds at least: from one to 64 in about a thousand writes."""
