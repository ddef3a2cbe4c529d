"""Checks that the schema of a CustomResourceDefinition is structural.

A structural schema declares a type for every field, and nothing but validations inside allOf, anyOf, oneOf
and not. Paths and reasons of errors are those of kube-apiserver.
"""

import re
from collections.abc import Iterator, Mapping

from argosy.local.schema.crd.cel import rule_errors
from argosy.local.schema.crd.validate import check_schema
from argosy.local.schema.errors import FieldError, forbidden, invalid, not_supported, required
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.unstructured import get_map, get_maps, get_strings

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_UNSUPPORTED = (
    *("$ref", "$schema", "additionalItems", "definitions", "dependencies", "id", "patternProperties"),
)
_COMBINED = ("allOf", "anyOf", "oneOf")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_ONLY_OUTSIDE_COMBINED = (
    *("type", "default", "title", "description", "nullable", "additionalProperties"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string"),
)


def schema_errors(raw: Json, path: str) -> list[FieldError]:
    """Return all errors of the schema of a custom resource."""
    errors = list(_node_errors(raw, path))
    if not raw.get("type"):
        errors.append(required(f"{path}.type", "must not be empty at the root"))
    elif raw["type"] != "object":
        errors.append(invalid(f"{path}.type", raw["type"], "must be object at the root"))
    metadata = get_map(raw, "properties").get("metadata")
    if isinstance(metadata, dict) and (
        set(get_map(metadata, "properties")) - {"name", "generateName"}
        or set(metadata) - {"type", "properties", "description", "title"}
    ):
        why = "must not specify anything other than name and generateName"
        errors.append(forbidden(f"{path}.properties[metadata]", why))
    return errors or list(_default_errors(Schema(raw), path)) or rule_errors(Schema(raw), path)


def _node_errors(raw: Json, path: str, *, combined: bool = False) -> Iterator[FieldError]:
    for keyword in _UNSUPPORTED:
        if raw.get(keyword):
            yield forbidden(f"{path}.{keyword}", f"{keyword} is not supported")
    if raw.get("uniqueItems") is True:
        yield forbidden(f"{path}.uniqueItems", "uniqueItems cannot be set to true")
    if isinstance(raw.get("additionalProperties"), dict) and raw.get("properties"):
        yield forbidden(f"{path}.additionalProperties", "additionalProperties and properties are exclusive")
    if raw.get("type") and raw["type"] not in TYPES:
        yield not_supported(f"{path}.type", raw["type"], TYPES)
    if isinstance(pattern := raw.get("pattern"), str):
        try:
            re.compile(pattern)
        except re.error as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression: {error}")
    yield from _list_errors(raw, path)
    for keyword in sorted(_ONLY_OUTSIDE_COMBINED) if combined else ():
        if keyword in raw:
            yield forbidden(f"{path}.{keyword}", "must be empty to be structural")
    for name, child in _fields(raw):
        if not combined:
            yield from _type_errors(child, f"{path}.{name}")
        yield from _node_errors(child, f"{path}.{name}", combined=combined)
    for name, child in _combined_schemas(raw):
        yield from _node_errors(child, f"{path}.{name}", combined=True)


def _type_errors(raw: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of the type of a field, list item or map value."""
    kind, preserves = raw.get("type"), raw.get("x-kubernetes-preserve-unknown-fields") is True
    untyped = preserves or raw.get("x-kubernetes-int-or-string") is True or "$ref" in raw
    if not kind and not untyped:
        yield required(f"{path}.type", "must not be empty for specified fields and items")
    if kind == "array" and not isinstance(raw.get("items"), dict):
        yield required(f"{path}.items", "must be specified")
    if raw.get("x-kubernetes-embedded-resource") is True:
        if kind != "object":
            yield invalid(f"{path}.type", kind, "must be object if x-kubernetes-embedded-resource is true")
        if not raw.get("properties") and not preserves:
            yield required(f"{path}.properties", "must not be empty if unknown fields are not preserved")


def _list_errors(raw: Json, path: str) -> Iterator[FieldError]:
    map_type = raw.get("x-kubernetes-map-type")
    if map_type not in (None, "atomic", "granular"):
        yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
    list_type, keys = raw.get("x-kubernetes-list-type"), get_strings(raw, "x-kubernetes-list-map-keys")
    if list_type is not None and raw.get("type") != "array":
        yield invalid(f"{path}.type", raw.get("type"), "must be array if x-kubernetes-list-type is specified")
    if list_type not in (None, "atomic", "set", "map"):
        yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
    if list_type == "map" and not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty for a list of type map")
    if keys and list_type != "map":
        yield invalid(f"{path}.x-kubernetes-list-type", list_type, "must be map if there are map keys")
    items = get_map(raw, "items")
    if list_type == "set" and items.get("type") in ("object", "array"):
        keyword = "x-kubernetes-map-type" if items["type"] == "object" else "x-kubernetes-list-type"
        if items.get(keyword) != "atomic":
            yield invalid(f"{path}.items.{keyword}", items.get(keyword), "must be atomic in a set")
    if list_type == "map" and items:
        yield from _map_item_errors(items, keys, path)


def _map_item_errors(items: Json, keys: list[str], path: str) -> Iterator[FieldError]:
    if items.get("type") != "object":
        yield invalid(f"{path}.items.type", items.get("type"), "must be object in a list of type map")
        return
    for key in keys:
        child = get_map(items, "properties").get(key)
        if not isinstance(child, dict):
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must be names of item properties")
        elif "default" not in child and key not in get_strings(items, "required"):
            why = "must have a default or be required, as it is a map key"
            yield required(f"{path}.items.properties[{key}].default", why)


def _default_errors(schema: Schema, path: str) -> Iterator[FieldError]:
    default = schema.raw.get("default")
    for error in check_schema(default, schema) if default is not None else ():
        below = "" if error.path in ("", "<nil>") else f".{error.path}"
        yield FieldError(error.type, f"{path}.default{below}", error.bad_value, error.detail)
    for name, child in schema.properties.items():
        yield from _default_errors(child, f"{path}.properties[{name}]")
    if schema.items is not None:
        yield from _default_errors(schema.items, f"{path}.items")
    if schema.additional is not None:
        yield from _default_errors(schema.additional, f"{path}.additionalProperties")


def _fields(raw: Mapping[str, object]) -> Iterator[tuple[str, Json]]:
    """Yield the schemas of properties, list items and map values."""
    for name, child in get_map(raw, "properties").items():
        if isinstance(child, dict):
            yield f"properties[{name}]", child
    for keyword in ("items", "additionalProperties"):
        if isinstance(child := raw.get(keyword), dict):
            yield keyword, child


def _combined_schemas(raw: Json) -> Iterator[tuple[str, Json]]:
    """Yield the schemas inside allOf, anyOf, oneOf and not.

    Types that generators write next to x-kubernetes-int-or-string are left out; they are allowed there only.
    """
    int_or_string = raw.get("x-kubernetes-int-or-string") is True
    for keyword in _COMBINED:
        if int_or_string and keyword == "anyOf" and raw.get(keyword) == _INT_OR_STRING:
            continue
        for index, child in enumerate(get_maps(raw, keyword)):
            if int_or_string and (keyword, index) == ("allOf", 0) and child.get("anyOf") == _INT_OR_STRING:
                child = {name: value for name, value in child.items() if name != "anyOf"}
            yield f"{keyword}[{index}]", child
    if isinstance(negated := raw.get("not"), dict):
        yield "not", negated
