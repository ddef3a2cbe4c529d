"""Pools idle connections: the last used is reused first, and idle ones are closed after a minute."""

import asyncio
import ssl

from argosy.wire.connection import Connection

IDLE_SECONDS = 60.0
"""Shorter than servers keep them: kube-apiserver closes idle connections after 90 seconds."""


class Pool:
    """All connections of one client, in use and idle. Their number is not limited: every watch holds one."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self.closed = False

    def acquire(self, context: ssl.SSLContext | None) -> Connection | None:
        """Return an idle connection with this TLS context, if there is one, and close those with another."""
        while self._idle:
            connection = self._idle.pop()
            if connection.context is context and not connection.is_stale():
                self._used.add(connection)
                return connection
            connection.abort()
        return None

    def add(self, connection: Connection) -> None:
        """Add a new connection, which is in use."""
        self._used.add(connection)
        if self.closed:
            connection.abort()

    def release(self, connection: Connection) -> None:
        """Take back a connection after its request: keep it if it can carry another, else close it."""
        self._used.discard(connection)
        if not connection.is_reusable():
            connection.abort()
            return
        connection.mark_idle()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    async def close(self) -> None:
        """Close all connections, also those in use, and wait until they are closed."""
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        connections = [*self._idle, *self._used]
        self._idle.clear()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.wait_closed()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = None
        now = loop.time()
        kept = [
            connection
            for connection in self._idle
            if now - connection.idle_since < IDLE_SECONDS and not connection.is_stale()
        ]
        for connection in set(self._idle) - set(kept):
            connection.abort()
        self._idle = kept
        if kept:
            self._sweeping = loop.call_at(kept[0].idle_since + IDLE_SECONDS, self._sweep)
