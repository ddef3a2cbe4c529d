"""Validates the fields that a custom resource's scale subresource reads: replicas and selector."""

from collections.abc import Iterable, Iterator

from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import is_integer

MAX_REPLICAS = 2147483647
_MISPLACED = object()


def scale_errors(obj: Json, replicas: Iterable[str], selector: str = "") -> Iterator[FieldError]:
    """Yield what is wrong at the JSON paths of the replicas and of the selector."""
    for path in replicas:
        value = _get(obj, path)
        if value is not None and not (is_integer(value) and 0 <= value <= MAX_REPLICAS):
            yield invalid(path, value, f"must be an integer between 0 and {MAX_REPLICAS}")
    if selector and not isinstance(value := _get(obj, selector), str | None):
        yield invalid(selector, value, "must be a string")


def _get(obj: Json, path: str) -> object:
    """Return the value at a JSON path; `_MISPLACED` if something on the way is not an object."""
    node: object = obj
    for step in path.removeprefix(".").split("."):
        if not isinstance(node, dict):
            return None if node is None else _MISPLACED
        node = node.get(step)
    return node
