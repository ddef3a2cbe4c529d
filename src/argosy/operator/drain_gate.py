"""Admits reconciles while this replica leads, and waits for running ones when it stops leading."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from argosy.engine.controller import Requeue
from argosy.engine.objects import Key

CLOSED_REQUEUE_SECONDS = 1.0

Reconcile = Callable[[Key], Awaitable[Requeue | None]]


class DrainGate:
    """Admits all reconciles or none, and counts those that are running."""

    def __init__(self) -> None:
        self._open = False
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        self._open = True

    async def drain(self, seconds: float) -> None:
        """Admit no more reconciles, and wait for running ones for at most this time."""
        self._open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def guard(self, reconcile: Reconcile) -> Reconcile:
        """Return a function that reconciles while the gate is open, and requeues the key otherwise."""

        async def guarded(key: Key) -> Requeue | None:
            if not self._open:
                return Requeue(CLOSED_REQUEUE_SECONDS)
            self._running += 1
            self._idle.clear()
            try:
                return await reconcile(key)
            finally:
                self._running -= 1
                if not self._running:
                    self._idle.set()

        return guarded
