"""Parses request bodies in JSON, YAML or protobuf; an invalid one is a 400."""

import json

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.negotiation import OFFERED, content_type
from argosy.local.apiserver.status import StatusError, bad_request, unsupported_media_type
from argosy.local.schema.model import Json

_PROTOBUF = "application/vnd.kubernetes.protobuf"


async def read_object(request: Request, kind: str) -> Json:
    """Return the body as a JSON object; `kind` is the expected kind."""
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
        value = {} if raw.strip() == b"null" else parse_json(raw)
        if why := kind_problem(value):
            raise bad_request(why)
    except StatusError as error:
        message = f"the object provided is unrecognized (must be of type {kind}): {error.message}"
        raise bad_request(message) from error
    return value


def kind_problem(value: Json) -> str:
    """Return what is wrong with the apiVersion or kind of an object; empty if they are valid."""
    for field in ("apiVersion", "kind"):
        if not isinstance(value.get(field), str | None):
            return f"{field} must be a string"
    if str(value.get("apiVersion")).count("/") > 1:
        return f"unexpected GroupVersion string: {value['apiVersion']}"
    return ""


def parse_json(raw: bytes) -> Json:
    """Return a JSON object; anything else is a 400."""
    value = parse_value(raw)
    if not isinstance(value, dict):
        raise bad_request("json parse error: must be an object")
    return value


def parse_value(raw: bytes) -> object:
    """Return the JSON value of a body; anything else is a 400."""
    try:
        return msgspec.json.decode(raw)
    except RecursionError:
        raise bad_request("json parse error: exceeded max depth") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(f"json parse error: {error}") from error


def parse_yaml(raw: bytes) -> Json:
    """Return a YAML (or JSON) object; anything else is a 400."""
    if raw[:1] == b"{":
        try:
            return parse_json(raw)
        except StatusError:
            pass  # it may still be YAML
    import yaml

    from argosy.local.apiserver.yaml_body import load_first

    try:
        value = load_first(raw)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise bad_request(f"error decoding YAML: {error}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request("error decoding YAML: must be an object")
    return value


def duplicate_fields(raw: bytes, obj: object) -> list[str]:
    """Return the paths of keys that occur twice in the same object of a JSON body."""
    if b"\\u003" not in raw and raw.count(b":") == msgspec.json.encode(obj).count(b":"):
        return []  # decoding would have dropped the colon of a repeated key
    duplicates: list[str] = []

    def walk(value: object, path: str) -> None:
        if isinstance(value, list):
            for index, item in enumerate(value):
                walk(item, f"{path}[{index}]")
        if not isinstance(value, _Pairs):
            return
        keys: set[str] = set()
        for key, item in value.pairs:
            field = f"{path}.{key}" if path else key
            if key in keys:
                duplicates.append(field)
            keys.add(key)
            walk(item, field)

    walk(json.loads(raw, object_pairs_hook=_Pairs), "")
    return list(dict.fromkeys(duplicates))


class _Pairs:
    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs
