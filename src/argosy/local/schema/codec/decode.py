"""Reading a built-in object as Go would read and write it back.

Kubernetes decodes into typed structs and encodes again, so that what is stored differs from what was sent
in small ways that clients see: unknown fields are gone, nulls and zero values of optional fields are gone,
structs that are always there are there, quantities have their canonical form. `decode` does all of it in
one pass and in place.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import cast

from msgspec import UNSET

from argosy.local.schema.codec.quantity import NO_QUANTITY, QuantityError, canonical
from argosy.local.schema.codec.times import TimeError, canonical_time
from argosy.local.schema.model import Json, Schema

STRING, INTEGER, NUMBER, BOOLEAN, OBJECT, ARRAY, QUANTITY, INT_OR_STRING, ANYTHING, BYTES, TIME = range(11)
QUANTITY_NAME = "io.k8s.apimachinery.pkg.api.resource.Quantity"

_SMALL = 1 << 31
_WORDS = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def json_kind(value: object) -> str:
    """A value's type in the words of Go's decoder."""
    return _WORDS.get(type(value), "value")


class DecodeError(Exception):
    """A value of the wrong type; the text is what Go's decoder says."""


class MismatchError(DecodeError):
    """A value that does not fit its field; Go reads on after it."""


def decode(obj: Json, schema: Schema, kind: str = "") -> list[str]:
    """Bring the object into the form that Kubernetes stores, in place; return the paths of unknown fields."""
    unknown: list[str] = []
    try:
        _object(obj, _plan(schema), "", unknown, kind)
    except MismatchError:
        # Go goes on after a value of the wrong type, but not after a time or quantity that it cannot read.
        _read_values(obj, schema, "", kind)
        raise
    return unknown


def _read_values(value: object, schema: Schema, path: str, owner: str) -> None:
    """Raise DecodeError for the first value that its own type cannot read."""
    if isinstance(value, dict):
        owner = schema.structure.reference.rsplit(".", 1)[-1] or owner
        for name, item in value.items():
            child = schema.structure.properties.get(name) or schema.additional
            if child is not None:
                _read_values(item, child, f"{path}.{name}" if path else name, owner)
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            _read_values(item, schema.items, path, owner)
    elif value is not None:
        code = code_of(schema)
        if code == TIME:
            read_time(value, schema, f"struct field {owner}.{path}")
        elif code == QUANTITY:
            _quantity(value)


class _Plan:
    """How to read one object: what each field is, and what is written when it is not set."""

    __slots__ = ("additional", "always", "fields", "name")

    def __init__(self, schema: Schema) -> None:
        self.name = schema.structure.reference.rsplit(".", 1)[-1]
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
        # An object of which the schema says nothing holds anything.
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


def _object(obj: Json, plan: _Plan, path: str, unknown: list[str], owner: str) -> None:
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
        # Go's errors name the map that a scalar stands in, not its key.
        here = f"{path}{key}" if field is not plan.additional or code in (OBJECT, ARRAY) else path[:-1]
        result = _value(value, field, here, unknown, plan.name or owner)
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
                made: Json = {}
                _object(made, fields[name].plan, "", unknown, plan.name)
                obj[name] = made
            else:
                obj[name] = default


def _value(value: object, field: _Field, path: str, unknown: list[str], owner: str) -> object:
    code = field.code
    if code == OBJECT:
        if not isinstance(value, dict):
            raise _mismatch(value, field, path, owner)
        if not field.open:
            _object(value, field.plan, path + ".", unknown, owner)
        return value
    if code == ARRAY:
        if not isinstance(value, list):
            raise _mismatch(value, field, path, owner)
        items = field.items
        if items is not None:
            _list(value, items, path, unknown, owner)
        return value
    if code == QUANTITY:
        return _quantity(value)
    if code == INT_OR_STRING:
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            return value
        raise _mismatch(value, field, path, owner)
    if code == ANYTHING:
        return value
    return _scalar(value, field, path, owner)


def _list(value: list[object], items: _Field, path: str, unknown: list[str], owner: str) -> None:
    code = items.code
    for index, item in enumerate(value):
        kind = item.__class__
        if code == OBJECT and kind is dict:
            if not items.open:
                assert isinstance(item, dict)
                _object(item, items.plan, f"{path}[{index}].", unknown, owner)
        elif item is None:
            value[index] = _nothing(items, unknown)
        elif not (code == STRING and kind is str):
            value[index] = _value(item, items, path, unknown, owner)


