"""Times as Go reads and writes them: RFC 3339, to the second or to the microsecond."""

import datetime
import re
from functools import lru_cache

_SECONDS_LAYOUT = "2006-01-02T15:04:05Z07:00"
_MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_ZONE = r"Z|[+-]\d\d:\d\d"
_ELEMENTS = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d?"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_RANGES = ((1, 12, "month"), (1, 31, "day"), (0, 23, "hour"), (0, 59, "minute"), (0, 59, "second"))


class TimeError(Exception):
    """A text that is no time; says so in Go's words."""


@lru_cache(4096)
def canonical_time(text: str, *, micro: bool = False) -> str:
    """The same time in the form that is stored."""
    _check(text, micro=micro)
    moment = datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    moment = moment.astimezone(datetime.UTC)
    form = "%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ"
    return moment.strftime(form)


def _check(text: str, *, micro: bool) -> None:
    layout = _MICRO_LAYOUT if micro else _SECONDS_LAYOUT
    rest, numbers = text, list[int]()
    for element, pattern in _ELEMENTS:
        found = re.match(pattern, rest)
        if found is None:
            raise TimeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{element}"')
        rest = rest[found.end() :]
        if element.isdigit():
            numbers.append(int(found[0]))
    fraction = re.match(r"\.\d{6}" if micro else r"\.\d+", rest)
    if micro and fraction is None:
        raise TimeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as ".000000"')
    rest = rest[fraction.end() :] if fraction else rest
    zone = re.match(_ZONE, rest)
    if zone is None:
        raise TimeError(f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "Z07:00"')
    if rest := rest[zone.end() :]:
        raise TimeError(f'parsing time "{text}": extra text: "{rest}"')
    for number, (low, high, what) in zip(numbers[1:], _RANGES, strict=True):
        if not low <= number <= high:
            raise TimeError(f'parsing time "{text}": {what} out of range')
    try:
        datetime.date(*numbers[:3])
    except ValueError:
        raise TimeError(f'parsing time "{text}": day out of range') from None
