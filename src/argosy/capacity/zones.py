"""Orders the zones in which a machine may be created, and chooses the next one to try."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct, field

from argosy.capacity.catalog import Prices
from argosy.capacity.machine_record import Cooldown, MachineSpec, region_of

SPREAD_TOLERANCE = 0.10
"""Zones whose prices differ by no more than this share count as equally cheap."""


class Strategy(StrEnum):
    """Which zones come first."""

    FAILOVER = "FAILOVER"
    """The first choice, after a loss the lost machine's zone; then its region by price; then others by price.
    """
    EAGER_NEXT_REGION = "EAGER_NEXT_REGION"
    """The same, but after a loss the zones outside the lost region first."""
    CHEAPEST = "CHEAPEST"
    """By price, raised by the rate of preemptions."""


class ZonePolicy(Struct, frozen=True):
    """What the choice of a zone depends on besides the specification of the machine."""

    strategy: Strategy = Strategy.FAILOVER
    lost_zone: str = ""
    """Where the machine was that this one replaces."""
    used: Mapping[str, int] = field(default_factory=dict)
    """Machines of the same job by zone."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Decayed rates of preemptions by zone."""
    cooldowns: tuple[Cooldown, ...] = ()
    """Zones and regions that had no capacity for other machines of the job."""


class Candidate(NamedTuple):
    """A zone in the order of preference."""

    zone: str
    tier: int
    """Candidates of a lower tier come first, whatever they cost."""
    price: float | None
    group: int = 0
    """Machines of a job are spread over equally cheap candidates of one group."""


def list_zones(spec: MachineSpec, offers: Mapping[str, Prices]) -> tuple[str, ...]:
    """Return the zones where the machine may be: the first choice, and the fallback zones."""
    if spec.fallback_zones is not None:
        others: Iterable[str] = spec.fallback_zones
    else:
        others = sorted(zone for zone in offers if region_of(zone) == region_of(spec.zone))
    return tuple(dict.fromkeys([spec.zone, *others]))


def order_zones(
    spec: MachineSpec, policy: ZonePolicy, offers: Mapping[str, Prices], *, spot: bool
) -> tuple[Candidate, ...]:
    """Return all zones where the machine may be, in the order of preference."""
    zones = list_zones(spec, offers)
    first = policy.lost_zone if policy.lost_zone in zones else spec.zone

    def tier(zone: str) -> int:
        if policy.strategy is Strategy.CHEAPEST:
            return 0
        is_near = region_of(zone) == region_of(first)
        if policy.strategy is Strategy.EAGER_NEXT_REGION and policy.lost_zone:
            return 1 if is_near else 0
        return 0 if zone == first else 1 if is_near else 2

    def price(zone: str) -> float | None:
        list_price = offers[zone].price(spot=spot) if zone in offers else None
        if list_price is None or policy.strategy is not Strategy.CHEAPEST:
            return list_price
        return list_price * (1 + policy.rates.get(zone, 0.0))

    def group(tier: int) -> int:
        return tier if policy.lost_zone or tier > 1 else 0

    candidates = [Candidate(zone, tier(zone), price(zone), group(tier(zone))) for zone in zones]
    return tuple(sorted(candidates, key=lambda zone: (zone.tier, zone.price is None, zone.price or 0.0)))


def choose_zone(
    candidates: Sequence[Candidate], cooldowns: Iterable[Cooldown], used: Mapping[str, int], now: datetime
) -> str:
    """Return the zone to try next; empty if all are cooling down.

    Of candidates that are as cheap as the first one, the one with the fewest machines of the job is taken.
    """
    cooling = {cooldown.scope for cooldown in cooldowns if cooldown.until > now}
    available = [
        candidate
        for candidate in candidates
        if cooling.isdisjoint((candidate.zone, region_of(candidate.zone)))
    ]
    if not available:
        return ""
    first = available[0]
    if first.price is None:
        return first.zone
    limit = first.price * (1 + SPREAD_TOLERANCE)
    floor = first.price * (1 - SPREAD_TOLERANCE)
    equal = [
        candidate
        for candidate in available
        if candidate.price is not None
        and floor <= candidate.price <= limit
        and candidate.group == first.group
    ]
    return min(equal, key=lambda candidate: used.get(candidate.zone, 0)).zone
