"""Finds wrong types, undeclared fields and duplicates in configurations for server-side apply."""

from collections.abc import Iterator

from argosy.local.schema.model import Json, Schema
from argosy.local.schema.ssa.typed_shape import KEYED, SET, MergeError, Shape, format_path_element, shape_of

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int, float),
    "number": (int, float),
}


def type_errors(config: Json, schema: Schema) -> list[str]:
    """Return the problems, each with its path."""
    return list(_errors(config, schema, "", is_open=False))


def _has_type(value: object, schema: Schema) -> bool:
    if value is None or schema.type not in _TYPES or schema.int_or_string:
        return True
    if schema.type == "string" and schema.format not in ("", "byte"):
        return True
    return isinstance(value, _TYPES[schema.type]) and isinstance(value, bool) <= (schema.type == "boolean")


def _errors(value: object, schema: Schema, path: str, *, is_open: bool) -> Iterator[str]:
    if not _has_type(value, schema):
        yield f"{path}: must be of type {schema.type}"
        return
    shape = shape_of(schema)
    if isinstance(value, dict) and schema.type == "object":
        # Where unknown fields are preserved, they are also preserved in everything below.
        is_open = is_open or schema.preserve_unknown
        free = is_open or schema.additional is not None or not schema.properties
        for key, item in value.items():
            child = schema.properties.get(key) or schema.additional
            if child is not None:
                yield from _errors(item, child, f"{path}.{key}", is_open=is_open)
            elif not free:
                yield f"{path}.{key}: field not declared in schema"
    elif isinstance(value, list) and schema.items is not None:
        if shape.kind in (SET, KEYED):
            yield from _item_errors(value, schema.items, shape, path, is_open)
        else:
            for index, item in enumerate(value):
                yield from _errors(item, schema.items, f"{path}[{index}]", is_open=is_open)


def _item_errors(value: list[object], items: Schema, shape: Shape, path: str, is_open: bool) -> Iterator[str]:
    keys: set[str] = set()
    for index, item in enumerate(value):
        try:
            key = shape.item_key(item)
        except MergeError as error:
            yield f"{path}[{index}]: {error}"
            continue
        if key in keys:
            yield f"{path}: duplicate entries for key {format_path_element(key)}"
        keys.add(key)
        yield from _errors(item, items, path + format_path_element(key), is_open=is_open)
