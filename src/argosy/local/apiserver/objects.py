"""What handlers do to objects as plain JSON beyond reading them."""

from typing import cast

from argosy.local.schema.model import Json
from argosy.local.schema.reading import part


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
