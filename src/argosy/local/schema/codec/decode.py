"""Converts a built-in object to the form that Kubernetes stores, and checks the types of its fields.

Kubernetes decodes into Go structs and encodes again, so that stored objects differ from those that were sent:
unknown fields, nulls and zero values of optional fields are dropped, structs that are not pointers are always
written, quantities have their canonical form. `decode` does all of this in one pass and in place.
"""

import base64
import binascii
from typing import cast

from msgspec import UNSET

from argosy.local.schema.codec.quantity import QuantityError, canonical
from argosy.local.schema.codec.times import TimeError, canonical_time
from argosy.local.schema.model import Json, Schema

STRING, INTEGER, NUMBER, BOOLEAN, OBJECT, ARRAY, QUANTITY, INT_OR_STRING, ANYTHING, BYTES, TIME = range(11)
QUANTITY_NAME = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_SMALL = 1 << 31
_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}


class DecodeError(Exception):
    """A value of the wrong type; the text names its path."""


def decode(obj: Json, schema: Schema) -> list[str]:
    """Convert the object in place to the form that Kubernetes stores; return the paths of unknown fields."""
    unknown: list[str] = []
    _object(obj, _plan(schema), "", unknown)
    return unknown


class _Plan:
    """How to decode an object: the type of each field, and its value when it is not set."""

    __slots__ = ("additional", "always", "fields")

    def __init__(self, schema: Schema) -> None:
        self.fields: dict[str, _Field] = {}
        self.always: list[tuple[str, object]] = []
        inner = schema.structure
        for name, field in inner.properties.items():
            self.fields[name] = _Field(field, name in inner.omit)
            if field.default is not UNSET and (name not in inner.omit or field.default):
                self.always.append((name, field.default))
            elif name in inner.null:
                self.always.append((name, None))
        extra = schema.additional
        self.additional = _Field(extra, omit=False) if extra is not None else None


class _Field:
    __slots__ = ("_plan", "code", "items", "omit", "open", "schema")

    def __init__(self, schema: Schema, omit: bool) -> None:
        self.schema = schema
        self.omit = omit
        self.code = code_of(schema)
        self._plan: _Plan | None = None
        self.items = (
            _Field(schema.items, omit=False) if self.code == ARRAY and schema.items is not None else None
        )
        # An object whose schema declares nothing can contain anything.
        self.open = self.code == OBJECT and not schema.properties and schema.additional is None

    @property
    def plan(self) -> _Plan:
        if self._plan is None:
            self._plan = _plan(self.schema)
        return self._plan


def _plan(schema: Schema) -> _Plan:
    holder = schema if schema.additional is not None else schema.structure
    plan = holder.compiled.get("plan")
    if plan is None:
        plan = holder.compiled["plan"] = _Plan(schema)
    assert isinstance(plan, _Plan)
    return plan


def code_of(schema: Schema) -> int:
    if schema.structure.reference == QUANTITY_NAME:
        return QUANTITY
    if schema.int_or_string:
        return INT_OR_STRING
    match schema.type:
        case "string":
            return {"byte": BYTES, "date-time": TIME}.get(schema.format, STRING)
        case "integer":
            return INTEGER
        case "number":
            return NUMBER
        case "boolean":
            return BOOLEAN
        case "array":
            return ARRAY
        case "object":
            return OBJECT
    return ANYTHING


def _object(obj: Json, plan: _Plan, path: str, unknown: list[str]) -> None:
    fields = plan.fields
    drop: list[str] | None = None
    for key, value in obj.items():
        field = fields.get(key)
        if field is None:
            if plan.additional is None:
                unknown.append(f"{path}{key}")
                drop = [key] if drop is None else [*drop, key]
                continue
            field = plan.additional
        code = field.code
        kind = value.__class__
        if (
            (code == STRING and kind is str)
            or (code == BOOLEAN and kind is bool)
            or (code == INTEGER and kind is int and -_SMALL <= cast("int", value) < _SMALL)
        ):
            if field.omit and not value:
                drop = [key] if drop is None else [*drop, key]
            continue
        if value is None:
            if field is not plan.additional:
                drop = [key] if drop is None else [*drop, key]
            elif code in (STRING, BYTES):
                obj[key] = ""
            continue
        result = _value(value, field, f"{path}{key}", unknown)
        if field.omit and (not result or result in ("", "0")) and code != QUANTITY:
            drop = [key] if drop is None else [*drop, key]
        elif result is not value:
            obj[key] = result
    if drop is not None:
        for key in drop:
            del obj[key]
    for name, default in plan.always:
        if name not in obj:
            if default.__class__ is dict:
                nested: Json = {}
                _object(nested, fields[name].plan, "", unknown)
                obj[name] = nested
            else:
                obj[name] = default


def _value(value: object, field: _Field, path: str, unknown: list[str]) -> object:
    code = field.code
    if code == OBJECT:
        if not isinstance(value, dict):
            raise _mismatch(value, field, path)
        if not field.open:
            _object(value, field.plan, path + ".", unknown)
        return value
    if code == ARRAY:
        if not isinstance(value, list):
            raise _mismatch(value, field, path)
        items = field.items
        if items is not None:
            _list(value, items, path, unknown)
        return value
    if code == QUANTITY:
        return _quantity(value, path)
    if code == INT_OR_STRING:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise _mismatch(value, field, path)
    if code == ANYTHING:
        return value
    return _scalar(value, field, path)


def _list(value: list[object], items: _Field, path: str, unknown: list[str]) -> None:
    code = items.code
    for index, item in enumerate(value):
        kind = item.__class__
        if code == OBJECT and kind is dict:
            if not items.open:
                assert isinstance(item, dict)
                _object(item, items.plan, f"{path}[{index}].", unknown)
        elif item is None:
            value[index] = _zero_value(items, unknown)
        elif not (code == STRING and kind is str):
            value[index] = _value(item, items, f"{path}[{index}]", unknown)


def _zero_value(field: _Field, unknown: list[str]) -> object:
    if field.code == OBJECT and not field.open:
        nested: Json = {}
        _object(nested, field.plan, "", unknown)
        return nested
    return {STRING: "", INTEGER: 0, NUMBER: 0, BOOLEAN: False}.get(field.code)


def _scalar(value: object, field: _Field, path: str) -> object:
    code = field.code
    if code == STRING and isinstance(value, str):
        return value
    if code == TIME and isinstance(value, str):
        try:
            return canonical_time(value, micro=field.schema.structure.reference.endswith("MicroTime"))
        except TimeError as error:
            raise DecodeError(f"{path}: {error}") from None
    if code == BYTES and isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise DecodeError(f"{path}: illegal base64 data: {error}") from None
        return value
    if code == NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if code == INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    if code == INTEGER and isinstance(value, int) and not isinstance(value, bool):
        bound = _SMALL if field.schema.format == "int32" else 1 << 63
        if -bound <= value < bound:
            return value
        raise DecodeError(f"{path}: {value} is out of range")
    if code == BOOLEAN and isinstance(value, bool):
        return value
    raise _mismatch(value, field, path)


def _quantity(value: object, path: str) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodeError(f"{path}: must be a quantity")
    try:
        return canonical(value if isinstance(value, str) else str(value))
    except QuantityError as error:
        raise DecodeError(f"{path}: {error}") from None


def _mismatch(value: object, field: _Field, path: str) -> DecodeError:
    wanted = "integer or string" if field.code == INT_OR_STRING else field.schema.type
    return DecodeError(f"{path}: must be of type {wanted}, got {_TYPES.get(type(value), 'null')}")
