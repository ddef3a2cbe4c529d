"""From the bytes of a request to an object, or to an error that says what is wrong with them."""

import json
import re

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.negotiation import OFFERED, content_type
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
        value = parse_value(raw, NO_KIND)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise bad_request(
                f"{NO_KIND}json: cannot unmarshal {go_kind(value)} into Go value of type {STRUCT}"
            )
        if why := kind_problem(value):
            raise bad_request(why)
    except StatusError as error:
        message = f"the object provided is unrecognized (must be of type {kind}): {error.message}"
        raise bad_request(f"{message} ({_summary(raw)})") from error
    return value


NO_KIND = "couldn't get version/kind; json parse error: "
STRUCT = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


def kind_problem(value: Json) -> str:
    """What Go says of a kind or version that is no text."""
    for field, given in value.items():
        if field in ("apiVersion", "kind") and given is not None and not isinstance(given, str):
            where = f"Go struct field .{field} of type string"
            return f"{NO_KIND}json: cannot unmarshal {go_kind(given)} into {where}"
    if str(value.get("apiVersion")).count("/") > 1:
        return f"unexpected GroupVersion string: {value['apiVersion']}"
    return ""


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
    if told := _broken_literal(raw.decode("utf-8", "replace").lstrip()):
        return told
    at = re.search(r"\(byte (\d+)\)", message)
    if at and int(at[1]) < len(raw):
        character = go_character(raw[int(at[1]) : int(at[1]) + 1].decode("latin-1"))
        if "trailing" in message:
            text = raw.decode("latin-1").lstrip(" \t\r\n")
            after = go_character(text[json.JSONDecoder().raw_decode(text)[1] :].lstrip(" \t\r\n")[:1])
            return f"invalid character '{after}' after top-level value"
        return f"invalid character '{character}' looking for beginning of value"
    return message


def go_character(character: str) -> str:
    """A byte as Go shows it."""
    return character if character.isprintable() else f"\\u{ord(character):04x}"


def _broken_literal(text: str) -> str:
    """A text that begins like one of JSON's words and goes on in another way."""
    word = next((word for word in ("null", "true", "false") if word[0] == text[0]), "")
    for index, meant in enumerate(word):
        if text[index : index + 1] != meant:
            return f"invalid character '{text[index]}' in literal {word} (expecting '{meant}')"
    return ""


def parse_yaml(raw: bytes) -> Json:
    """A YAML (or JSON) object; anything else is a 400."""
    if raw[:1] == b"{":
        try:
            return parse_json(raw)
        except StatusError:
            pass  # what is no JSON may still be YAML
    import yaml

    from argosy.local.apiserver.yaml_body import load_first

    try:
        value = load_first(raw)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        raise bad_request(f"error decoding YAML: {_yaml_problem(error)}") from error
    if value is None:
        return {}
    if not isinstance(value, dict):
        into = f"json: cannot unmarshal {go_kind(value)} into Go value of type map[string]interface {{}}"
        raise bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {into}")
    return value


def _yaml_problem(error: Exception) -> str:
    """What Go says of the same mistake: both use the same parser, in other words."""
    problem, mark = getattr(error, "problem", None), getattr(error, "problem_mark", None)
    if problem is None or mark is None:
        return str(error)
    line = mark.line + (type(error).__name__ == "ScannerError")
    where = f"line {line}: " if line else ""
    return f"error converting YAML to JSON: yaml: {where}{problem}"


def go_kind(value: object) -> str:
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number" if value is not None else "null"


def duplicate_fields(raw: bytes, obj: object) -> list[str]:
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


def doubled_keys(raw: bytes) -> list[str]:
    """Keys that stand twice in the same object of a JSON body, without their paths; none for other bodies."""
    if raw[:1] != b"{":
        return []
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return []
    return [path.rpartition(".")[2] for path in duplicate_fields(raw, value)]


class _Pairs:
    def __init__(self, pairs: list[tuple[str, object]]) -> None:
        self.pairs = pairs
