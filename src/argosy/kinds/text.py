"""Turns values and names into text for error messages and statuses, with bounds on the length.

A user may write values of any length, but the API server limits the size of an object. A status that grew
with the values it complains about could not be stored, and the user would see no error at all.
"""

import difflib
import hashlib
import json
from collections.abc import Iterable, Sequence

MAX_VALUE_CHARS = 60
"""Longer values are cut in messages."""
MAX_MESSAGE_CHARS = 1_000
"""Longer messages are cut by `join_messages`."""
MAX_TEXT_CHARS = 12_000
"""Total length after which `join_messages` only counts the remaining messages."""


def quote_value(value: object) -> str:
    """Return the value as JSON, cut to the length that a message allows."""
    return truncate(json.dumps(value, ensure_ascii=False))


def truncate(text: str, max_chars: int = MAX_VALUE_CHARS) -> str:
    return text if len(text) <= max_chars else f"{text[:max_chars]}…"


def unknown_name(noun: str, name: str, known: Iterable[str]) -> str:
    """Return `unknown framework "pytroch"; did you mean "pytorch"? (known frameworks: custom, pytorch)`."""
    names = sorted(known)
    listed = f" (known {noun}s: {', '.join(names)})" if names else ""
    return f"unknown {noun} {quote_value(name)}{did_you_mean(name, names)}{listed}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "pytorch"?` for a name that is close to a known one, else nothing."""
    nearest = closest(name, known)
    return f'; did you mean "{nearest}"?' if nearest else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a mistyped one; None if none is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    nearest = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
    return by_lower_case[nearest[0]] if nearest else None


def join_messages(messages: Iterable[str]) -> str:
    """Join messages with semicolons, without duplicates and in their order, within `MAX_TEXT_CHARS`."""
    unique = [truncate(message, MAX_MESSAGE_CHARS) for message in dict.fromkeys(messages)]
    length = 0
    for number, message in enumerate(unique):
        length += len(message) + 2
        if length > MAX_TEXT_CHARS:
            return "; ".join([*unique[:number], f"and {len(unique) - number} more"])
    return "; ".join(unique)


def join_names(names: Sequence[str], max_names: int = 3) -> str:
    """Return `a, b and c`, or `a, b, c and 5 more`."""
    if len(names) > max_names:
        return f"{', '.join(names[:max_names])} and {len(names) - max_names} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def pluralize(count: int, noun: str) -> str:
    """Return `1 pod` or `2 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


HASH_CHARS = 8


def shorten(text: str, max_chars: int) -> str:
    """Return the text, or its beginning and a hash of the whole if it is too long for a name."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars - HASH_CHARS - 1].rstrip('-._')}-{text_hash(text)}"


def text_hash(text: str) -> str:
    """Return eight characters that differ for different texts."""
    return hashlib.sha256(text.encode()).hexdigest()[:HASH_CHARS]
