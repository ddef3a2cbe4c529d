"""What a custom resource with a scale subresource may hold where its replicas and selector are told."""

from collections.abc import Iterable, Iterator

from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.strategic_merge import GO_TYPES, go_map

MAX_REPLICAS = 2147483647


def scale_errors(obj: Json, paths: Iterable[str], selector: str = "") -> list[FieldError]:
    """Replicas that are no count, at these paths in spec or status, and a selector that is no text."""
    errors = [error for path in paths for error in _replicas_errors(obj, path)]
    return [*errors, *(_selector_errors(obj, selector) if selector else ())]


def _selector_errors(obj: Json, path: str) -> Iterator[FieldError]:
    node = _found(obj, path)
    if isinstance(node, _Misplaced):
        yield invalid(path, "", _accessor(path, node.value, "map[string]interface{}"))
    elif node is not None and not isinstance(node, str):
        yield invalid(path, "", _accessor(path, node, "string"))


class _Misplaced:
    """Something that is no object where an object should be."""

    def __init__(self, value: object) -> None:
        self.value = value


def _found(obj: Json, path: str) -> object:
    node: object = obj
    for step in path.removeprefix(".").split("."):
        if node is None:
            return None
        if not isinstance(node, dict):
            return _Misplaced(node)
        node = node.get(step)
    return node


def _replicas_errors(obj: Json, path: str) -> Iterator[FieldError]:
    node = _found(obj, path)
    if isinstance(node, _Misplaced):
        yield invalid(path, 0, _accessor(path, node.value, "map[string]interface{}"))
        return
    if node is None:
        return
    if isinstance(node, bool) or not isinstance(node, int):
        yield invalid(path, 0, _accessor(path, node, "int64"))
    elif node < 0:
        yield invalid(path, node, "should be a non-negative integer")
    elif node > MAX_REPLICAS:
        yield invalid(path, node, f"should be less than or equal to {MAX_REPLICAS}")


def _accessor(path: str, value: object, expected: str) -> str:
    found = GO_TYPES.get(type(value), "interface {}")
    return f"{path} accessor error: {go_map(value)} is of the type {found}, expected {expected}"
