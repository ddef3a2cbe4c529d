"""Times and ids as objects carry them."""

import datetime
import secrets
import uuid

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # what Kubernetes draws generated names from
_GENERATED_BASE = 58


def now_text() -> str:
    """The time in UTC to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def text_of(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)


def new_uid() -> str:
    return str(uuid.uuid4())


def generated_name(base: str) -> str:
    """`base` (cut to fit) and five letters."""
    return base[:_GENERATED_BASE] + "".join(secrets.choice(_ALPHABET) for _ in range(5))
