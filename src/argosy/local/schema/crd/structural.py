"""The rules that make a declared schema structural, with the messages of kube-apiserver."""

import re
from collections.abc import Iterator, Mapping

from argosy.local.schema.crd.cel import rule_errors
from argosy.local.schema.crd.validate import check_schema
from argosy.local.schema.errors import FieldError, forbidden, invalid, not_supported, required
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.unstructured import part

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_FORBIDDEN = {
    "$ref": "$ref is not supported",
    "definitions": "definitions is not supported",
    "dependencies": "dependencies is not supported",
    "patternProperties": "patternProperties is not supported",
    "additionalItems": "additionalItems is not supported",
    "id": "id is not supported",
    "$schema": "$schema is not supported",
}
_COMBINED = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_INSIDE_COMBINED = (
    "type",
    "default",
    "title",
    "description",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
)


def schema_errors(raw: Json, path: str, *, has_status: bool) -> list[FieldError]:
    """What keeps a schema from being the schema of a custom resource."""
    errors: list[FieldError] = []
    root = raw.get("type")
    if has_status and root and root != "object":
        told = (
            'only "object" is allowed as the type at the root of the schema if the status subresource is '
            "enabled"
        )
        errors.append(invalid(f"{path}.type", root, told))
    unsupported = list(_forbidden(raw, path))
    errors += unsupported or _structural(raw, path, root=True)
    if not errors:
        errors += _default_errors(Schema(raw), path)
    if not errors:
        errors += rule_errors(Schema(raw), path)
    return errors


def _forbidden(raw: Mapping[str, object], path: str) -> Iterator[FieldError]:
    for keyword, told in _FORBIDDEN.items():
        if raw.get(keyword):
            yield forbidden(f"{path}.{keyword}", told)
    if raw.get("uniqueItems") is True:
        told = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", told)
    if isinstance(raw.get("additionalProperties"), Mapping) and raw.get("properties"):
        told = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", told)
    kind = raw.get("type")
    if isinstance(kind, str) and kind and kind not in TYPES:
        yield not_supported(f"{path}.type", kind, TYPES)
    pattern = raw.get("pattern")
    if isinstance(pattern, str):
        try:
            re.compile(pattern)
        except re.error as error:
            why = _regexp(error, pattern)
            told = f"must be a valid regular expression, but isn't: error parsing regexp: {why}"
            yield invalid(f"{path}.pattern", pattern, told)
    yield from _list_rules(raw, path)
    for name, child in _children(raw):
        yield from _forbidden(child, f"{path}.{name}")


def _regexp(error: re.error, pattern: str) -> str:
    if "unterminated character set" in error.msg:
        return f"missing closing ]: `{pattern[error.pos or 0 :]}`"
    return f"{error.msg}: `{pattern}`"


def _list_rules(raw: Mapping[str, object], path: str) -> Iterator[FieldError]:
    map_type = raw.get("x-kubernetes-map-type")
    if map_type is not None and map_type not in ("atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    list_type, keys = raw.get("x-kubernetes-list-type"), raw.get("x-kubernetes-list-map-keys")
    if list_type is not None and raw.get("type") != "array":
        shown = raw.get("type", "")
        yield invalid(f"{path}.type", shown, "must be array if x-kubernetes-list-type is specified")
    if list_type is not None and list_type not in ("atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if list_type == "map" and not keys:
        told = "must not be empty if x-kubernetes-list-type is map"
        yield required(f"{path}.x-kubernetes-list-map-keys", told)
    if keys and list_type != "map":
        told = "must be map if x-kubernetes-list-map-keys is non-empty"
        yield invalid(f"{path}.x-kubernetes-list-type", list_type, told)
    items = raw.get("items")
    if list_type == "set" and isinstance(items, Mapping) and items.get("type") in ("object", "array"):
        yield from _set_items(items, f"{path}.items")
    if list_type == "map" and isinstance(items, Mapping) and isinstance(keys, list):
        yield from _map_items(items, [str(key) for key in keys], path)


def _set_items(items: Mapping[str, object], path: str) -> Iterator[FieldError]:
    keyword = "x-kubernetes-map-type" if items.get("type") == "object" else "x-kubernetes-list-type"
    if items.get(keyword) != "atomic":
        told = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid(f"{path}.{keyword}", items.get(keyword), told)


def _map_items(items: Mapping[str, object], keys: list[str], path: str) -> Iterator[FieldError]:
    if items.get("type") != "object":
        told = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type", ""), told)
        return
    properties = part(dict(items), "properties")
    needed = items.get("required")
    for key in keys:
        child = properties.get(key)
        if not isinstance(child, Mapping):
            told = "entries must all be names of item properties"
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, told)
        elif "default" not in child and not (isinstance(needed, list) and key in needed):
            told = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required "
                "property"
            )
            yield required(f"{path}.items.properties[{key}].default", told)


