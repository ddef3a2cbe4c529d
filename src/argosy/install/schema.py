"""Validates values against the chart's schema. Keywords of JSON Schema that the chart does not use raise."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final

_TYPES: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
}
_SUPPORTED_KEYWORDS: Final = frozenset(
    ("$schema", "type", "additionalProperties", "required", "properties", "items", "enum", "pattern")
) | {"minimum", "maximum", "minLength", "minItems"}


def schema_errors(schema: Mapping[str, object], value: object, path: str = "") -> Iterator[str]:
    """Yield the errors of a value, each with its path."""
    if unknown := set(schema) - _SUPPORTED_KEYWORDS:
        raise NotImplementedError(f"schema at {path or 'its root'}: {', '.join(sorted(unknown))}")
    value_path = path or "values"
    kind = str(schema["type"]) if "type" in schema else ""
    if kind and not _TYPES[kind](value):
        yield f"{value_path}: invalid value {_quote(value)}: must be of type {kind}"
        return
    if isinstance(value, dict):
        yield from _object_errors(schema, value, path)
    elif isinstance(value, list):
        if len(value) < _number(schema, "minItems", 0):
            yield f"{value_path}: must have at least {schema['minItems']} items"
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                yield from schema_errors(items, item, f"{path}[{index}]")
    else:
        yield from _scalar_errors(schema, value, value_path)


def _object_errors(schema: Mapping[str, object], value: Mapping[str, object], path: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    assert isinstance(properties, dict)
    required = schema.get("required", [])
    assert isinstance(required, list)
    for name in required:
        if name not in value:
            yield f"{_below(path, name)}: required"
    for name, part in value.items():
        if name in properties:
            yield from schema_errors(properties[name], part, _below(path, name))
        elif others is False:
            yield f"{_below(path, name)}: unknown value (known values: {', '.join(properties)})"
        elif isinstance(others, dict):
            yield from schema_errors(others, part, _below(path, name))


def _scalar_errors(schema: Mapping[str, object], value: object, path: str) -> Iterator[str]:
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield f"{path}: invalid value {_quote(value)}: must be one of {', '.join(map(str, choices))}"
    if isinstance(value, str):
        if len(value) < _number(schema, "minLength", 0):
            yield f"{path}: must not be empty"
        if not re.search(str(schema.get("pattern", "")), value):
            yield f"{path}: invalid value {_quote(value)}: must match {schema['pattern']}"
    if isinstance(value, int) and not isinstance(value, bool):
        minimum, maximum = _number(schema, "minimum", value), _number(schema, "maximum", value)
        if not minimum <= value <= maximum:
            yield f"{path}: invalid value {value}: must be {_range(schema)}"


def _number(schema: Mapping[str, object], name: str, default: int) -> int:
    value = schema.get(name, default)
    assert isinstance(value, int)
    return value


def _range(schema: Mapping[str, object]) -> str:
    """Describe which numbers are allowed."""
    minimum, maximum = schema.get("minimum"), schema.get("maximum")
    if maximum is None:
        return f"at least {minimum}"
    return f"at most {maximum}" if minimum is None else f"between {minimum} and {maximum}"


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _quote(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
