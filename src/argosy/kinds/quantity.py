"""Parses Kubernetes quantities (`500m`, `2Gi`) and the durations of our APIs (`90s`, `1h30m`, `2d`).

Both parsers are strict and raise a ValueError whose text can be shown to a user.
"""

import re
from decimal import Decimal, InvalidOperation

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$"

_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_SUFFIX = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{unit + "i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i)?)"
)


def parse_quantity(text: str | int | float) -> Decimal:
    """Return the exact value of a quantity."""
    match = _QUANTITY.fullmatch(str(text).strip())
    if not match:
        raise ValueError(f"invalid quantity {text!r}: must be a number like 2, 500m or 16Gi")
    number, exponent, suffix = match.groups()
    try:
        value = Decimal(number) * _SUFFIX[suffix or ""]
        return value.scaleb(int(exponent)) if exponent else value
    except (InvalidOperation, OverflowError) as error:
        raise ValueError(f"invalid quantity {text!r}: out of range") from error


def parse_duration(text: str) -> float:
    """Return a duration in seconds."""
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"invalid duration {text!r}: must be a number with a unit, like 90s, 10m or 1h30m")
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def format_duration(seconds: float) -> str:
    """Format a duration with about three digits: `0.2 s`, `45 s`, `2 m 14 s`, `1 h 5 m`, `3 d 2 h`."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{round(seconds, 1):g} s"
    whole = round(seconds)
    for unit, size, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "m", 60), ("m", 60, "s", 1)):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {smaller}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"
