"""Accepts connections within `ConnectionLimits`, and limits the rate of TLS handshakes.

asyncio's own server starts every handshake at once: a thousand clients that connect together would block the
event loop for a second. Here a handshake starts when the client has sent something, and only a few start in
each interval. Connections that wait for theirs cost no more than a socket.
"""

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from argosy.wire.connection_limits import ConnectionLimiter, ConnectionSlot, RejectReason

log = logging.getLogger(__name__)

BACKLOG = 1024
HANDSHAKE_SECONDS = 10.0
SHUTDOWN_SECONDS = 2.0
_MAX_ACCEPTS = 64  # connections accepted before other callbacks of the loop run
_RETRY_SECONDS = 1.0  # after a failure to accept, such as too many open files


class _PendingConnection:
    """A connection that was accepted and whose protocol has not started yet."""

    __slots__ = ("slot", "socket", "task", "timer")

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.slot: ConnectionSlot | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class BoundedProtocol(asyncio.BaseProtocol):
    """The protocol that a listener creates for each connection."""

    def abort(self) -> None:
        """Close the connection now."""
        raise NotImplementedError


class Listener:
    """Listens on one socket. `make_protocol` gets a callback for the protocol to call when it is lost."""

    def __init__(
        self,
        listening: socket.socket,
        limiter: ConnectionLimiter,
        make_protocol: Callable[[Callable[[], None]], BoundedProtocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._limiter = limiter
        self._make_protocol = make_protocol
        self._tls = tls
        self._pending: set[_PendingConnection] = set()
        self._ready: deque[_PendingConnection] = deque()
        self._handshakes_left = limiter.limits.handshakes
        """Handshakes that may still start in this interval."""
        self._interval_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None
        self._loop.add_reader(listening, self._accept)

    @property
    def name(self) -> object:
        """The address of the listening socket."""
        return self._socket.getsockname()

    def close(self) -> None:
        """Accept no more connections, and close those whose protocol has not started yet."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for timer in (self._interval_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()
        for pending in list(self._pending):
            self._drop(pending)

    async def wait_closed(self) -> None:
        """Wait until cancelled handshakes have ended."""
        tasks = [pending.task for pending in self._pending if pending.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_MAX_ACCEPTS):
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("cannot accept connections: %s", error)
                self._loop.remove_reader(self._socket)
                self._retry_timer = self._loop.call_later(_RETRY_SECONDS, self._accept_again)
                return
            accepted.setblocking(False)
            self._admit(accepted, address[0] if isinstance(address, tuple) else "")

    def _accept_again(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _admit(self, accepted: socket.socket, address: str) -> None:
        pending = _PendingConnection(accepted)
        pending.slot = self._limiter.acquire(address, lambda: self._drop(pending))
        if pending.slot is None:
            accepted.close()
            return
        self._pending.add(pending)
        if self._tls is None:
            self._start(pending)
            return
        self._loop.add_reader(accepted, self._on_first_bytes, pending)
        seconds = self._limiter.limits.hello_seconds
        pending.timer = self._loop.call_later(seconds, self._drop, pending, "hello-timeout")

    def _on_first_bytes(self, pending: _PendingConnection) -> None:
        """Queue the handshake of a client that has sent something."""
        self._loop.remove_reader(pending.socket)
        self._ready.append(pending)
        self._start_handshakes()

    def _start_handshakes(self) -> None:
        """Start as many handshakes as this interval has left, and schedule the next interval if any."""
        while self._ready and self._handshakes_left:
            pending = self._ready.popleft()
            if pending in self._pending:
                self._handshakes_left -= 1
                self._start(pending)
        limits = self._limiter.limits
        if self._interval_timer is None and self._handshakes_left < limits.handshakes:
            self._interval_timer = self._loop.call_later(limits.interval_seconds, self._next_interval)

    def _next_interval(self) -> None:
        self._interval_timer = None
        self._handshakes_left = self._limiter.limits.handshakes
        self._start_handshakes()

    def _start(self, pending: _PendingConnection) -> None:
        if pending.timer is not None:
            pending.timer.cancel()
        pending.task = self._loop.create_task(self._connect(pending))

    async def _connect(self, pending: _PendingConnection) -> None:
        slot = pending.slot
        assert slot is not None
        protocol = self._make_protocol(lambda: self._limiter.release(slot))
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                pending.socket,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS if self._tls else None,
            )
            slot.drop = protocol.abort
        except OSError:  # TLS errors and timeouts of the handshake are OSErrors too
            self._limiter.release(slot, "handshake")
        except asyncio.CancelledError:
            self._limiter.release(slot)
        finally:
            self._pending.discard(pending)

    def _drop(self, pending: _PendingConnection, reason: RejectReason | None = None) -> None:
        if pending.task is not None:
            pending.task.cancel()
            return
        self._pending.discard(pending)
        assert pending.slot is not None
        self._limiter.release(pending.slot, reason)
        if pending.timer is not None:
            pending.timer.cancel()
        with suppress(OSError):
            self._loop.remove_reader(pending.socket)
        pending.socket.close()


async def tcp_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Return listening sockets on the addresses of a host, or on all addresses of the machine."""
    loop = asyncio.get_running_loop()
    resolved = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(resolved):
            if (listening := _listen(family, address)) is not None:
                sockets.append(listening)
    except OSError:
        for listening in sockets:
            listening.close()
        raise
    return sockets


def _listen(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket | None:
    try:
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # the kernel does not support this address family
        return None
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
