"""Connections between two requests: the one used last is used first, and none for longer than a minute."""

import asyncio
import ssl

from argosy.wire.connection import Connection

IDLE_SECONDS = 60.0
"""Less than servers wait: kube-apiserver closes idle connections after 90 seconds."""


class Pool:
    """All connections of one client, in use and idle. Those in use have no limit: watches hold theirs."""

    def __init__(self) -> None:
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self.closed = False

    def take(self, context: ssl.SSLContext | None) -> Connection | None:
        """An idle connection of that identity, if there is one. Those of another are given up."""
        while self._idle:
            connection = self._idle.pop()
            if connection.context is context and not connection.stale():
                self._used.add(connection)
                return connection
            connection.abort()
        return None

    def add(self, connection: Connection) -> None:
        """A new connection, in use."""
        self._used.add(connection)
        if self.closed:
            connection.abort()

    def give(self, connection: Connection) -> None:
        """Nobody uses it any more. It is kept if it is fit for another request."""
        self._used.discard(connection)
        if not connection.finished():
            connection.abort()
            return
        connection.rest()
        self._idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._sweep)

    async def close(self) -> None:
        """End all connections, those in use too, and wait until they are gone."""
        self.closed = True
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        connections = [*self._idle, *self._used]
        self._idle.clear()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.until_lost()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = None
        now = loop.time()
        kept = [
            connection
            for connection in self._idle
            if now - connection.idle_since < IDLE_SECONDS and not connection.stale()
        ]
        for connection in set(self._idle) - set(kept):
            connection.abort()
        self._idle = kept
        if kept:
            self._sweeping = loop.call_at(kept[0].idle_since + IDLE_SECONDS, self._sweep)
