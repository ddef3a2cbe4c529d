"""Wrong values as they are shown to the person who wrote them, and complaints as a status has room for them.

What people write has no bound and an object has: a status that grew with what it complains of could not be
stored, and nothing would be told.
"""

import difflib
import json
from collections.abc import Iterable

APPLY_CRDS_COMMAND = "argosy crds | kubectl apply --server-side -f -"
"""Installs or upgrades the CustomResourceDefinitions; part of messages about missing or old ones."""
MAX_VALUE_CHARS = 60
MAX_MESSAGE_CHARS = 1_000
MAX_TEXT_CHARS = 12_000
"""Characters, beyond which only the number of complaints is told."""


def quote_value(value: object) -> str:
    """The value as it would stand in JSON, and no more of it than a message has room for."""
    text = json.dumps(value, ensure_ascii=False)
    return truncate(text)


def truncate(text: str, most: int = MAX_VALUE_CHARS) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


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
    exact = {one.lower(): one for one in known}
    nearest = difflib.get_close_matches(name.lower(), exact, n=1)
    return exact[nearest[0]] if nearest else None


def join_messages(complaints: Iterable[str]) -> str:
    """All in one text, each once, in their order."""
    short = [truncate(one, MAX_MESSAGE_CHARS) for one in dict.fromkeys(complaints)]
    length = 0
    for number, one in enumerate(short):
        length += len(one) + 2
        if length > MAX_TEXT_CHARS:
            return "; ".join([*short[:number], f"and {len(short) - number} more"])
    return "; ".join(short)