def _nothing(field: _Field, unknown: list[str]) -> object:
    if field.code == OBJECT and not field.open:
        made: Json = {}
        _object(made, field.plan, "", unknown, "")
        return made
    return {STRING: "", INTEGER: 0, NUMBER: 0, BOOLEAN: False}.get(field.code)


def _scalar(value: object, field: _Field, path: str, owner: str) -> object:
    code = field.code
    if code == STRING and isinstance(value, str):
        return value
    if code == TIME:
        return read_time(value, field.schema, f"struct field {owner}.{_plain(path)}")
    if code == BYTES and isinstance(value, str):
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error:
            raise MismatchError(base64_problem(value)) from None
        return value
    if code == NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if code == INTEGER and isinstance(value, float) and value.is_integer():
        return int(value)
    if code == INTEGER and isinstance(value, float):
        raise MismatchError(
            f"json: cannot unmarshal number {value} into Go struct field {owner}.{_plain(path)} of type "
            f"{go_type(field.schema)}"
        )
    if code == INTEGER and isinstance(value, int) and not isinstance(value, bool):
        bound = _SMALL if field.schema.format == "int32" else 1 << 63
        if -bound <= value < bound:
            return value
        into = f"Go struct field {owner}.{_plain(path)} of type {go_type(field.schema)}"
        raise MismatchError(f"json: cannot unmarshal number {value} into {into}")
    if code == BOOLEAN and isinstance(value, bool):
        return value
    raise _mismatch(value, field, path, owner)


def read_time(value: object, schema: Schema, where: str = "value") -> object:
    """A time in its canonical form; `where` is what Go calls the place it stands in."""
    if not isinstance(value, str):
        raise DecodeError(f"json: cannot unmarshal {json_kind(value)} into Go {where} of type string")
    try:
        return canonical_time(value, micro=schema.structure.reference.endswith("MicroTime"))
    except TimeError as error:
        raise DecodeError(str(error)) from None


def base64_problem(value: str) -> str:
    """What Go says of the first byte that is wrong; of an unfinished group, that is its first."""
    wrong = next((index for index, char in enumerate(value) if char not in _BASE64), len(value))
    if wrong == len(value):
        wrong -= wrong % 4
    elif value[wrong] == "=" and wrong % 4 == 2 and value[wrong + 1 :] == "":
        wrong = len(value)
    elif value[wrong] == "=" and wrong % 4 > 1:
        # Padding where it may be: what comes after it is wrong.
        wrong = wrong + 1 if wrong % 4 == 3 else wrong + 2 * (value[wrong + 1] == "=")
    return f"illegal base64 data at input byte {wrong}"


_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


def _quantity(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodeError(NO_QUANTITY)
    try:
        return canonical(value if isinstance(value, str) else str(value))
    except QuantityError as error:
        raise DecodeError(str(error)) from None


def _mismatch(value: object, field: _Field, path: str, owner: str) -> MismatchError:
    return MismatchError(
        f"json: cannot unmarshal {json_kind(value)} into Go struct field {owner}.{_plain(path)} of type "
        f"{go_type(field.schema)}"
    )


def _plain(path: str) -> str:
    """A path as Go prints it: without indexes."""
    return "".join(part.split("]", 1)[-1] for part in path.split("["))


def go_type(schema: Schema) -> str:
    reference = schema.structure.reference
    if reference == QUANTITY_NAME:
        return "resource.Quantity"
    if reference:
        parts = reference.split(".")
        return f"{parts[-2]}.{parts[-1]}"
    if schema.go_type:
        return schema.go_type
    if schema.type == "array" and schema.items is not None:
        return f"[]{go_type(schema.items)}"
    if schema.type == "object":
        inner = schema.additional
        return f"map[string]{go_type(inner)}" if inner is not None else "map[string]interface {}"
    names: Mapping[str, str] = {"boolean": "bool", "number": "float64", "string": "string"}
    if schema.type == "integer":
        return schema.format or "int"
    return "[]uint8" if schema.format == "byte" else names.get(schema.type, "interface {}")
