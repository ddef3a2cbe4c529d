"""Tests for rates of preemptions by zone."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from argosy.capacity.zone_rates import MAX_ZONES, ZoneRate, decayed_rates, with_preemption

NOW = datetime(2026, 1, 1, tzinfo=UTC)

HISTORIES: dict[str, tuple[Sequence[tuple[str, float]], dict[str, float]]] = {
    "no preemption: no rate": ((), {}),
    "one just now: 1": ((("a", 0),), {"a": 1.0}),
    "one six hours ago: a half": ((("a", 6),), {"a": 0.5}),
    "one twelve hours ago and one just now: the sum": ((("a", 12), ("a", 0)), {"a": 1.25}),
    "two zones: each by itself": ((("a", 6), ("b", 0), ("b", 0)), {"a": 0.5, "b": 2.0}),
    "one two days ago: forgotten": ((("a", 48), ("b", 0)), {"b": 1.0}),
    "one that is recorded as of later, by a clock ahead: does not grow": ((("a", -1),), {"a": 1.0}),
}


@pytest.mark.parametrize(("hours_ago", "want"), HISTORIES.values(), ids=HISTORIES.keys())
def test_rates_of_zones(hours_ago: Sequence[tuple[str, float]], want: dict[str, float]) -> None:
    rates: tuple[ZoneRate, ...] = ()
    for zone, hours in hours_ago:
        rates = with_preemption(rates, zone, NOW - timedelta(hours=hours))
    stored = msgspec.json.decode(msgspec.json.encode(rates), type=tuple[ZoneRate, ...])
    assert decayed_rates(stored, NOW) == pytest.approx(want)


def test_only_the_zones_with_the_highest_rates_are_remembered() -> None:
    rates: tuple[ZoneRate, ...] = ()
    for number in range(MAX_ZONES + 20):
        rates = with_preemption(rates, f"zone-{number}", NOW + timedelta(minutes=number))
    assert len(rates) == MAX_ZONES
    assert "zone-0" not in {item.zone for item in rates}
    assert rates[0].zone == f"zone-{MAX_ZONES + 19}"
