"""Holds values against the chart's schema: the part of JSON Schema that it uses, all else is an error."""

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
    """What is wrong with a value, each with its path."""
    if unknown := set(schema) - _SUPPORTED_KEYWORDS:
        raise NotImplementedError(f"schema at {path or 'its root'}: {', '.join(sorted(unknown))}")
    where = path or "values"
    kind = str(schema["type"]) if "type" in schema else ""
    if kind and not _TYPES[kind](value):
        yield f"{where}: {_quote(value)} is not of type {kind}"
        return
    if isinstance(value, dict):
        yield from _object_errors(schema, value, path)
    elif isinstance(value, list):
        if len(value) < _number(schema, "minItems", 0):
            yield f"{where}: too few"
        items = schema.get("items")
        if isinstance(items, dict):
            for index, item in enumerate(value):
                yield from schema_errors(items, item, f"{path}[{index}]")
    else:
        yield from _scalar_errors(schema, value, where)


def _object_errors(schema: Mapping[str, object], value: Mapping[str, object], path: str) -> Iterator[str]:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    assert isinstance(properties, dict)
    required = schema.get("required", [])
    assert isinstance(required, list)
    for name in required:
        if name not in value:
            yield f"{_below(path, name)}: missing"
    for name, part in value.items():
        if name in properties:
            yield from schema_errors(properties[name], part, _below(path, name))
        elif others is False:
            yield f"{_below(path, name)}: there is no such value; there is {', '.join(properties)}"
        elif isinstance(others, dict):
            yield from schema_errors(others, part, _below(path, name))


def _scalar_errors(schema: Mapping[str, object], value: object, where: str) -> Iterator[str]:
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        yield f"{where}: {_quote(value)} is not one of {', '.join(map(str, choices))}"
    if isinstance(value, str):
        if len(value) < _number(schema, "minLength", 0):
            yield f"{where}: must not be empty"
        if not re.search(str(schema.get("pattern", "")), value):
            yield f"{where}: {_quote(value)} does not match {schema['pattern']}"
    if isinstance(value, int) and not isinstance(value, bool):
        least, most = _number(schema, "minimum", value), _number(schema, "maximum", value)
        if not least <= value <= most:
            yield f"{where}: {value} is not within {least} and {most}"


def _number(schema: Mapping[str, object], name: str, otherwise: int) -> int:
    value = schema.get(name, otherwise)
    assert isinstance(value, int)
    return value


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _quote(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)
