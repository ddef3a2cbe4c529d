"""Wrong values as they are shown to the person who wrote them."""

import json

LONGEST = 60


def shown(value: object) -> str:
    """The value as it would stand in JSON, and no more of it than a message has room for."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
