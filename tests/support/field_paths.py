"""Reads, removes and substitutes fields of JSON values by dotted paths."""

import re
from collections.abc import Mapping, Sequence

Json = object
"""A value returned by json.loads."""


def dig(value: Json, path: str) -> Json:
    """The field at a dotted path, with list items by index; None if it does not exist."""
    for part in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(part.replace("~", "."))
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


_REFERENCE = re.compile(r"\$([a-z]\w*)((?:\.[\w~]+)*)")


def filled(value: Json, saved: Mapping[str, Json]) -> Json:
    """A copy in which `$name.path` is replaced by that field of the response saved under that name."""
    if isinstance(value, str):
        return _text(value, saved)
    if isinstance(value, list):
        return [filled(item, saved) for item in value]
    if isinstance(value, dict):
        return {_text(key, saved): filled(item, saved) for key, item in value.items()}
    return value


def _text(text: str, saved: Mapping[str, Json]) -> Json:
    whole = _REFERENCE.fullmatch(text)
    if whole and whole[1] in saved and whole[1] != "ns":
        return dig(saved[whole[1]], whole[2].removeprefix("."))

    def replacement(match: re.Match[str]) -> str:
        name, path = match[1], match[2].removeprefix(".")
        if name == "ns":
            return str(saved["ns"]) + match[2]
        return str(dig(saved[name], path)) if name in saved else match[0]

    return _REFERENCE.sub(replacement, text)


def hide(value: Json, path: Sequence[str]) -> None:
    """Remove a field; `*` in the path stands for every item."""
    head, rest = path[0], path[1:]
    if isinstance(value, list):
        for item in value if head == "*" else []:
            hide(item, rest)
    elif isinstance(value, dict):
        for key in list(value) if head == "*" else [head.replace("~", ".")]:
            if not rest:
                value.pop(key, None)
            elif key in value:
                hide(value[key], rest)
