"""From the bytes of a request to an object, or to an error that says what is wrong with them."""

import json
import re

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.media import OFFERED, content_type
from argosy.local.apiserver.status import StatusError, bad_request, unsupported_media_type
from argosy.local.schema.model import Json

_PROTOBUF = "application/vnd.kubernetes.protobuf"


async def read_object(request: Request, kind: str) -> Json:
    """The body as a JSON object, from JSON, YAML or protobuf; `kind` is what it should be."""
    raw, media = await request.body(), content_type(request)
    if media in ("", "application/json"):
        return _parse_typed(raw, kind)
    if media in ("application/yaml", "application/x-yaml"):
        return parse_yaml(raw)
    if media == _PROTOBUF:
        from argosy.local.apiserver.protobuf import ProtobufError, decode

        try:
            return decode(raw)
        except ProtobufError as error:
            raise bad_request(str(error)) from error
    raise unsupported_media_type(OFFERED)


def _parse_typed(raw: bytes, kind: str) -> Json:
    try:
        value = parse_value(raw, "couldn't get version/kind; json parse error: ")
        if value is None:
            return {}
        if not isinstance(value, dict):
            why = f"json: cannot unmarshal {go_kind(value)} into Go value of type struct"
            raise bad_request(f"couldn't get version/kind; json parse error: {why}")
    except StatusError as error:
        message = f"the object provided is unrecognized (must be of type {kind}): {error.message}"
        raise bad_request(f"{message} ({_summary(raw)})") from error
    return value


def _summary(raw: bytes) -> str:
    """The beginning of a body as Kubernetes shows it."""
    if not raw:
        return "<empty>"
    shown = raw[:30].decode("utf-8", "replace") if raw[:1] == b"{" else raw[:30].hex()
    return shown + (" ..." if len(raw) > 30 else "")


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
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number" if value is not None else "null"


def duplicate_fields(raw: bytes, obj: Json) -> list[str]:
    """Paths of keys that stand twice in the same object of a JSON body."""
    if b"\\u003" not in raw and raw.count(b":") == msgspec.json.encode(obj).count(b":"):
        return []  # a key that is there twice would have taken its colon with it
    found: list[str] = []

    def walk(value: object, path: str) -> object:
        if isinstance(value, list):
            return [walk(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if not isinstance(value, _Pairs):
            return value
        seen: set[str] = set()
        for key, item in value.pairs:
            place = f"{path}.{key}" if path else key
            if key in seen:
                found.append(place)
            seen.add(key)
            walk(item, place)
        return None

    walk(json.loads(raw, object_pairs_hook=_Pairs), "")
    return list(dict.fromkeys(found))


class _Pairs:
    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs
