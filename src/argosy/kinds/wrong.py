"""Wrong values as they are shown to the person who wrote them, and complaints as a status has room for them.

What people write has no bound and an object has: a status that grew with what it complains of could not be
stored, and nothing would be told.
"""

import json
from collections.abc import Iterable

LONGEST = 60
LONGEST_COMPLAINT = 1_000
LONGEST_TEXT = 12_000
"""Characters, beyond which only the number of complaints is told."""


def shown(value: object) -> str:
    """The value as it would stand in JSON, and no more of it than a message has room for."""
    text = json.dumps(value, ensure_ascii=False)
    return shortened(text)


def shortened(text: str, most: int = LONGEST) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def together(complaints: Iterable[str]) -> str:
    """All in one text, each once, in their order."""
    short = [shortened(one, LONGEST_COMPLAINT) for one in dict.fromkeys(complaints)]
    length = 0
    for number, one in enumerate(short):
        length += len(one) + 2
        if length > LONGEST_TEXT:
            return "; ".join([*short[:number], f"and {len(short) - number} more"])
    return "; ".join(short)
