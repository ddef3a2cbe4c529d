"""Limits the connections of a server, in total and for each client address.

When the total is reached, a new connection displaces the oldest one of the address with the most connections,
unless that address would then have fewer than the new one's. So a few addresses cannot lock out the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

RejectReason: TypeAlias = Literal["total", "address", "displaced", "hello-timeout", "handshake"]
"""Why a connection was rejected or closed.

total: the server has too many. address: the client's address has too many. displaced: it was closed in favour
of another address. hello-timeout: the client did not start the TLS handshake. handshake: that failed.
"""


@dataclass(frozen=True)
class ConnectionLimits:
    total: int
    per_address: int
    """Large enough for all pods of a node, which share one address where nodes rewrite it (SNAT)."""
    handshakes: int = 8
    """TLS handshakes that may start in one interval."""
    interval_seconds: float = 0.02
    """Length of that interval. A handshake keeps the event loop busy for about a millisecond."""
    hello_seconds: float = 10.0
    """Time for a client to start its handshake."""


class ConnectionSlot:
    """One connection that counts; `drop` closes it."""

    __slots__ = ("address", "drop")

    def __init__(self, address: str, drop: Callable[[], None]) -> None:
        self.address = address
        self.drop = drop


class ConnectionLimiter:
    """Counts connections. Those without an address (Unix sockets) count towards the total only."""

    def __init__(self, limits: ConnectionLimits, on_rejected: Callable[[RejectReason], None]) -> None:
        self.limits = limits
        self.in_use = 0
        self._on_rejected = on_rejected
        self._by_address: dict[str, dict[ConnectionSlot, None]] = {}

    def acquire(self, address: str, drop: Callable[[], None]) -> ConnectionSlot | None:
        """Return a slot for a new connection, or None if the connection must be closed."""
        held = len(self._by_address.get(address, ()))
        if address and held >= self.limits.per_address:
            self._on_rejected("address")
            return None
        if self.in_use >= self.limits.total and not self._displace_oldest(held):
            self._on_rejected("total")
            return None
        slot = ConnectionSlot(address, drop)
        self._by_address.setdefault(address, {})[slot] = None
        self.in_use += 1
        return slot

    def release(self, slot: ConnectionSlot, reason: RejectReason | None = None) -> None:
        """Free a slot; does nothing if it is free already."""
        slots = self._by_address.get(slot.address, {})
        if slot not in slots:
            return
        del slots[slot]
        if not slots:
            del self._by_address[slot.address]
        self.in_use -= 1
        if reason is not None:
            self._on_rejected(reason)

    def _displace_oldest(self, held: int) -> bool:
        slots = max(self._by_address.values(), key=len)
        if len(slots) <= held + 1:
            return False
        oldest = next(iter(slots))
        self.release(oldest, "displaced")
        oldest.drop()
        return True
