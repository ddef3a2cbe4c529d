"""Bounds on the connections of a server: so many in all, and so many from one address.

When all places are taken, a newcomer gets the place of the oldest connection of the address that has the
most, provided that this address would not have fewer than the newcomer's then. So one address, or a few,
cannot keep the others out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

RejectReason: TypeAlias = Literal["total", "address", "displaced", "hello-timeout", "handshake"]
"""Why a connection was refused or given up.

total: all places are taken. address: its address has too many. displaced: it made room for another address.
hello-timeout: the client did not start the TLS handshake. handshake: TLS could not be agreed upon.
"""


@dataclass(frozen=True)
class ConnectionLimits:
    total: int
    per_address: int
    """Pods may share one address where nodes rewrite it (SNAT): it must suit the pods of a node."""
    handshakes: int = 8
    """TLS handshakes that begin in one turn."""
    turn_seconds: float = 0.02
    """Time from one turn to the next. A handshake keeps the event loop busy for about a millisecond."""
    hello_seconds: float = 10.0
    """Time for a client to begin its handshake."""


class ConnectionSlot:
    """The place of one connection; `drop` ends that connection."""

    __slots__ = ("address", "drop")

    def __init__(self, address: str, drop: Callable[[], None]) -> None:
        self.address = address
        self.drop = drop


class ConnectionLimiter:
    """Who has which of the places. Connections without an address (unix sockets) count in all only."""

    def __init__(self, limits: ConnectionLimits, on_refused: Callable[[RejectReason], None]) -> None:
        self.limits = limits
        self.taken = 0
        self._on_refused = on_refused
        self._by_address: dict[str, dict[ConnectionSlot, None]] = {}

    def take(self, address: str, drop: Callable[[], None]) -> ConnectionSlot | None:
        """Return a place for a new connection, or None if it is to be closed."""
        held = len(self._by_address.get(address, ()))
        if address and held >= self.limits.per_address:
            self._on_refused("address")
            return None
        if self.taken >= self.limits.total and not self._make_room(held):
            self._on_refused("total")
            return None
        place = ConnectionSlot(address, drop)
        self._by_address.setdefault(address, {})[place] = None
        self.taken += 1
        return place

    def leave(self, place: ConnectionSlot, why: RejectReason | None = None) -> None:
        """Give a place back. One that was given back before changes nothing."""
        places = self._by_address.get(place.address, {})
        if place not in places:
            return
        del places[place]
        if not places:
            del self._by_address[place.address]
        self.taken -= 1
        if why is not None:
            self._on_refused(why)

    def _make_room(self, held: int) -> bool:
        places = max(self._by_address.values(), key=len)
        if len(places) <= held + 1:
            return False
        oldest = next(iter(places))
        self.leave(oldest, "displaced")
        oldest.drop()
        return True
