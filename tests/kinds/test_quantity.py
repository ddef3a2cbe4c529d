from decimal import Decimal

import pytest

from argosy.kinds.quantity import format_duration, parse_duration, parse_quantity

QUANTITIES = {
    "1": Decimal(1),
    "500m": Decimal("0.5"),
    "2Gi": Decimal(2 * 1024**3),
    "1.5k": Decimal(1500),
    "1e3": Decimal(1000),
    "12E": Decimal(12) * Decimal(10) ** 18,
    "-1": Decimal(-1),
    ".5": Decimal("0.5"),
    "100u": Decimal("0.0001"),
}


@pytest.mark.parametrize(("text", "want"), QUANTITIES.items())
def test_parse_quantity(text: str, want: Decimal) -> None:
    assert parse_quantity(text) == want


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "1K", "--1", "1e"])
def test_invalid_quantity_raises(text: str) -> None:
    with pytest.raises(ValueError, match="quantity"):
        parse_quantity(text)


DURATIONS = {"90s": 90, "2h": 7200, "1h30m": 5400, "1d": 86400, "500ms": 0.5, "0.5h": 1800, "0s": 0}


@pytest.mark.parametrize(("text", "want"), DURATIONS.items())
def test_parse_duration(text: str, want: float) -> None:
    assert parse_duration(text) == want


@pytest.mark.parametrize("text", ["", "10", "2 h", "h", "-1s", "1y"])
def test_invalid_duration_raises(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


FORMATTED = {
    0.234: "0.2 s",
    45.2: "45 s",
    134: "2 m 14 s",
    3900: "1 h 5 m",
    7200: "2 h",
    266400: "3 d 2 h",
}


@pytest.mark.parametrize(("seconds", "want"), FORMATTED.items())
def test_format_duration(seconds: float, want: str) -> None:
    assert format_duration(seconds) == want