def _structural(raw: Mapping[str, object], path: str, *, root: bool = False) -> Iterator[FieldError]:
    yield from _combined(raw, path)
    kind = raw.get("type")
    free = (
        raw.get("x-kubernetes-int-or-string") is True
        or raw.get("x-kubernetes-preserve-unknown-fields") is True
    )
    if root:
        if not kind:
            yield required(f"{path}.type", "must not be empty at the root")
        elif kind != "object":
            yield invalid(f"{path}.type", kind, "must be object at the root")
        yield from _metadata_rules(raw, path)
    elif not kind and not free:
        place = "array items" if path.endswith(".items") else "object fields"
        yield required(f"{path}.type", f"must not be empty for specified {place}")
    if kind == "array" and not isinstance(raw.get("items"), Mapping):
        yield required(f"{path}.items", "must be specified")
    if raw.get("x-kubernetes-embedded-resource") is True:
        if kind != "object":
            told = "must be object if x-kubernetes-embedded-resource is true"
            yield invalid(f"{path}.type", kind or "", told)
        if not raw.get("properties") and not free:
            told = (
                "must not be empty if x-kubernetes-embedded-resource is true without "
                "x-kubernetes-preserve-unknown-fields"
            )
            yield required(f"{path}.properties", told)
    for name, child in _direct(raw):
        yield from _structural(child, f"{path}.{name}")


def _metadata_rules(raw: Mapping[str, object], path: str) -> Iterator[FieldError]:
    metadata = part(dict(raw), "properties").get("metadata")
    if not isinstance(metadata, Mapping):
        return
    declared = part(dict(metadata), "properties")
    if set(declared) - {"name", "generateName"} or set(metadata) - {
        "type",
        "properties",
        "description",
        "title",
    }:
        told = (
            "must not specify anything other than name and generateName, but metadata is implicitly specified"
        )
        yield forbidden(f"{path}.properties[metadata]", told)


def _combined(raw: Mapping[str, object], path: str) -> Iterator[FieldError]:
    """What stands inside allOf, anyOf, oneOf and not may only narrow what is declared outside."""
    spoken = _said_twice(raw) if raw.get("x-kubernetes-int-or-string") is True else {}
    inner = [
        (f"{path}.{keyword}[{index}]", child)
        for keyword in _COMBINED
        for index, child in enumerate(_listed({**raw, **spoken}, keyword))
    ]
    negated = raw.get("not")
    if isinstance(negated, Mapping):
        inner.append((f"{path}.not", negated))
    for where, child in inner:
        yield from _narrowing(child, where)


def _said_twice(raw: Mapping[str, object]) -> Mapping[str, object]:
    """`raw` without the types that generators write beside int-or-string; there alone they are allowed."""
    if raw.get("anyOf") == _INT_OR_STRING:
        return {"anyOf": []}
    first, *others = _listed(raw, "allOf") or [{}]
    if first.get("anyOf") == _INT_OR_STRING:
        return {"allOf": [{**first, "anyOf": []}, *others]}
    return {}


def _narrowing(raw: Mapping[str, object], path: str) -> Iterator[FieldError]:
    for keyword in sorted(_INSIDE_COMBINED):
        if keyword in raw:
            told = (
                "must be undefined to be structural"
                if keyword == "default"
                else "must be empty to be structural"
            )
            yield forbidden(f"{path}.{keyword}", told)
    for name, child in _children(raw):
        yield from _narrowing(child, f"{path}.{name}")


def _default_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    default = schema.raw.get("default")
    if default is not None:
        for error in check_schema(default, schema):
            yield FieldError(error.type, f"{path}.default{_below(error.path)}", error.bad_value, error.detail)
    for name, child in schema.properties.items():
        yield from _default_errors(child, f"{path}.properties[{name}]")
    if schema.items is not None:
        yield from _default_errors(schema.items, f"{path}.items")
    if schema.additional is not None:
        yield from _default_errors(schema.additional, f"{path}.additionalProperties")


def _below(path: str) -> str:
    return "" if path in ("", "<nil>") else f".{path}"


def _direct(raw: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    properties = raw.get("properties")
    if isinstance(properties, Mapping):
        for name, child in properties.items():
            if isinstance(child, Mapping):
                yield f"properties[{name}]", child
    for keyword in ("items", "additionalProperties"):
        child = raw.get(keyword)
        if isinstance(child, Mapping):
            yield keyword, child


def _children(raw: Mapping[str, object]) -> Iterator[tuple[str, Mapping[str, object]]]:
    yield from _direct(raw)
    for keyword in _COMBINED:
        for index, child in enumerate(_listed(raw, keyword)):
            yield f"{keyword}[{index}]", child
    negated = raw.get("not")
    if isinstance(negated, Mapping):
        yield "not", negated


def _listed(raw: Mapping[str, object], keyword: str) -> list[Mapping[str, object]]:
    found = raw.get(keyword)
    return [child for child in found if isinstance(child, Mapping)] if isinstance(found, list) else []
