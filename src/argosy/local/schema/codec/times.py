"""Converts times to the form that Kubernetes stores: RFC 3339 in UTC, in seconds or microseconds."""

import datetime
import re
from functools import lru_cache

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)").fullmatch
_MICRO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)").fullmatch


class TimeError(ValueError):
    """A text that is not a time."""


@lru_cache(4096)
def canonical_time(text: str, *, micro: bool = False) -> str:
    """Return the time in the form that is stored."""
    if not (_MICRO if micro else _RFC3339)(text):
        raise TimeError(f'"{text}" is not a time in RFC 3339{" with microseconds" if micro else ""}')
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError as error:
        raise TimeError(f'"{text}" is not a time: {error}') from None
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
