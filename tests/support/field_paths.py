"""Fields of answers by their paths: to look at, to leave out, to use in the next request."""

import re
from collections.abc import Mapping, Sequence

Json = object
"""What json.loads gives."""


def dig(value: Json, path: str) -> Json:
    """A field by its dotted path, list items by index; None when it is not there."""
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
    """The same with `$name.path` replaced by that field of the answer saved under that name."""
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

    def found(match: re.Match[str]) -> str:
        name, path = match[1], match[2].removeprefix(".")
        if name == "ns":
            return str(saved["ns"]) + match[2]
        return str(dig(saved[name], path)) if name in saved else match[0]

    return _REFERENCE.sub(found, text)


def hide(value: Json, path: Sequence[str]) -> None:
    """Take a field out of an answer."""
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
