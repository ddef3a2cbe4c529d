"""Reads nested fields of Kubernetes objects as plain JSON, without trusting their types.

Objects of clients can have any type anywhere until they are validated, so each function returns an empty
value if a field is missing or has another type.
"""

from typing import TypeGuard, cast

from argosy.local.schema.model import Json


def get_map(item: object, *path: str) -> Json:
    """Return the object at a path, or an empty one."""
    node = item
    for step in path:
        node = node.get(step) if isinstance(node, dict) else None
    return node if isinstance(node, dict) else {}


def get_maps(item: object, *path: str) -> list[Json]:
    """Return the objects of the list at a path."""
    value = get_map(item, *path[:-1]).get(path[-1])
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def get_texts(item: object, *path: str) -> list[str]:
    """Return the items of the list at a path, as text."""
    value = get_map(item, *path[:-1]).get(path[-1])
    return [str(entry) for entry in value] if isinstance(value, list) else []


def get_strings(item: object, *path: str) -> list[str]:
    """Return the strings of the list at a path, without other items."""
    value = get_map(item, *path[:-1]).get(path[-1])
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def get_int(item: object, *path: str) -> int:
    """Return the integer at a path, or 0."""
    value = get_map(item, *path[:-1]).get(path[-1])
    return value if is_integer(value) else 0


def get_str(item: object, *path: str) -> str:
    """Return the string at a path, or an empty one."""
    value = get_map(item, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def is_integer(value: object) -> TypeGuard[int]:
    """Return True if a JSON value is an integer (true is not)."""
    return isinstance(value, int) and not isinstance(value, bool)


def ensure(obj: Json, *path: str) -> Json:
    """Return the object at a path, created if it is missing or not an object."""
    for key in path:
        value = obj.get(key)
        if not isinstance(value, dict):
            value = {}
            obj[key] = value
        obj = cast("Json", value)
    return obj


def labels_of(obj: Json, *path: str) -> dict[str, str]:
    """Return a map of strings such as labels, without other entries."""
    return {key: value for key, value in get_map(obj, *path).items() if isinstance(value, str)}
