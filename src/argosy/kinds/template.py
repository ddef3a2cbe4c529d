"""Checks that every value of a pod template has the type that Kubernetes expects.

For a string in place of a list, or an invalid quantity, an API server only says that the pod cannot be
decoded. So the types are checked here, each with its path, before a pod is created. Unknown fields and the
meaning of values are left to the API server, whose errors name the path. `python -m tools.template_fields`
writes the table `template.json`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

import msgspec

from argosy.kinds.quantity import parse_quantity
from argosy.kinds.text import quote_value

FieldError = tuple[str, str]
"""Path and error message."""


class _Table(msgspec.Struct):
    types: dict[str, dict[str, str]]


_PATH_PART = re.compile(r"[^.\[\]]+")
_BITS = {"integer32": 31, "integer64": 63}


def template_errors(template: Mapping[str, object], path: str) -> list[FieldError]:
    """Return an error for every value of the wrong type in a pod template."""
    return list(_object_errors(template, "PodTemplateSpec", path))


def known_fields(path: str) -> list[str]:
    """Return the fields that Kubernetes defines for the object that contains the last field of `path`.

    The path begins inside the template: `spec.containers[0].comand`. The list is empty if the object is
    unknown or a map with arbitrary keys.
    """
    kind = "PodTemplateSpec"
    for part in _PATH_PART.findall(path)[:-1]:
        kind = kind[1:-1] if kind.startswith(("[", "{")) else _table().get(kind, {}).get(part, "")
    return list(_table().get(kind, ()))


def _object_errors(value: Mapping[str, object], kind: str, path: str) -> Iterator[FieldError]:
    fields = _table()[kind]
    for name, part in value.items():
        if part is not None and (type_name := fields.get(name)):
            yield from _value_errors(part, type_name, f"{path}.{name}")


def _value_errors(value: object, type_name: str, path: str) -> Iterator[FieldError]:
    if type_name[0] == "[":
        if isinstance(value, list):
            for index, part in enumerate(value):
                if part is not None:
                    yield from _value_errors(part, type_name[1:-1], f"{path}[{index}]")
            return
    elif type_name[0] == "{":
        if isinstance(value, dict):
            for key, part in value.items():
                if part is not None:
                    yield from _value_errors(part, type_name[1:-1], _key_path(path, key))
            return
    elif type_name in _table():
        if isinstance(value, dict):
            yield from _object_errors(value, type_name, path)
            return
    elif _fits(value, type_name):
        return
    yield path, f"invalid value {quote_value(value)}: must be {_describe_type(value, type_name)}"


def _fits(value: object, type_name: str) -> bool:
    match type_name:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "quantity":
            return _is_quantity(value)
        case "integer-or-string":
            return isinstance(value, str) or _is_integer(value, 31)
    return _is_integer(value, _BITS[type_name])


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


def _describe_type(value: object, type_name: str) -> str:
    """Describe the expected type, and how to write the value that was probably meant."""
    if type_name[0] == "[":
        hint = f"; write [{quote_value(value)}]" if _fits_basic_type(value, type_name[1:-1]) else ""
        return f"a list{hint}"
    if type_name[0] == "{" or type_name in _table():
        return "a map"
    match type_name:
        case "string":
            is_scalar = isinstance(value, bool | int | float)
            return f'a string; write "{quote_value(value)}"' if is_scalar else "a string"
        case "boolean":
            return "true or false"
        case "quantity":
            return "a quantity like 2, 500m or 16Gi"
        case "integer-or-string":
            return "an integer or a string"
    return "an integer" if not isinstance(value, int) or isinstance(value, bool) else "a smaller integer"


def _fits_basic_type(value: object, type_name: str) -> bool:
    return type_name[0] not in "[{" and type_name not in _table() and _fits(value, type_name)


def _key_path(path: str, key: str) -> str:
    """Return the path of a map entry; a key with a dot or slash is put in brackets, as Kubernetes does."""
    return f"{path}[{key}]" if "." in key or "/" in key else f"{path}.{key}"


@cache
def _table() -> dict[str, dict[str, str]]:
    raw = files("argosy.kinds").joinpath("template.json").read_bytes()
    return msgspec.json.decode(raw, type=_Table).types
