"""Filling Go structs from a map, as Kubernetes does with what a strategic merge patch gives.

What does not fit is told in other words than those of the JSON decoder, which reads everything else;
`decode` does the rest.
"""

import base64
import binascii

from argosy.local.schema.codec.decode import (
    ARRAY,
    BOOLEAN,
    BYTES,
    INT_OR_STRING,
    INTEGER,
    NUMBER,
    OBJECT,
    STRING,
    TIME,
    DecodeError,
    base64_problem,
    code_of,
    go_type,
    json_kind,
    read_time,
)
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.strategic_merge import GO_TYPES

_GO_KINDS = {dict: "map", list: "slice", str: "string", bool: "bool", int: "int64", float: "float64"}


def restore(obj: Json, schema: Schema) -> None:
    """Convert the values of an object in place; raises DecodeError for one that cannot be."""
    fields = schema.structure.properties
    # Go's structs have metadata before anything else.
    for name in ("metadata", *fields) if "metadata" in fields else fields:
        field = fields[name]
        if obj.get(name) is not None:
            obj[name] = _restored(obj[name], field)
    if schema.additional is not None:
        for name, value in obj.items():
            if value is not None and name not in schema.structure.properties:
                obj[name] = _restored(value, schema.additional)


def _restored(value: object, schema: Schema) -> object:
    code = code_of(schema)
    if code == OBJECT:
        if isinstance(value, dict):
            restore(value, schema)
            return value
        struct = bool(schema.structure.reference)
        word = "struct from:" if struct else "map from"
        raise DecodeError(f"cannot restore {word} {_GO_KINDS[type(value)]}")
    if code == ARRAY:
        if not isinstance(value, list):
            raise DecodeError(f"cannot restore slice from {_GO_KINDS[type(value)]}")
        items = schema.items
        return [_restored(item, items) if items and item is not None else item for item in value]
    if code in (STRING, INTEGER, NUMBER, BOOLEAN):
        return _scalar(value, code, schema)
    if code == TIME:
        return read_time(value, schema)
    if code == INT_OR_STRING and (isinstance(value, bool) or not isinstance(value, int | str)):
        raise DecodeError(f"json: cannot unmarshal {json_kind(value)} into Go value of type int32")
    if code == BYTES and not isinstance(value, str):
        raise DecodeError(f"cannot restore slice from {_GO_KINDS[type(value)]}")
    if code == BYTES:
        try:
            base64.b64decode(str(value), validate=True)
        except binascii.Error:
            raise DecodeError(f"error decoding from json: {base64_problem(str(value))}") from None
    return value


def _scalar(value: object, code: int, schema: Schema) -> object:
    if code == INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    if _fits(value, code):
        return value
    whole = isinstance(value, int) and not isinstance(value, bool)
    if (whole and code == STRING) or (isinstance(value, float) and code == INTEGER):
        # Go could, but would make a character of a number, or cut it off.
        raise DecodeError(f"cannot convert {GO_TYPES[type(value)]} to {go_type(schema)}")
    raise DecodeError(f"unrecognized type: {'string' if code == STRING else go_type(schema)}")


def _fits(value: object, code: int) -> bool:
    if isinstance(value, bool):
        return code == BOOLEAN
    if isinstance(value, str):
        return code == STRING
    return (isinstance(value, int) and code in (INTEGER, NUMBER)) or (
        isinstance(value, float) and code == NUMBER
    )
