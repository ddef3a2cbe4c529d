"""Counts preemptions by zone, so that zones where machines are often taken count as dearer.

A preemption counts 1 when it happens and half as much after every six hours. One number with its time is kept
for each zone, which is small enough for a Record and survives the machines.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

HALF_LIFE: Final = timedelta(hours=6)
FORGOTTEN_RATE: Final = 0.01
"""A zone with a lower rate is not remembered any more; a single preemption is forgotten after 40 hours."""
MAX_ZONES: Final = 64
"""Zones that are remembered: those with the highest rates."""


class ZoneRate(Struct, frozen=True):
    """The decayed number of preemptions in a zone."""

    zone: str
    rate: float
    at: datetime
    """When the rate had this value."""


def with_preemption(rates: Sequence[ZoneRate], zone: str, now: datetime) -> tuple[ZoneRate, ...]:
    """Return the rates after another preemption in a zone, the highest first."""
    current = decayed_rates(rates, now)
    current[zone] = current.get(zone, 0.0) + 1.0
    highest = sorted(current.items(), key=lambda item: (-item[1], item[0]))[:MAX_ZONES]
    return tuple(ZoneRate(name, round(rate, 4), now) for name, rate in highest)


def decayed_rates(rates: Sequence[ZoneRate], now: datetime) -> dict[str, float]:
    """Return the rates by zone as they are now."""
    decayed = {item.zone: item.rate * 0.5 ** max((now - item.at) / HALF_LIFE, 0.0) for item in rates}
    return {zone: rate for zone, rate in decayed.items() if rate >= FORGOTTEN_RATE}
