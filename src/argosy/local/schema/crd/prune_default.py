"""Prunes and defaults custom resources by their structural schema.

`admit` works in place: it drops fields that the schema does not declare, drops nulls where null is not
allowed, and fills in defaults. It returns the paths of unknown fields, as `fieldValidation` reports them.
"""

import copy

from msgspec import UNSET

from argosy.local.schema.builtin import definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.model import Json, Schema

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TYPE_META = ("apiVersion", "kind", "metadata")


def admit(obj: Json, schema: Schema, *, keep_nulls: bool = False) -> list[str]:
    """Prune and default a custom resource in place; return the paths of unknown fields.

    Server-side apply keeps nulls that are not allowed, so that validation rejects them.
    """
    unknown = prune(obj, schema)
    default(obj, schema, keep_nulls=keep_nulls)
    return unknown


def prune(obj: Json, schema: Schema) -> list[str]:
    """Drop undeclared fields in place; return their paths, those in metadata first."""
    in_metadata = _coerce_metadata(obj, "")
    unknown: list[str] = []
    _prune_object(obj, schema, "", unknown, root=True)
    return in_metadata + sorted(unknown)


def default(obj: Json, schema: Schema, *, keep_nulls: bool = False) -> None:
    """Drop nulls that are not allowed and fill in defaults, in place."""
    _default_object(obj, schema, keep_nulls)


def _prune_object(obj: Json, schema: Schema, path: str, unknown: list[str], *, root: bool = False) -> None:
    properties = schema.properties
    resource = root or schema.embedded_resource
    if not root and resource and "metadata" in obj:
        unknown += _coerce_metadata(obj, path)
    for key in list(obj):
        if resource and key in _TYPE_META:
            continue
        child = properties.get(key)
        if child is None:
            child = schema.additional
            if child is None:
                if not schema.preserve_unknown:
                    unknown.append(f"{path}{key}")
                    del obj[key]
                continue
        obj[key] = _prune(obj[key], child, f"{path}{key}", unknown)


def _prune(value: object, schema: Schema, path: str, unknown: list[str]) -> object:
    if isinstance(value, dict):
        _prune_object(value, schema, f"{path}.", unknown)
    elif isinstance(value, list):
        items = schema.items
        if items is not None:
            for index, item in enumerate(value):
                if isinstance(item, dict | list | float):
                    value[index] = _prune(item, items, f"{path}[{index}]", unknown)
    elif isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _coerce_metadata(obj: Json, path: str) -> list[str]:
    """Decode metadata, which has the same type in every object; return the paths of its unknown fields."""
    metadata = obj.get("metadata")
    if metadata is None:
        return []
    if not isinstance(metadata, dict):
        raise DecodeError(f"{path}metadata: must be of type object")
    try:
        return [f"{path}metadata.{name}" for name in decode(metadata, definition(OBJECT_META))]
    except DecodeError as error:
        raise DecodeError(f"{path}metadata.{error}") from None


def _default_object(obj: Json, schema: Schema, keep_nulls: bool) -> None:
    properties = schema.properties
    for name, declared in _fields_with_default(schema):
        if obj.get(name) is None and not (declared.nullable and name in obj):
            obj[name] = copy.deepcopy(declared.default)
    for key in list(obj):
        child = properties.get(key) or schema.additional
        if child is None:
            continue
        value = obj[key]
        if value is None:
            if not child.nullable and child.default is UNSET and not keep_nulls:
                del obj[key]
        elif isinstance(value, dict):
            _default_object(value, child, keep_nulls)
        elif isinstance(value, list):
            _default_list(value, child, keep_nulls)


def _default_list(values: list[object], schema: Schema, keep_nulls: bool) -> None:
    items = schema.items
    if items is None:
        return
    for index, item in enumerate(values):
        if item is None and not items.nullable and items.default is not UNSET:
            values[index] = copy.deepcopy(items.default)
        elif isinstance(item, dict):
            _default_object(item, items, keep_nulls)
        elif isinstance(item, list):
            _default_list(item, items, keep_nulls)


def _fields_with_default(schema: Schema) -> list[tuple[str, Schema]]:
    fields = schema.compiled.get("defaulted")
    if fields is None:
        fields = schema.compiled["defaulted"] = [
            (name, child) for name, child in schema.properties.items() if child.default is not UNSET
        ]
    assert isinstance(fields, list)
    return fields
