"""What must be remembered of a pool of machines.

A machine is named here before its object is created, by a name that the pool never uses twice. So whatever is
killed, no machine is created twice, and none is forgotten.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from argosy.capacity.zone_rates import ZoneRate


class Slot(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One of the machines that the pool is kept at."""

    index: int
    machine: str = ""
    """Name of the machine; empty while none may be requested yet."""
    requested_at: datetime | None = None
    uid: str = ""
    """Of the machine's object, once it was seen."""
    node: str = ""
    """The node that the machine has become."""
    ready_at: datetime | None = None
    missing_since: datetime | None = None
    """Since when its object is not there any more."""
    short_lives: int = 0
    """Machines in a row that were lost soon after they were ready, or before."""
    not_before: datetime | None = None
    """The next machine is not requested before."""


class Why(StrEnum):
    """Why a machine leaves the pool."""

    LOST = "Lost"
    """It is lost, its end is announced, or somebody deleted it: another one takes its place."""
    SURPLUS = "Surplus"
    """There are to be fewer machines, or none, or it was replaced and its notice was withdrawn."""


class Leaving(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A machine that is not one of the pool's any more, and of which something may be left."""

    machine: str
    why: Why
    uid: str = ""
    node: str = ""
    until: datetime | None = None
    """When it is deleted at the latest, though pods run on it."""
    released: bool = False
    """Whether its object was to be deleted."""


class PoolRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The Record of one pool."""

    version: int = 1
    last_stamp: int = 0
    """The last number by which the name of a machine differs from all others of the pool."""
    slots: tuple[Slot, ...] = ()
    """By index."""
    leaving: tuple[Leaving, ...] = ()
    zone_rates: tuple[ZoneRate, ...] = field(name="zone_rates", default=())
    """How often machines of the pool were preempted, by zone."""

    @property
    def nodes(self) -> frozenset[str]:
        """Return the nodes of all machines."""
        nodes = [slot.node for slot in self.slots] + [each.node for each in self.leaving]
        return frozenset(filter(None, nodes))
