"""Tests for the order of zones, and for the zone that is asked next."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from argosy.capacity.catalog import Prices
from argosy.capacity.machine_record import Cooldown, MachineSpec
from argosy.capacity.zones import Strategy, ZonePolicy, choose_zone, order_zones

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FAILOVER, EAGER, CHEAPEST = Strategy.FAILOVER, Strategy.EAGER_NEXT_REGION, Strategy.CHEAPEST


def spec(*fallback: str, known: bool = True) -> MachineSpec:
    zones = fallback if known else None
    return MachineSpec(project="p", zone="us-a", machine_type="t", image="i", fallback_zones=zones)


def offers(**prices: float) -> dict[str, Prices]:
    return {zone.replace("_", "-"): Prices(None, price) for zone, price in prices.items()}


ALL = spec("us-b", "us-c", "eu-a", "eu-b")
PRICED = offers(us_a=3, us_b=2, us_c=1, eu_a=0.5, eu_b=0.4)

ORDER: dict[str, tuple[MachineSpec, ZonePolicy, Mapping[str, Prices], str]] = {
    "without prices: as listed": (ALL, ZonePolicy(), {}, "us-a us-b us-c eu-a eu-b"),
    "FAILOVER: first choice, its region by price, others by price": (
        ALL,
        ZonePolicy(),
        PRICED,
        "us-a us-c us-b eu-b eu-a",
    ),
    "FAILOVER after a loss: the lost zone first": (
        ALL,
        ZonePolicy(lost_zone="eu-a"),
        PRICED,
        "eu-a eu-b us-c us-b us-a",
    ),
    "EAGER_NEXT_REGION before a loss: as FAILOVER": (
        ALL,
        ZonePolicy(EAGER),
        PRICED,
        "us-a us-c us-b eu-b eu-a",
    ),
    "EAGER_NEXT_REGION after a loss: other regions first": (
        ALL,
        ZonePolicy(EAGER, lost_zone="us-a"),
        PRICED,
        "eu-b eu-a us-c us-b us-a",
    ),
    "CHEAPEST: by price": (ALL, ZonePolicy(CHEAPEST), PRICED, "eu-b eu-a us-c us-b us-a"),
    "CHEAPEST: preemptions make a zone dearer": (
        ALL,
        ZonePolicy(CHEAPEST, rates={"eu-b": 9.0}),
        PRICED,
        "eu-a us-c us-b us-a eu-b",
    ),
    "an unknown price comes last": (
        ALL,
        ZonePolicy(CHEAPEST),
        offers(us_c=1, us_b=2),
        "us-c us-b us-a eu-a eu-b",
    ),
    "no fallback zones: the first choice only": (spec(), ZonePolicy(), PRICED, "us-a"),
    "fallback zones unsaid: those of the region that are offered": (
        spec(known=False),
        ZonePolicy(),
        PRICED,
        "us-a us-c us-b",
    ),
    "a zone listed twice: once": (spec("us-a", "us-b", "us-b"), ZonePolicy(), {}, "us-a us-b"),
}


@pytest.mark.parametrize(("wanted", "policy", "prices", "want"), ORDER.values(), ids=ORDER.keys())
def test_the_order_of_zones(
    wanted: MachineSpec, policy: ZonePolicy, prices: Mapping[str, Prices], want: str
) -> None:
    candidates = order_zones(wanted, policy, prices, spot=True)
    assert " ".join(each.zone for each in candidates) == want


def cooldown(scope: str, seconds: float = 60.0) -> Cooldown:
    return Cooldown(scope, NOW + timedelta(seconds=seconds))


EQUAL = offers(us_a=1.0, us_b=1.05, us_c=1.5, eu_a=1.0)

CHOICE: dict[str, tuple[ZonePolicy, tuple[Cooldown, ...], Mapping[str, int], str]] = {
    "the first": (ZonePolicy(), (), {}, "us-a"),
    "zone in its cooldown: left out": (ZonePolicy(), (cooldown("us-a"),), {}, "us-b"),
    "zone whose cooldown is over: tried again": (ZonePolicy(), (cooldown("us-a", -1),), {}, "us-a"),
    "region in its cooldown: its zones are left out": (ZonePolicy(), (cooldown("us"),), {}, "eu-a"),
    "all zones in a cooldown: none": (ZonePolicy(), (cooldown("us"), cooldown("eu")), {}, ""),
    "equally cheap zones: the one with the fewest machines": (ZonePolicy(), (), {"us-a": 1}, "us-b"),
    "a zone that is more than 10 % dearer is not equal": (ZonePolicy(), (), {"us-a": 2, "us-b": 2}, "us-a"),
    "machines are not spread over regions before a loss": (ZonePolicy(), (), {"us-a": 1, "us-b": 1}, "us-a"),
    "after a loss the lost zone comes first": (ZonePolicy(lost_zone="us-a"), (), {"us-a": 1}, "us-a"),
}


@pytest.mark.parametrize(("policy", "cooldowns", "used", "want"), CHOICE.values(), ids=CHOICE.keys())
def test_which_zone_is_asked_next(
    policy: ZonePolicy, cooldowns: tuple[Cooldown, ...], used: Mapping[str, int], want: str
) -> None:
    candidates = order_zones(ALL, policy, EQUAL, spot=True)
    assert choose_zone(candidates, cooldowns, used, NOW) == want
