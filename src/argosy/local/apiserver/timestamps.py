"""Timestamps, uids and generated names.

Uids are not secrets, so they come from the random generator of the process: a system call for each would cost
as much as the rest of a write.
"""

import datetime
import random
import time
from functools import lru_cache

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # that of Kubernetes
_GENERATED_BASE = 58


def now_text() -> str:
    """Return the time in UTC to the second."""
    return _second(int(time.time()))


@lru_cache(maxsize=4)
def _second(seconds: int) -> str:
    t = time.gmtime(seconds)
    return f"{t[0]:04}-{t[1]:02}-{t[2]:02}T{t[3]:02}:{t[4]:02}:{t[5]:02}Z"


def text_of(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def new_uid() -> str:
    """Return a UUID of version 4."""
    digits = f"{random.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def generated_name(base: str) -> str:
    """Return `base` (cut to fit) and five letters."""
    return base[:_GENERATED_BASE] + "".join(random.choices(_ALPHABET, k=5))  # noqa: S311 - no secret
