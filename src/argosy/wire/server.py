"""An HTTP/1.1 server: listens, hands requests to one handler, and ends in order.

Whatever a client sends and whatever a handler does, the other clients do not notice. Streams and WebSockets
end when the server does, without the mark of a whole answer; other answers are finished if that takes no
longer than the grace.
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

_LOOK_SECONDS = 0.005


class Server:
    """Made inside a running loop; listens on as many addresses as it is told to."""

    def __init__(
        self,
        handler: Handler,
        *,
        limits: RequestLimits | None = None,
        refusal: Callable[[int, str], Response] = error_response,
        bounds: ConnectionLimits | None = None,
        on_refused: Callable[[RejectReason], None] = lambda _why: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits or RequestLimits()
        self._sessions: set[ServerConnection] = set()
        self._service = Service(handler, refusal, self._limits, self._loop, self._sessions)
        self._places = ConnectionLimiter(bounds, on_refused) if bounds is not None else None
        self._listeners: list[asyncio.Server | Listener] = []
        self._sweeping = self._loop.call_later(self._limits.head_seconds / 4, self._sweep)

    async def listen_tcp(self, host: str | None, port: int, tls: ssl.SSLContext | None = None) -> int:
        """On one address, or on all of the machine's; the port, which is chosen if 0 is given."""
        if self._places is not None:
            sockets = await tcp_sockets(host, port)
            self._listeners += [Listener(each, self._places, self._session, tls) for each in sockets]
            chosen: int = sockets[0].getsockname()[1]
            return chosen
        listener = await self._loop.create_server(
            self._session,
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
        """On a socket file that nobody else may open; one left behind by a process that was killed goes."""
        if self._places is not None:
            self._listeners.append(Listener(_bound(path), self._places, self._session, tls))
            return
        listener = await self._loop.create_unix_server(
            self._session,
            sock=_bound(path),
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=HANDSHAKE_SECONDS if tls else None,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS if tls else None,
        )
        self._listeners.append(listener)

    @property
    def connections(self) -> int:
        """Open connections, with those whose handshake has not ended where they are bounded."""
        return self._places.taken if self._places is not None else len(self._sessions)

    async def close(self, grace: float) -> None:
        """Listen no more; let answers under way be finished for so many seconds; then cut what is left."""
        for listener in self._listeners:
            listener.close()
        for session in list(self._sessions):
            session.end()
        await self._finished(self._loop.time() + grace)
        tasks = [session.task for session in self._sessions if session.task is not None]
        for session in list(self._sessions):
            session.cut()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._listeners:
            await listener.wait_closed()
        self._sweeping.cancel()

    async def _finished(self, until: float) -> None:
        # No transport tells when all is sent, so there is no event to wait for.
        while any(each.unsent for each in self._sessions) and self._loop.time() < until:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)

    def _session(self, when_lost: Callable[[], None] | None = None) -> ServerConnection:
        return ServerConnection(self._service, when_lost)

    def _sweep(self) -> None:
        """Look for clients that took too long: cheaper than a timer for each, and as good."""
        now = self._loop.time()
        for session in [session for session in self._sessions if session.deadline < now]:
            session.expire()
        self._sweeping = self._loop.call_later(min(1.0, self._limits.head_seconds / 4), self._sweep)


def _bound(path: Path) -> socket.socket:
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
