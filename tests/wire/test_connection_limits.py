"""Which connections get a place, which are refused, and which have to make room."""

from dataclasses import dataclass, field

import pytest

from argosy.wire.connection_limits import ConnectionLimiter, ConnectionLimits, ConnectionSlot, RejectReason

LIMITS = ConnectionLimits(total=6, per_address=4)


class Hall:
    """Places whose connections note when they are dropped."""

    def __init__(self, limits: ConnectionLimits = LIMITS) -> None:
        self.refused: list[RejectReason] = []
        self.dropped: list[str] = []
        self.places = ConnectionLimiter(limits, self.refused.append)
        self.held: list[ConnectionSlot] = []

    def connect(self, address: str) -> bool:
        number = sum(place.address == address for place in self.held)
        place = self.places.take(address, lambda: self.dropped.append(f"{address}-{number}"))
        if place is not None:
            self.held.append(place)
        return place is not None


@dataclass(frozen=True)
class Case:
    arrivals: str
    """One letter for each connection: its address, or `-` for a unix socket."""
    want: list[bool]
    """Whether the last arrivals get a place."""
    want_refused: list[str] = field(default_factory=list)
    want_dropped: list[str] = field(default_factory=list)


CASES = {
    "one address has its places and no more": Case("aaaaa", [True, False], ["address"]),
    "another address is served while one has all of its own": Case("aaaab", [True]),
    "an address with few connections gets the place of the oldest of the address with most": Case(
        "aaaabbc", [True], ["displaced"], ["a-0"]
    ),
    "nobody makes room for an address that would then have as many": Case("aabbcca", [False], ["total"]),
    "connections of a unix socket are bounded in all only": Case("-------", [True, False], ["total"]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_connections_get_places(case: Case) -> None:
    hall = Hall()
    taken = [hall.connect("" if letter == "-" else letter) for letter in case.arrivals]
    assert taken[-len(case.want) :] == case.want
    assert (hall.refused, hall.dropped) == (case.want_refused, case.want_dropped)
    assert hall.places.taken <= LIMITS.total


def test_a_place_given_back_twice_is_given_back_once() -> None:
    hall = Hall()
    for _ in range(4):
        hall.connect("a")
    first = hall.held[0]
    hall.places.leave(first)
    hall.places.leave(first, "handshake")
    assert (hall.places.taken, hall.refused) == (3, [])
    assert hall.connect("a")
    assert not hall.connect("a")


def test_addresses_without_connections_are_forgotten() -> None:
    hall = Hall()
    for number in range(100):
        hall.connect(f"10.0.0.{number}")
        hall.places.leave(hall.held.pop())
    assert (hall.places.taken, hall.places._by_address) == (0, {})
