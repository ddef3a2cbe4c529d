"""Accepts connections within the bounds of `Places`, and begins TLS handshakes at a pace.

asyncio's own server accepts all that comes and begins each handshake at once: a thousand clients that connect
together would keep the event loop from everything else for a second. Here a handshake begins when the client
has sent something, and only a few in each turn; the others wait with no more than a socket here.
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
_ACCEPTS = 64  # connections that are accepted before others get their turn
_PAUSE_SECONDS = 1.0  # after a failure to accept, such as too many open files


class _Arrival:
    """A connection from when it was accepted until its session begins."""

    __slots__ = ("place", "socket", "task", "timer")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.place: ConnectionSlot | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None


class BoundedProtocol(asyncio.BaseProtocol):
    """What a listener makes for each connection."""

    def cut(self) -> None:
        """End the connection now."""
        raise NotImplementedError


class Listener:
    """Listens on one socket until closed; `make` is called with what the protocol calls when it ends."""

    def __init__(
        self,
        listening: socket.socket,
        places: ConnectionLimiter,
        make: Callable[[Callable[[], None]], BoundedProtocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._places = places
        self._make = make
        self._tls = tls
        self._arrivals: set[_Arrival] = set()
        self._ready: deque[_Arrival] = deque()
        self._left = places.limits.handshakes
        """Handshakes that may still begin in this turn."""
        self._turn: asyncio.TimerHandle | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._loop.add_reader(listening, self._accept)

    @property
    def name(self) -> object:
        """The address that is listened on."""
        return self._socket.getsockname()

    def close(self) -> None:
        """Accept no more, and give up connections that have not been handed over yet."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for timer in (self._turn, self._retry):
            if timer is not None:
                timer.cancel()
        for arrival in list(self._arrivals):
            self._drop(arrival)

    async def wait_closed(self) -> None:
        """Wait until handshakes that were given up have ended."""
        tasks = [arrival.task for arrival in self._arrivals if arrival.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self) -> None:
        for _ in range(_ACCEPTS):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections cannot be accepted: %s", error)
                self._loop.remove_reader(self._socket)
                self._retry = self._loop.call_later(_PAUSE_SECONDS, self._accept_again)
                return
            connection.setblocking(False)
            self._admit(connection, address[0] if isinstance(address, tuple) else "")

    def _accept_again(self) -> None:
        self._loop.add_reader(self._socket, self._accept)

    def _admit(self, connection: socket.socket, address: str) -> None:
        arrival = _Arrival(connection)
        arrival.place = self._places.take(address, lambda: self._drop(arrival))
        if arrival.place is None:
            connection.close()
            return
        self._arrivals.add(arrival)
        if self._tls is None:
            self._begin(arrival)
            return
        self._loop.add_reader(connection, self._spoke, arrival)
        seconds = self._places.limits.hello_seconds
        arrival.timer = self._loop.call_later(seconds, self._drop, arrival, "hello-timeout")

    def _spoke(self, arrival: _Arrival) -> None:
        """The client has sent something: its handshake begins when it is its turn."""
        self._loop.remove_reader(arrival.socket)
        self._ready.append(arrival)
        self._begin_some()

    def _begin_some(self) -> None:
        """Begin what this turn has left, and see to the next turn if anything was begun."""
        while self._ready and self._left:
            arrival = self._ready.popleft()
            if arrival in self._arrivals:
                self._left -= 1
                self._begin(arrival)
        limits = self._places.limits
        if self._turn is None and self._left < limits.handshakes:
            self._turn = self._loop.call_later(limits.turn_seconds, self._next_turn)

    def _next_turn(self) -> None:
        self._turn = None
        self._left = self._places.limits.handshakes
        self._begin_some()

    def _begin(self, arrival: _Arrival) -> None:
        if arrival.timer is not None:
            arrival.timer.cancel()
        arrival.task = self._loop.create_task(self._connect(arrival))

    async def _connect(self, arrival: _Arrival) -> None:
        place = arrival.place
        assert place is not None
        protocol = self._make(lambda: self._places.leave(place))
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                arrival.socket,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
                ssl_shutdown_timeout=SHUTDOWN_SECONDS if self._tls else None,
            )
            place.drop = protocol.cut
        except OSError:  # also what TLS finds wrong, and a handshake that takes too long
            self._places.leave(place, "handshake")
        except asyncio.CancelledError:
            self._places.leave(place)
        finally:
            self._arrivals.discard(arrival)

    def _drop(self, arrival: _Arrival, why: RejectReason | None = None) -> None:
        if arrival.task is not None:
            arrival.task.cancel()
            return
        self._arrivals.discard(arrival)
        assert arrival.place is not None
        self._places.leave(arrival.place, why)
        if arrival.timer is not None:
            arrival.timer.cancel()
        with suppress(OSError):
            self._loop.remove_reader(arrival.socket)
        arrival.socket.close()


async def tcp_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Listening sockets on one address, or on all of the machine's."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            if (listening := _listening(family, address)) is not None:
                sockets.append(listening)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def _listening(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket | None:
    try:
        listening = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # an address family that this kernel does not have
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
