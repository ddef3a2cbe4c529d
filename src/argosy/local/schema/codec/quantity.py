"""Parses resource quantities, and converts them to the canonical form: `1000m` to `1`, `1024Mi` to `1Gi`."""

import re
from decimal import ROUND_UP, Decimal
from functools import lru_cache

_PATTERN = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?\d+)?\Z")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_POWERS = {suffix: power for power, suffix in _DECIMAL.items()}

NOT_A_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


class QuantityError(ValueError):
    """A text that is not a quantity."""


@lru_cache(maxsize=4096)
def canonical(text: str) -> str:
    """Return the canonical form of a quantity."""
    match = _PATTERN.match(text.strip())
    if match is None:
        raise QuantityError(NOT_A_QUANTITY)
    suffix = match.group(3) or ""
    value = value_of(text)
    if suffix in _BINARY[1:] and abs(value) >= 1024 and value == value.to_integral_value():
        return _binary(int(value))
    return _decimal(value, exponent=suffix[:1] in ("e", "E") and len(suffix) > 1)


@lru_cache(maxsize=4096)
def value_of(text: str) -> Decimal:
    """Return the value of a quantity, rounded up to a billionth."""
    match = _PATTERN.match(text.strip())
    if match is None:
        raise QuantityError(NOT_A_QUANTITY)
    sign, digits, suffix = match.groups()
    number = Decimal(digits)
    if suffix in _BINARY[1:]:
        number *= Decimal(1024) ** _BINARY.index(suffix)
    elif suffix and suffix[0] in "eE" and len(suffix) > 1:
        number *= Decimal(10) ** int(suffix[1:])
    elif suffix:
        number *= Decimal(10) ** _POWERS[suffix]
    if number.as_tuple().exponent < -9:  # type: ignore[operator]
        number = number.quantize(Decimal("1e-9"), rounding=ROUND_UP)
    return -number if sign == "-" else number


def _binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < 6:
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power]}"


def _decimal(value: Decimal, *, exponent: bool) -> str:
    if value == 0:
        return "0"
    power = 0
    while value != value.to_integral_value():
        value *= 1000
        power -= 3
    number = int(value)
    while number % 1000 == 0 and (power < 18 or exponent):
        number //= 1000
        power += 3
    if exponent:
        return f"{number}e{power}" if power else str(number)
    return f"{number}{_DECIMAL[power]}"
