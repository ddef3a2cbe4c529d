"""From the bytes of a request to an object, or to an error that says what is wrong with them."""

import re

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.media import OFFERED, content_type
from argosy.local.apiserver.objects import Json
from argosy.local.apiserver.status import bad_request, unsupported_media_type

_PROTOBUF = "application/vnd.kubernetes.protobuf"


async def read_object(request: Request) -> Json:
    """The body as a JSON object, from JSON, YAML or protobuf."""
    raw, kind = await request.body(), content_type(request)
    if kind in ("", "application/json"):
        return parse_json(raw)
    if kind in ("application/yaml", "application/x-yaml"):
        return parse_yaml(raw)
    if kind == _PROTOBUF:
        from argosy.local.apiserver.protobuf import ProtobufError, decode

        try:
            return decode(raw)
        except ProtobufError as error:
            raise bad_request(str(error)) from error
    raise unsupported_media_type(OFFERED)


def parse_json(raw: bytes, prefix: str = "couldn't get version/kind; json parse error: ") -> Json:
    """A JSON object; anything else is a 400 whose message starts with `prefix`."""
    value = parse_value(raw, prefix)
    if not isinstance(value, dict):
        why = f"json: cannot unmarshal {go_kind(value)} into Go value of type map[string]interface {{}}"
        raise bad_request(prefix + why)
    return value


def parse_value(raw: bytes, prefix: str) -> object:
    """Any JSON value; what is none is a 400."""
    try:
        value: object = msgspec.json.decode(raw)
    except RecursionError:
        raise bad_request(f"{prefix}exceeded max depth") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(prefix + _go_message(raw, str(error))) from error
    return value


def _go_message(raw: bytes, message: str) -> str:
    """What Go says of the same mistake, where that is easy to tell."""
    if not raw.strip() or "truncated" in message:
        return "unexpected end of JSON input"
    at = re.search(r"\(byte (\d+)\)", message)
    if at and int(at[1]) < len(raw):
        character = raw[int(at[1]) : int(at[1]) + 1].decode("latin-1")
        if "trailing" in message:
            return f"invalid character '{character}' after top-level value"
        return f"invalid character '{character}' looking for beginning of value"
    return message


def parse_yaml(raw: bytes) -> Json:
    """A YAML (or JSON) object; anything else is a 400."""
    if raw[:1] == b"{":
        return parse_json(raw)
    import yaml

    try:
        value = yaml.load(raw, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both loaders are safe
        # Times and other YAML types become JSON as Kubernetes reads it: by their text.
        value = msgspec.to_builtins(value, str_keys=True)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    if not isinstance(value, dict):
        raise bad_request("error decoding YAML: json: cannot unmarshal the document into an object")
    return value


def go_kind(value: object) -> str:
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number" if value is not None else "null"
