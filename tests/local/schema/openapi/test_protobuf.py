"""The bytes of the v2 document, byte by byte where its shape in JSON and in protobuf differ.

That real decoders read them is seen with kubectl; these cases say which field a byte belongs to.
"""

import pytest

from argosy.local.schema.model import Json
from argosy.local.schema.openapi.protobuf import encode_proto


def field(number: int, content: bytes) -> bytes:
    """A field with its length; numbers above 15 take two bytes."""
    key = number << 3 | 2
    tag = bytes((key,)) if key < 0x80 else bytes((key & 0x7F | 0x80, key >> 7))
    return tag + bytes((len(content),)) + content


def defined(schema: bytes) -> bytes:
    return field(9, field(1, field(1, b"A") + field(2, schema)))


SCHEMAS: dict[str, tuple[Json, bytes]] = {
    "a text": ({"format": "date"}, field(2, b"date")),
    "a type is wrapped": ({"type": "string"}, field(22, field(1, b"string"))),
    "a fraction has eight bytes": ({"maximum": 2.5}, b"\x39\x00\x00\x00\x00\x00\x00\x04\x40"),
    "a whole number for a fraction as well": ({"minimum": 1}, b"\x49\x00\x00\x00\x00\x00\x00\xf0\x3f"),
    "a count is short": ({"maxLength": 300}, b"\x58\xac\x02"),
    "yes is one": ({"exclusiveMaximum": True}, b"\x40\x01"),
    "each required field by itself": ({"required": ["a", "b"]}, b"\x9a\x01\x01a\x9a\x01\x01b"),
    "any value is YAML": ({"enum": ["a"]}, field(20, field(2, b'"a"'))),
    "an extension has a name": (
        {"x-kubernetes-list-map-keys": ["k"]},
        field(31, field(1, b"x-kubernetes-list-map-keys") + field(2, field(2, b'["k"]'))),
    ),
    "a map of schemas": (
        {"additionalProperties": {"format": "x"}},
        field(21, field(1, field(2, b"x"))),
    ),
    "a map of anything": ({"additionalProperties": True}, field(21, b"\x10\x01")),
    "a field": (
        {"properties": {"a": {"format": "x"}}},
        field(25, field(1, field(1, b"a") + field(2, field(2, b"x")))),
    ),
    "what has no number is left out": ({"nullable": True}, b""),
}


@pytest.mark.parametrize(("schema", "wanted"), SCHEMAS.values(), ids=SCHEMAS)
def test_schemas(schema: Json, wanted: bytes) -> None:
    assert encode_proto({"definitions": {"A": schema}}) == defined(wanted)


PARAMETERS: dict[str, tuple[Json, bytes]] = {
    "in the body": (
        {"in": "body", "name": "body", "required": True},
        field(1, field(1, field(3, b"body") + field(2, b"body") + b"\x20\x01")),
    ),
    "in the query": (
        {"in": "query", "name": "q", "type": "string"},
        field(1, field(2, field(3, field(2, b"query") + field(4, b"q") + field(6, b"string")))),
    ),
    "in the path": (
        {"in": "path", "name": "p", "type": "string"},
        field(1, field(2, field(4, field(2, b"path") + field(4, b"p") + field(5, b"string")))),
    ),
}


@pytest.mark.parametrize(("parameter", "wanted"), PARAMETERS.values(), ids=PARAMETERS)
def test_parameters(parameter: Json, wanted: bytes) -> None:
    path = field(9, wanted)
    assert encode_proto({"paths": {"/a": {"parameters": [parameter]}}}) == field(
        8, field(2, field(1, b"/a") + field(2, path))
    )


def test_a_value_of_a_wrong_type_is_not_sent() -> None:
    with pytest.raises(TypeError, match="text expected"):
        encode_proto({"definitions": {"A": {"format": 1}}})
