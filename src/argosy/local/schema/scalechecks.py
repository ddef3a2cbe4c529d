"""What a custom resource with a scale subresource may hold where its replicas are told."""

from collections.abc import Iterable, Iterator

from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.strategic import go_map

MAX_REPLICAS = 2147483647
_GO_TYPES = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
}


def scale_errors(obj: Json, paths: Iterable[str]) -> list[FieldError]:
    """Replicas that are no count, at these paths in spec or status."""
    return [error for path in paths for error in _replicas_errors(obj, path)]


def _replicas_errors(obj: Json, path: str) -> Iterator[FieldError]:
    node: object = obj
    for step in path.removeprefix(".").split("."):
        if node is None:
            return
        if not isinstance(node, dict):
            yield invalid(path, 0, _accessor(path, node, "map[string]interface{}"))
            return
        node = node.get(step)
    if node is None:
        return
    if isinstance(node, bool) or not isinstance(node, int):
        yield invalid(path, 0, _accessor(path, node, "int64"))
    elif node < 0:
        yield invalid(path, node, "should be a non-negative integer")
    elif node > MAX_REPLICAS:
        yield invalid(path, node, f"should be less than or equal to {MAX_REPLICAS}")


def _accessor(path: str, value: object, expected: str) -> str:
    found = _GO_TYPES.get(type(value), "interface {}")
    return f"{path} accessor error: {go_map(value)} is of the type {found}, expected {expected}"
