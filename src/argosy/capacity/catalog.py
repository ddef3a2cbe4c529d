"""A table of offers with their prices, read from a CSV file by the names of its columns.

The form is that of the catalogs which SkyPilot publishes for each cloud: one line for each machine type and
zone, and for GCE one line for each accelerator and zone, with the price of one accelerator and no machine
type. Lines that do not make sense are left out: a catalog never fails a job.
"""

import csv
import io
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

MAX_OFFERS = 1_000_000
"""Lines of a catalog that are read."""

COLUMNS = (
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "Region",
    "AvailabilityZone",
    "Price",
    "SpotPrice",
)


class Prices(NamedTuple):
    """What an offer costs in $ per hour. None: not offered that way, or not known."""

    on_demand: float | None
    spot: float | None

    def price(self, *, spot: bool) -> float | None:
        return self.spot if spot else self.on_demand


class Catalog:
    """Offers by machine type and by accelerator, each by zone."""

    def __init__(
        self,
        machines: Mapping[str, Mapping[str, Prices]] = {},
        accelerators: Mapping[str, Mapping[str, Prices]] = {},
        bundled: Mapping[str, Mapping[str, Prices]] = {},
    ) -> None:
        self._machines = machines
        self._accelerators = accelerators
        self._bundled = bundled
        """Machine types whose price includes accelerators, under `TYPE/ACCELERATOR`."""

    def __bool__(self) -> bool:
        return bool(self._machines)

    def offers(self, machine_type: str, accelerator: str = "", count: int = 0) -> Mapping[str, Prices]:
        """Return the price of the machine with its accelerators by zone, of zones that offer both."""
        if not accelerator:
            return self._machines.get(machine_type, {})
        name = accelerator_name(accelerator)
        if together := self._bundled.get(f"{machine_type}/{name}"):
            return together
        machines = self._machines.get(machine_type, {})
        accelerators = self._accelerators.get(name, {})
        return {
            zone: Prices(
                _total(prices.on_demand, accelerators[zone].on_demand, count),
                _total(prices.spot, accelerators[zone].spot, count),
            )
            for zone, prices in machines.items()
            if zone in accelerators
        }


EMPTY = Catalog()


def read_catalog(text: str) -> Catalog:
    """Return the catalog in the text of a CSV file; lines with mistakes are left out."""
    return _index(_rows(text))


def _index(rows: Iterable["_Row"]) -> Catalog:
    machines: dict[str, dict[str, Prices]] = defaultdict(dict)
    accelerators: dict[str, dict[str, Prices]] = defaultdict(dict)
    bundled: dict[str, dict[str, Prices]] = defaultdict(dict)
    for row in rows:
        if row.type and row.accelerator:
            bundled[f"{row.type}/{row.accelerator}"][row.zone] = row.prices
        elif row.type:
            machines[row.type][row.zone] = row.prices
        elif row.accelerators in (0, 1) or row.zone not in accelerators[row.accelerator]:
            accelerators[row.accelerator][row.zone] = row.prices
    return Catalog(dict(machines), dict(accelerators), dict(bundled))


class _Row(NamedTuple):
    type: str
    accelerator: str
    accelerators: float
    zone: str
    prices: Prices


def _rows(text: str) -> Iterable[_Row]:
    reader = csv.reader(io.StringIO(text))
    header = [name.strip() for name in next(reader, [])]
    places = [header.index(name) if name in header else len(header) for name in COLUMNS]
    for number, cells in enumerate(reader):
        if number == MAX_OFFERS:
            return
        padded = [*cells[: len(header)], *[""] * (len(header) - len(cells)), ""]
        kind, accelerator, count, region, zone, price, spot = (padded[place].strip() for place in places)
        prices = Prices(_number(price), _number(spot))
        if (kind or accelerator) and (zone or region) and prices != (None, None):
            name = accelerator_name(accelerator) if accelerator else ""
            yield _Row(kind, name, _number(count) or 0, zone or region, prices)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _total(machine: float | None, accelerator: float | None, count: int) -> float | None:
    return None if machine is None or accelerator is None else machine + accelerator * count


def accelerator_name(name: str) -> str:
    """Return the name by which accelerators are compared: `T4` for both `nvidia-tesla-t4` and `T4`."""
    short = name.lower().removeprefix("nvidia-").removeprefix("tesla-")
    return short.upper()
