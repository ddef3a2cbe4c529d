"""A bound on the bytes of pod bodies that are rendered and not yet answered, over all jobs.

A pod may carry the addresses of thousands of others, and many pods of many jobs wait for their turn to be
sent. Each takes its bytes from one budget before it is rendered and gives them back with the answer. Who must
wait, waits in turn with other namespaces, and no namespace has more than three quarters of the budget, so
that large pods of one tenant do not hold up small ones of another. A body larger than all of it goes alone.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from argosy.engine.round_robin import RoundRobin

MAX_UNSENT_BYTES = 32 * 1024 * 1024


class ByteBudget:
    def __init__(self, total: int = MAX_UNSENT_BYTES) -> None:
        self.total = total
        self.used = 0
        self._of: Counter[str] = Counter()
        self._waiting: RoundRobin[_Waiter] = RoundRobin()

    @asynccontextmanager
    async def hold(self, namespace: str, size: int) -> AsyncIterator[None]:
        """Have so many bytes for the length of the block; wait for them before it."""
        await self._acquire(namespace, size)
        try:
            yield
        finally:
            self._release(namespace, size)

    async def _acquire(self, namespace: str, size: int) -> None:
        if not self._waiting and self._is_allowed(namespace, size) and self._has_capacity(size):
            self._take(namespace, size)
            return
        waiter = _Waiter(size, asyncio.get_running_loop().create_future())
        self._waiting.push(namespace, waiter)
        self._wake()
        try:
            await waiter.turn
        except asyncio.CancelledError:
            if waiter.turn.done() and not waiter.turn.cancelled():
                self._release(namespace, size)
            raise

    def _take(self, namespace: str, size: int) -> None:
        self.used += size
        self._of[namespace] += size

    def _release(self, namespace: str, size: int) -> None:
        self.used -= size
        self._of[namespace] -= size
        if self._of[namespace] <= 0:
            del self._of[namespace]
        self._wake()

    def _is_allowed(self, namespace: str, size: int) -> bool:
        """Return True if the namespace keeps to its share, of which it may always have one body."""
        held = self._of[namespace]
        return held == 0 or held + size <= self.total * 3 // 4

    def _has_capacity(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.total

    def _wake(self) -> None:
        """Let go those whose turn it is. One that is next waits for room, so that large ones get theirs."""
        while found := self._waiting.peek(lambda bucket, one: self._is_allowed(bucket, one.size)):
            namespace, waiter = found
            if waiter.turn.done():
                self._waiting.take(namespace)
                continue
            if not self._has_capacity(waiter.size):
                return
            self._waiting.take(namespace)
            self._take(namespace, waiter.size)
            waiter.turn.set_result(None)


class _Waiter(NamedTuple):
    size: int
    turn: asyncio.Future[None]
