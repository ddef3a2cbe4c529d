"""The OpenAPI v2 document in protobuf, which is all that kubectl reads.

One table says where the fields of a message go; its numbers are those of OpenAPIv2.proto in gnostic-models.
Values of any shape (enums, examples, extensions) travel as YAML, so they go as the JSON that they are. What
the table does not name is left out.
"""

import struct
from collections.abc import Iterator
from functools import cache
from typing import Final

import msgspec

from argosy.local.schema.model import Json

# A field's number, then those inside of messages that only wrap it; and its type (* a list, % a map).
_SCHEMA: Final = {
    "$ref": "1 text",
    "format": "2 text",
    "title": "3 text",
    "description": "4 text",
    "multipleOf": "6 double",
    "maximum": "7 double",
    "exclusiveMaximum": "8 integer",
    "minimum": "9 double",
    "exclusiveMinimum": "10 integer",
    "maxLength": "11 integer",
    "minLength": "12 integer",
    "pattern": "13 text",
    "maxItems": "14 integer",
    "minItems": "15 integer",
    "uniqueItems": "16 integer",
    "maxProperties": "17 integer",
    "minProperties": "18 integer",
    "required": "19 *text",
    "enum": "20 *any",
    "additionalProperties": "21 Additional",
    "type": "22.1 text",
    "items": "23.1 Schema",
    "properties": "25.1 %Schema",
    "externalDocs": "29 Docs",
    "example": "30 any",
    "x-": "31 %any",
}
_PATH: Final = {
    "get": "2 Operation",
    "put": "3 Operation",
    "post": "4 Operation",
    "delete": "5 Operation",
    "patch": "8 Operation",
    "parameters": "9 *Parameter",
}
_OPERATION: Final = {
    "tags": "1 *text",
    "operationId": "5 text",
    "produces": "6 *text",
    "consumes": "7 *text",
    "parameters": "8 *Parameter",
    "responses": "9.1 %Response",
    "schemes": "10 *text",
    "x-": "13 %any",
}
_MESSAGES: Final = {
    "Document": {"swagger": "1 text", "info": "2 Info", "paths": "8.2 %Path", "definitions": "9.1 %Schema"},
    "Info": {"title": "1 text", "version": "2 text"},
    "Docs": {"description": "1 text", "url": "2 text"},
    "Schema": _SCHEMA,
    "Additional": {"schema": "1 Schema", "boolean": "2 integer"},
    "Path": _PATH,
    "Operation": _OPERATION,
    "Parameter": {"body": "1.1 Body", "query": "1.2.3 Query", "path": "1.2.4 Named"},
    "Body": {"name": "2 text", "in": "3 text", "required": "4 integer", "schema": "5 Schema"},
    "Query": {"in": "2 text", "name": "4 text", "type": "6 text", "uniqueItems": "20 integer"},
    "Named": {"required": "1 integer", "in": "2 text", "name": "4 text", "type": "5 text"},
    "Response": {"answer": "1 Answer"},
    "Answer": {"description": "1 text", "schema": "2.1 Schema"},
}


def encode_proto(document: Json) -> bytes:
    """A document of OpenAPI v2 as the message `Document`."""
    return _message("Document", document)


def _message(name: str, value: Json) -> bytes:
    fields = _MESSAGES[name]
    parts: list[bytes] = []
    extensions: Json = {}
    for key, item in value.items():
        if key in fields:
            parts.append(_field(fields[key], item))
        elif key.startswith("x-"):
            extensions[key] = item
    if extensions and "x-" in fields:
        parts.append(_field(fields["x-"], extensions))
    return b"".join(parts)


def _field(place: str, value: object) -> bytes:
    numbers, mark, type_ = _parsed(place)
    encoded = b"".join(_tagged(numbers[-1], item) for item in _items(mark, type_, value))
    for number in reversed(numbers[:-1]):
        encoded = _tagged(number, encoded)
    return encoded


def _items(mark: str, type_: str, value: object) -> Iterator[int | float | bytes]:
    if mark == "%" and isinstance(value, dict):
        for name, item in value.items():
            yield _tagged(1, name.encode()) + _tagged(2, _value(type_, item))
    elif mark == "*" and isinstance(value, list):
        for item in value:
            yield _value(type_, item)
    else:
        yield _value(type_, value)


def _value(type_: str, value: object) -> int | float | bytes:
    match type_, value:
        case "text", str():
            return value.encode()
        case "double", int() | float():
            return float(value)
        case "integer", int():
            return int(value)
        case "any", _:
            return _tagged(2, msgspec.json.encode(value))
        case "Additional", _:
            return _message(type_, {"boolean" if isinstance(value, bool) else "schema": value})
        case "Parameter", {"in": str(kind)}:
            return _message(type_, {kind: value})
        case "Response", _:
            return _message(type_, {"answer": value})
        case _, dict():
            return _message(type_, value)
    raise TypeError(f"{type_} expected, not {value!r}")


def _tagged(number: int, value: int | float | bytes) -> bytes:
    """A field as it stands in a message: numbers by their type, all else with its length."""
    if isinstance(value, bytes):
        return _varint(number << 3 | 2) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(number << 3 | 1) + struct.pack("<d", value)
    return _varint(number << 3) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _varint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "little")
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


@cache
def _parsed(place: str) -> tuple[tuple[int, ...], str, str]:
    numbers, type_ = place.split(" ")
    mark = type_[0] if type_[0] in "*%" else ""
    return tuple(map(int, numbers.split("."))), mark, type_.removeprefix(mark)
