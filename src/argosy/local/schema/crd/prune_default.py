"""Custom resources under their structural schema: unknown fields, nulls and defaults.

`admit` does in place, and in one pass over the object, what the server does before it looks at an object:
drop fields that the schema does not know, drop nulls where null is not allowed, and fill in defaults. It
returns the paths of unknown fields, as `fieldValidation` reports them. Parsing of definitions and
validation live in `definition` and `validate`; they are named here too because callers think of them
together.
"""

import copy

import msgspec
from msgspec import UNSET

from argosy.local.schema.builtin import definition
from argosy.local.schema.codec.decode import DecodeError, decode, json_kind
from argosy.local.schema.crd.definition import CrdInfo, CrdVersion, parse_crd
from argosy.local.schema.crd.validate import validate
from argosy.local.schema.errors import show
from argosy.local.schema.model import Json, Schema

__all__ = ["CrdInfo", "CrdVersion", "admit", "default", "parse_crd", "prune", "validate"]

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_TYPE_META = ("apiVersion", "kind", "metadata")


def admit(obj: Json, schema: Schema, *, keep_nulls: bool = False) -> list[str]:
    """Prune and default a custom resource in place; return the paths of unknown fields.

    What is applied keeps nulls where they are not allowed, and is refused for them.
    """
    unknown = prune(obj, schema)
    default(obj, schema, keep_nulls=keep_nulls)
    return unknown


def admit_foreign(obj: Json, *, known: bool) -> list[str]:
    """The same for an object that says it is of another kind or version: only its metadata can be read.

    Of a version that there is not, of a kind that is `known`, nothing else is.
    """
    unknown = _coerce_metadata(obj, "")
    fields = sorted(set(obj) - set(_TYPE_META)) if known else []
    for name in fields:
        del obj[name]
    return unknown + fields


def prune(obj: Json, schema: Schema) -> list[str]:
    """Drop what the schema does not know, in place; return the paths, those in metadata first."""
    unknown = _coerce_metadata(obj, "")
    found: list[str] = []
    _prune_object(obj, schema, "", found, root=True)
    return unknown + sorted(found)


def default(obj: Json, schema: Schema, *, keep_nulls: bool = False) -> None:
    """Drop nulls that are not allowed and fill in defaults, in place."""
    _default_object(obj, schema, keep_nulls)


def _prune_object(obj: Json, schema: Schema, path: str, unknown: list[str], *, root: bool = False) -> None:
    properties = schema.properties
    resource = root or schema.embedded_resource
    if not root and resource and "metadata" in obj:
        try:
            unknown += [f"{path}{name}" for name in _coerce_metadata(obj, "metadata.")]
        except DecodeError as error:
            shown = show(obj["metadata"])
            raise DecodeError(f"{path}metadata: Invalid value: {shown}: {error}") from None
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


def _coerce_metadata(obj: Json, prefix: str) -> list[str]:
    """Read metadata as the typed thing that it is everywhere."""
    metadata = obj.get("metadata")
    if metadata is None:
        return []
    schema = definition(OBJECT_META)
    if not isinstance(metadata, dict):
        raise DecodeError(f"json: cannot unmarshal {json_kind(metadata)} into Go value of type v1.ObjectMeta")
    try:
        unknown = decode(metadata, schema)
    except DecodeError:
        # Kubernetes writes metadata with its fields in order before it reads it as what it is.
        decode(msgspec.json.decode(msgspec.json.encode(metadata, order="sorted")), schema)
        raise
    return [f"{prefix or 'metadata.'}{name}" for name in unknown]


def _default_object(obj: Json, schema: Schema, keep_nulls: bool) -> None:
    properties = schema.properties
    for name, declared in _defaulted(schema):
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


def _defaulted(schema: Schema) -> list[tuple[str, Schema]]:
    found = schema.compiled.get("defaulted")
    if found is None:
        found = schema.compiled["defaulted"] = [
            (name, child) for name, child in schema.properties.items() if child.default is not UNSET
        ]
    assert isinstance(found, list)
    return found
