"""Reading Kubernetes objects as plain JSON, without trusting their shape.

What arrives from a client may have any type anywhere until a schema has seen it, so each reader here answers
an empty value instead of failing when something else stands in the place asked for.
"""

from collections.abc import Iterator
from typing import TypeAlias, cast

Json: TypeAlias = dict[str, object]


def child(obj: Json, *path: str) -> Json:
    """The object at `path`, or an empty one that is not part of `obj`."""
    value: object = obj
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return cast("Json", value) if isinstance(value, dict) else {}


def ensure(obj: Json, *path: str) -> Json:
    """The object at `path`, made where it is missing or something else."""
    for key in path:
        value = obj.get(key)
        if not isinstance(value, dict):
            value = {}
            obj[key] = value
        obj = cast("Json", value)
    return obj


def text(obj: Json, *path: str) -> str:
    value = child(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, str) else ""


def number(obj: Json, *path: str) -> int:
    value = child(obj, *path[:-1]).get(path[-1])
    return value if isinstance(value, int) else 0


def children(obj: Json, *path: str) -> list[Json]:
    """The objects of the list at `path`; what is no object is left out."""
    value = child(obj, *path[:-1]).get(path[-1])
    return [cast("Json", item) for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def strings(obj: Json, *path: str) -> list[str]:
    value = child(obj, *path[:-1]).get(path[-1])
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def labels_of(obj: Json, *path: str) -> dict[str, str]:
    """A map of strings such as labels; entries that are no strings are left out."""
    found = child(obj, *path)
    return {key: value for key, value in found.items() if isinstance(value, str)}


def containers(pod_spec: Json) -> Iterator[Json]:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        yield from children(pod_spec, field)
