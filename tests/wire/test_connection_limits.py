"""Which connections are accepted, rejected or displaced."""

from dataclasses import dataclass, field

import pytest

from argosy.wire.connection_limits import ConnectionLimiter, ConnectionLimits, ConnectionSlot, RejectReason

LIMITS = ConnectionLimits(total=6, per_address=4)


class Connections:
    """A limiter, and which of its connections were rejected or dropped."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.rejected: list[RejectReason] = []
        self.dropped: list[str] = []
        self.limiter = ConnectionLimiter(limits, self.rejected.append)
        self.held: list[ConnectionSlot] = []

    def connect(self, address: str) -> bool:
        number = sum(slot.address == address for slot in self.held)
        slot = self.limiter.acquire(address, lambda: self.dropped.append(f"{address}-{number}"))
        if slot is not None:
            self.held.append(slot)
        return slot is not None


@dataclass(frozen=True)
class Case:
    arrivals: str
    """One letter for each connection: its address, or `-` for a unix socket."""
    want: list[bool]
    """Whether the last arrivals are accepted."""
    want_rejected: list[str] = field(default_factory=list)
    want_dropped: list[str] = field(default_factory=list)


CASES = {
    "address with as many connections as allowed: the next is rejected": Case(
        "aaaaa", [True, False], ["address"]
    ),
    "one address has all it may have: another address is accepted": Case("aaaab", [True]),
    "total reached, address with few connections: displaces the oldest of the address with most": Case(
        "aaaabbc", [True], ["displaced"], ["a-0"]
    ),
    "total reached, all addresses have as many: rejected": Case("aabbcca", [False], ["total"]),
    "Unix socket: limited by the total only": Case("-------", [True, False], ["total"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_connections_are_accepted_within_limits(case: Case) -> None:
    connections = Connections()
    accepted = [connections.connect("" if letter == "-" else letter) for letter in case.arrivals]
    assert accepted[-len(case.want) :] == case.want
    assert (connections.rejected, connections.dropped) == (case.want_rejected, case.want_dropped)
    assert connections.limiter.in_use <= LIMITS.total


def test_a_slot_released_twice_is_counted_once() -> None:
    connections = Connections()
    for _ in range(4):
        connections.connect("a")
    first = connections.held[0]
    connections.limiter.release(first)
    connections.limiter.release(first, "handshake")
    assert (connections.limiter.in_use, connections.rejected) == (3, [])
    assert connections.connect("a")
    assert not connections.connect("a")


def test_addresses_without_connections_use_no_memory() -> None:
    connections = Connections()
    for number in range(100):
        connections.connect(f"10.0.0.{number}")
        connections.limiter.release(connections.held.pop())
    assert (connections.limiter.in_use, connections.limiter._by_address) == (0, {})
