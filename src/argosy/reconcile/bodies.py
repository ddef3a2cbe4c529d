"""Bounds the memory of pod bodies that are rendered and not yet sent, over all jobs.

A pod may contain the addresses of thousands of others, and many pods of many jobs wait to be sent. Each
acquires its bytes from one budget before it is rendered, and releases them with the response. Namespaces take
turns, and none may use more than three quarters of the budget, so that large pods of one tenant do not block
small ones of another. A body larger than the whole budget is sent alone.
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
        self._used_by: Counter[str] = Counter()
        self._waiting: RoundRobin[_Waiter] = RoundRobin()

    @asynccontextmanager
    async def hold(self, namespace: str, size: int) -> AsyncIterator[None]:
        """Acquire so many bytes for the length of the block."""
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
        self._used_by[namespace] += size

    def _release(self, namespace: str, size: int) -> None:
        self.used -= size
        self._used_by[namespace] -= size
        if self._used_by[namespace] <= 0:
            del self._used_by[namespace]
        self._wake()

    def _is_allowed(self, namespace: str, size: int) -> bool:
        """Return True if the namespace stays within its share; one body is always allowed."""
        held = self._used_by[namespace]
        return held == 0 or held + size <= self.total * 3 // 4

    def _has_capacity(self, size: int) -> bool:
        return self.used == 0 or self.used + size <= self.total

    def _wake(self) -> None:
        """Release waiters in turn; the next one blocks all others until it fits."""
        while head := self._waiting.peek(lambda bucket, waiter: self._is_allowed(bucket, waiter.size)):
            namespace, waiter = head
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
