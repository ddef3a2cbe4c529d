"""Decodes protobuf bodies to JSON objects, because some commands of kubectl send nothing else.

The decoder uses a generated table of field numbers. Clients send unset fields as zeros; those that JSON would
omit are omitted, so that the object is the same as from JSON.
"""

import base64
import datetime
from functools import cache
from importlib.resources import files

import msgspec

from argosy.local.schema.builtin import builtin_kind, definition, definition_json
from argosy.local.schema.model import Json

_MAGIC = b"k8s\0"
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_ZEROS: tuple[object, ...] = ("", 0, False, None, {}, [])


class _Table(msgspec.Struct):
    messages: dict[str, dict[str, str]]


class ProtobufError(ValueError):
    """The bytes are not a valid message."""


def decode(raw: bytes) -> Json:
    """Return the object in a `k8s` protobuf envelope."""
    if not raw.startswith(_MAGIC):
        raise ProtobufError("not a protobuf message of Kubernetes: it must start with k8s\\0")
    envelope = _fields(raw[len(_MAGIC) :])
    kind_fields = _fields(_bytes(envelope.get(1, [b""])[0]))
    api_version, kind = (_text(kind_fields.get(number, [b""])[0]) for number in (1, 2))
    group, _, version = api_version.rpartition("/")
    name = _META + "DeleteOptions" if kind == "DeleteOptions" else ""
    if info := builtin_kind(group, version, kind):
        name = info.definition
    elif kind in ("Scale", "Eviction", "TokenRequest", "Binding"):
        name = next((message for message in _table() if message.endswith(f".{version}.{kind}")), "")
    if name not in _table():
        raise ProtobufError(f'no kind "{kind}" is registered for version "{api_version}"')
    obj = _message(name, _bytes(envelope.get(2, [b""])[0]))
    assert isinstance(obj, dict)
    return {"kind": kind, "apiVersion": api_version, **obj}


def _message(name: str, raw: bytes) -> object:
    if special := _special(name, raw):
        return special[0]
    described = _table()[name]
    omit = definition(name).omit if name in definition_json() else frozenset()
    obj: Json = {}
    for number, values in _fields(raw).items():
        field = described.get(str(number))
        if field is None:
            continue
        label, type_ = field.split(" ")
        mark, label = (label[0], label[1:]) if label[0] in "*%^" else ("", label)
        if mark == "^":
            inside = _message(type_, _bytes(values[-1]))
            assert isinstance(inside, dict)
            obj.update(inside)
            continue
        value = _field(mark, type_, values)
        if value is not None and not (label in omit and value in _ZEROS):
            obj[label] = value
    return obj


def _field(mark: str, type_: str, values: list[int | bytes]) -> object:
    if mark == "*":
        return [_value(type_, value) for value in values]
    if mark == "%":
        entries = [_fields(_bytes(value)) for value in values]
        return {_text(entry.get(1, [b""])[0]): _value(type_, entry.get(2, [b""])[0]) for entry in entries}
    return _value(type_, values[-1])


def _value(type_: str, value: int | bytes) -> object:
    if "." in type_:
        return _message(type_, _bytes(value))
    if type_ == "string":
        return _text(value)
    if type_ == "bytes":
        return base64.b64encode(_bytes(value)).decode()
    if not isinstance(value, int):
        raise ProtobufError(f"a number was expected where {len(value)} bytes are")
    if type_ == "bool":
        return bool(value)
    return value - (1 << 64) if value >= 1 << 63 else value


def _special(name: str, raw: bytes) -> tuple[object] | None:
    """Return the value of a message that is not an object in JSON, in a tuple."""
    fields = _fields(raw) if name in _SCALARS or name.endswith(".ExtraValue") else {}
    match name.removeprefix("io.k8s.apimachinery.pkg."):
        case "apis.meta.v1.Time":
            return (_time(fields, "%Y-%m-%dT%H:%M:%SZ"),)
        case "apis.meta.v1.MicroTime":
            return (_time(fields, "%Y-%m-%dT%H:%M:%S.%fZ"),)
        case "api.resource.Quantity":
            return (_text(fields.get(1, [b""])[-1]),)
        case "util.intstr.IntOrString":
            if fields.get(1, [0])[-1]:
                return (_text(fields.get(3, [b""])[-1]),)
            return (_value("int32", fields.get(2, [0])[-1]),)
        case "apis.meta.v1.FieldsV1" | "runtime.RawExtension":
            return (msgspec.json.decode(_bytes(fields.get(1, [b"{}"])[-1]) or b"null"),)
    if name.endswith(".ExtraValue"):
        return ([_text(value) for value in fields.get(1, [])],)
    return None


_SCALARS = frozenset(
    {
        _META + "Time",
        _META + "MicroTime",
        _META + "FieldsV1",
        "io.k8s.apimachinery.pkg.api.resource.Quantity",
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
    }
)


def _time(fields: dict[int, list[int | bytes]], shape: str) -> str | None:
    if not fields:
        return None
    seconds, nanos = fields.get(1, [0])[-1], fields.get(2, [0])[-1]
    assert isinstance(seconds, int)
    assert isinstance(nanos, int)
    if seconds >= 1 << 63:
        return None  # the zero time of Go, which means unset
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC).replace(microsecond=nanos // 1000)
    return moment.strftime(shape)


def _fields(raw: bytes) -> dict[int, list[int | bytes]]:
    """Return the fields of a message: numbers or bytes by field number."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(raw):
        key, at = _varint(raw, at)
        value: int | bytes
        match key & 7:
            case 0:
                value, at = _varint(raw, at)
            case 1:
                value, at = int.from_bytes(raw[at : at + 8], "little"), at + 8
            case 2:
                size, at = _varint(raw, at)
                value, at = raw[at : at + size], at + size
            case 5:
                value, at = int.from_bytes(raw[at : at + 4], "little"), at + 4
            case wire:
                raise ProtobufError(f"proto: illegal wireType {wire}")
        if at > len(raw):
            raise ProtobufError("unexpected EOF")
        fields.setdefault(key >> 3, []).append(value)
    return fields


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw):
            raise ProtobufError("unexpected EOF")
        byte = raw[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise ProtobufError("proto: integer overflow")


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ProtobufError("proto: a message was expected where a number is")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode("utf-8", "replace")


@cache
def _table() -> dict[str, dict[str, str]]:
    raw = files("argosy.local.apiserver").joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(raw, type=_Table).messages
