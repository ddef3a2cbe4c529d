"""Reads nested fields of Kubernetes objects as plain JSON, without trusting their types.

What arrives from a client may have any type anywhere until it is validated against a schema, so each reader
returns an empty value instead of failing when a field is missing or has another type.
"""

from typing import TypeGuard, cast

from argosy.local.schema.model import Json


def part(item: object, *path: str) -> Json:
    """The object some fields below, or an empty one."""
    node = item
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def parts(item: object, *path: str) -> list[Json]:
    """The objects of a list some fields below, or none."""
    found = part(item, *path[:-1]).get(path[-1])
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def texts(item: object, *path: str) -> list[str]:
    """The scalars of a list some fields below, as text."""
    found = part(item, *path[:-1]).get(path[-1])
    return [str(entry) for entry in found] if isinstance(found, list) else []


def strings(item: object, *path: str) -> list[str]:
    """The strings of a list some fields below; what is none is left out."""
    found = part(item, *path[:-1]).get(path[-1])
    return [entry for entry in found if isinstance(entry, str)] if isinstance(found, list) else []


def number(item: object, *path: str) -> int:
    """An integer some fields below, or 0."""
    found = part(item, *path[:-1]).get(path[-1])
    return found if is_integer(found) else 0


def text(item: object, *path: str) -> str:
    """A string some fields below, or an empty one."""
    found = part(item, *path[:-1]).get(path[-1])
    return found if isinstance(found, str) else ""


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a JSON value is an integer (true is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def ensure(obj: Json, *path: str) -> Json:
    """The object at `path`, made where it is missing or something else."""
    for key in path:
        value = obj.get(key)
        if not isinstance(value, dict):
            value = {}
            obj[key] = value
        obj = cast("Json", value)
    return obj


def labels_of(obj: Json, *path: str) -> dict[str, str]:
    """A map of strings such as labels; entries that are no strings are left out."""
    return {key: value for key, value in part(obj, *path).items() if isinstance(value, str)}
