"""An HTTP/1.1 server: listens, calls one handler for every request, and shuts down gracefully.

Invalid requests and failing handlers do not affect other clients. When the server closes, streams and
WebSockets are cut without the end of a complete response; other responses may be finished within the grace
period.
"""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from argosy.wire.connection_limits import ConnectionLimiter, ConnectionLimits, RejectReason
from argosy.wire.listener import BACKLOG, HANDSHAKE_SECONDS, SHUTDOWN_SECONDS, Listener, tcp_sockets
from argosy.wire.messages import Handler, Response, error_response
from argosy.wire.request_head import RequestLimits
from argosy.wire.server_connection import ServerConnection, Service

_POLL_SECONDS = 0.005


class Server:
    """A server with any number of listening sockets. It has to be created inside a running loop.

    `error_response` renders the response to an invalid request. Without `connection_limits` all connections
    are accepted; `on_rejected` is called for each one that exceeds them.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        request_limits: RequestLimits | None = None,
        error_response: Callable[[int, str], Response] = error_response,
        connection_limits: ConnectionLimits | None = None,
        on_rejected: Callable[[RejectReason], None] = lambda _reason: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = request_limits or RequestLimits()
        self._connections: set[ServerConnection] = set()
        self._service = Service(handler, error_response, self._limits, self._loop, self._connections)
        self._limiter = None
        if connection_limits is not None:
            self._limiter = ConnectionLimiter(connection_limits, on_rejected)
        self._listeners: list[asyncio.Server | Listener] = []
        self._sweep_timer = self._loop.call_later(self._limits.head_seconds / 4, self._sweep)

    async def listen_tcp(self, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on one host, or on all addresses; return the port, which is chosen if it is 0."""
        if self._limiter is not None:
            sockets = await tcp_sockets(host, port)
            self._listeners += [Listener(opened, self._limiter, self._connection, tls) for opened in sockets]
            chosen: int = sockets[0].getsockname()[1]
            return chosen
        listener = await self._loop.create_server(
            self._connection,
            host,
            port,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if tls else None,
        )
        self._listeners.append(listener)
        bound: int = listener.sockets[0].getsockname()[1]
        return bound

    async def listen_unix(self, path: Path, tls: ssl.SSLContext | None = None) -> None:
        """Listen on a socket file that only this user may open, replacing one that a killed process left."""
        if self._limiter is not None:
            self._listeners.append(Listener(_unix_socket(path), self._limiter, self._connection, tls))
            return
        listener = await self._loop.create_unix_server(
            self._connection,
            sock=_unix_socket(path),
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if tls else None,
        )
        self._listeners.append(listener)

    @property
    def connections(self) -> int:
        """Number of open connections; with connection limits, those in their handshake count too."""
        return self._limiter.in_use if self._limiter is not None else len(self._connections)

    async def close(self, grace_seconds: float) -> None:
        """Stop listening, let responses in progress finish within the grace period, then abort the rest."""
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            connection.finish()
        await self._wait_sent(self._loop.time() + grace_seconds)
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        for connection in list(self._connections):
            connection.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            await listener.wait_closed()
        self._sweep_timer.cancel()

    async def _wait_sent(self, deadline: float) -> None:
        # Transports do not report that their buffer is empty, so there is no event to wait for.
        while any(connection.has_unsent for connection in self._connections):
            if self._loop.time() >= deadline:
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _connection(self, on_lost: Callable[[], None] | None = None) -> ServerConnection:
        return ServerConnection(self._service, on_lost)

    def _sweep(self) -> None:
        """Expire clients that took too long. One timer for all is cheaper than one for each."""
        now = self._loop.time()
        expired = [connection for connection in self._connections if connection.deadline < now]
        for connection in expired:
            connection.expire()
        self._sweep_timer = self._loop.call_later(min(1.0, self._limits.head_seconds / 4), self._sweep)


def _unix_socket(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener
