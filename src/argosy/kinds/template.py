"""Whether a pod template can be read as one: every value of the type that Kubernetes expects in its place.

An API server says of a text where a list should be, or of a quantity that is none, only that the whole pod
cannot be read. So types are checked here, each with its path, before any pod is asked for. Nothing else is:
what values mean, and which fields there are, only the server knows, and it tells with a path. The table
`template.json` is written by `scripts/generate-template`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

import msgspec

from argosy.kinds.messages import quote_value
from argosy.kinds.quantity import parse_quantity

FieldError = tuple[str, str]
"""A path, and what is wrong there."""

_STEP = re.compile(r"[^.\[\]]+")
_BITS = {"integer32": 31, "integer64": 63}


def template_errors(template: Mapping[str, object], path: str) -> list[FieldError]:
    """Every value of a pod template that is of the wrong type."""
    return list(_object(template, "PodTemplateSpec", path))


def known_fields(path: str) -> list[str]:
    """Return the fields that Kubernetes knows where the last field of `path` stands in a pod template.

    The path begins inside the template: `spec.containers[0].comand`. For a place that is not known, or whose
    keys are free, the list is empty.
    """
    kind = "PodTemplateSpec"
    for step in _STEP.findall(path)[:-1]:
        kind = kind[1:-1] if kind.startswith(("[", "{")) else _table().get(kind, {}).get(step, "")
    return list(_table().get(kind, ()))


def _object(value: Mapping[str, object], kind: str, path: str) -> Iterator[FieldError]:
    fields = _table()[kind]
    for name, part in value.items():
        if part is not None and (wanted := fields.get(name)):
            yield from _value(part, wanted, f"{path}.{name}")


def _value(value: object, wanted: str, path: str) -> Iterator[FieldError]:
    if wanted[0] == "[":
        if isinstance(value, list):
            for index, part in enumerate(value):
                if part is not None:
                    yield from _value(part, wanted[1:-1], f"{path}[{index}]")
            return
    elif wanted[0] == "{":
        if isinstance(value, dict):
            for key, part in value.items():
                if part is not None:
                    yield from _value(part, wanted[1:-1], _entry(path, key))
            return
    elif wanted in _table():
        if isinstance(value, dict):
            yield from _object(value, wanted, path)
            return
    elif _fits(value, wanted):
        return
    yield path, f"invalid value {quote_value(value)}: must be {_words(value, wanted)}"


def _fits(value: object, wanted: str) -> bool:
    match wanted:
        case "text":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "quantity":
            return _is_quantity(value)
        case "integer-or-text":
            return isinstance(value, str) or _is_integer(value, 31)
    return _is_integer(value, _BITS[wanted])


def _is_integer(value: object, bits: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits


def _is_quantity(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        parse_quantity(value)
    except ValueError:
        return False
    return not isinstance(value, str) or value == value.strip()


def _words(value: object, wanted: str) -> str:
    """What may stand there, and how to write what was probably meant."""
    if wanted[0] == "[":
        hint = f"; write [{quote_value(value)}]" if _plain(value, wanted[1:-1]) else ""
        return f"a list{hint}"
    if wanted[0] == "{" or wanted in _table():
        return "a map"
    match wanted:
        case "text":
            quoted = isinstance(value, bool | int | float)
            return f'text; write "{quote_value(value)}"' if quoted else "text"
        case "boolean":
            return "true or false"
        case "quantity":
            return "a number with or without a unit, like 2, 500m or 16Gi"
        case "integer-or-text":
            return "an integer or text"
    return "an integer" if not isinstance(value, int) or isinstance(value, bool) else "a smaller integer"


def _plain(value: object, wanted: str) -> bool:
    return wanted[0] not in "[{" and wanted not in _table() and _fits(value, wanted)


def _entry(path: str, key: str) -> str:
    """A key with a dot or a stroke in it stands in brackets, as Kubernetes has it."""
    return f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}"


@cache
def _table() -> dict[str, dict[str, str]]:
    raw = files("argosy.kinds").joinpath("template.json").read_bytes()
    return msgspec.json.decode(raw, type=dict[str, dict[str, str]])
