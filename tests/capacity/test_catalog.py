"""Tests for the catalog of prices: what its lines mean, which are left out, and that a large one is fast."""

import pytest

from argosy.capacity.catalog import Prices, accelerator_name, read_catalog

HEADER = "InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice\n"
VM = "n1-standard-4,,,us-central1,us-central1-a,0.20,0.04\n"
T4 = ",T4,1,us-central1,us-central1-a,0.35,0.10\n"

PRICES: dict[str, tuple[str, str, int, Prices | None]] = {
    # The lines, the accelerator and its number, and the price in us-central1-a.
    "a machine alone": (VM, "", 0, Prices(0.20, 0.04)),
    "a machine with accelerators: the sum, each accelerator counts": (
        VM + T4,
        "nvidia-tesla-t4",
        2,
        Prices(0.90, 0.24),
    ),
    "a zone without the accelerator: not offered": (VM, "nvidia-tesla-t4", 1, None),
    "no spot price: unknown": (VM.replace("0.04", ""), "", 0, Prices(0.20, None)),
    "a machine type that includes its accelerators": (
        "n1-standard-4,T4,1,us-central1,us-central1-a,0.7,0.3\n",
        "nvidia-tesla-t4",
        1,
        Prices(0.7, 0.3),
    ),
    "a line without prices: left out": ("n1-standard-4,,,r,us-central1-a,,\n", "", 0, None),
    "a price that is no number: left out": ("n1-standard-4,,,r,us-central1-a,free,nan\n", "", 0, None),
    "a negative price: left out": ("n1-standard-4,,,r,us-central1-a,-1,-1\n", "", 0, None),
    "a line that is too short": ("n1-standard-4\n" + VM, "", 0, Prices(0.20, 0.04)),
    "a line with too many cells": (VM.strip() + ",1,2,3\n", "", 0, Prices(0.20, 0.04)),
}


@pytest.mark.parametrize(("lines", "gpu", "count", "want"), PRICES.values(), ids=PRICES.keys())
def test_what_a_machine_costs(lines: str, gpu: str, count: int, want: Prices | None) -> None:
    found = read_catalog(HEADER + lines).offers("n1-standard-4", gpu, count).get("us-central1-a")
    assert (found is None) == (want is None)
    assert list(found or ()) == pytest.approx(list(want or ()))


def test_columns_are_found_by_name_in_any_order() -> None:
    text = "SpotPrice,extra,AvailabilityZone,InstanceType,Price\n0.04,x,us-central1-a,n1-standard-4,0.2\n"
    assert read_catalog(text).offers("n1-standard-4") == {"us-central1-a": Prices(0.2, 0.04)}


@pytest.mark.parametrize("text", ["", "\n", "no,such,columns\n1,2,3\n", HEADER, "\x00\x01\n\x02"])
def test_a_file_without_offers_is_an_empty_catalog(text: str) -> None:
    assert not read_catalog(text)


def test_a_catalog_of_100000_lines_finds_all_zones_of_an_offer() -> None:
    lines = [
        f"type-{kind},,,region-{zone // 3},region-{zone // 3}-{zone % 3},{kind}.5,{kind}.1"
        for kind in range(1000)
        for zone in range(100)
    ]
    catalog = read_catalog(HEADER + "\n".join(lines))
    assert len(catalog.offers("type-999")) == 100


@pytest.mark.parametrize(("name", "want"), [("nvidia-tesla-t4", "T4"), ("T4", "T4"), ("nvidia-l4", "L4")])
def test_clouds_and_catalogs_name_the_same_accelerator(name: str, want: str) -> None:
    assert accelerator_name(name) == want
