"""Invalid requests: bodies, names, content types, queries, paths, methods."""

import json

from tests.support.differential import APPLY, JSON_PATCH, MERGE, STRATEGIC, Step
from tools.fuzzer.context import Context, query
from tools.fuzzer.fields import METADATA, SYSTEM, Json, fragment, merged
from tools.fuzzer.kinds import Kind

_TYPES = (
    MERGE,
    STRATEGIC,
    JSON_PATCH,
    APPLY,
    "application/json",
    "text/plain",
    "application/yaml",
    "",
    "nonsense",
)
_BODIES = (
    "",
    "{",
    "[",
    "null",
    "[]",
    "1",
    '"text"',
    "{}",
    "not json",
    '{"a":}',
    "{} {}",
    "true",
    '{"kind": 5}',
)
_NAMES = (
    *(
        "Bad_Name",
        "a" * 64,
        "a" * 254,
        "-a",
        "a-",
        "a..b",
        "a/b",
        "a%b",
        " ",
        "",
        "A",
        "1",
        "a.b",
        "a_b",
        ".",
        "..",
    ),
    *("ü", "a b", "a\tb"),
)
_QUERIES: tuple[dict[str, str], ...] = (
    {"dryRun": "Some"},
    {"dryRun": ""},
    {"dryRun": "all"},
    {"fieldValidation": "Nonsense"},
    {"fieldValidation": "strict"},
    {"fieldManager": "x" * 129},
    {"fieldManager": "a\x07b"},
    {"fieldManager": "some one"},
    {"force": "true"},
    {"force": "perhaps"},
    {"force": "true", "fieldManager": "alice"},
    {"pretty": "true"},
    {"nonsense": "1"},
    {"timeout": "5s"},
    {"timeoutSeconds": "x"},
    {"limit": "-1"},
    {"gracePeriodSeconds": "x"},
    {"propagationPolicy": "Nonsense"},
    {"continue": "nonsense"},
)
_ACCEPTED = (
    "text/plain",
    "application/xml",
    "application/json;as=Table;v=v9;g=meta.k8s.io",
    "*/*",
    "",
    "nonsense",
)


def mistake(context: Context) -> list[Step]:
    """A request with one mistake."""
    ways = (
        _wrong_field,
        _wrong_text,
        _wrong_type,
        _wrong_name,
        _wrong_query,
        _wrong_path,
        _wrong_accept,
        _twice,
    )
    return ways[context.draw.weighted(range(len(ways)), (40, 8, 8, 10, 12, 8, 3, 5))](context)


def _write(context: Context, kind: Kind, name: str, body: object, asked: str = "", type: str = "") -> Step:
    """Send the body with a random kind of write."""
    way = context.draw.pick(("POST", "POST", "PUT", "PATCH", "APPLY"))
    saved = context.save(kind, name)
    if way == "POST":
        return Step("POST", kind.collection + asked, body, type or "application/json", save=saved)
    if way == "PUT":
        return Step("PUT", kind.path(name) + asked, body, type or "application/json", save=saved)
    if way == "APPLY":
        manager = asked or query(fieldManager="alice")
        return Step("PATCH", kind.path(name) + manager, body, type or APPLY, save=saved)
    return Step("PATCH", kind.path(name) + asked, body, type or MERGE, save=saved)


def _wrong_field(context: Context) -> list[Step]:
    """A field with an invalid value."""
    kind, name = context.target()
    table = [field for field in (*kind.fields, *kind.fields, *METADATA, *SYSTEM) if field.bad]
    body = kind.object(name)
    for field in context.draw.some(table, 1, 2):
        body = merged(body, fragment(field.path, context.draw.pick(field.bad)))
    asked = (
        query(fieldValidation=context.draw.pick(("Strict", "Warn", "Ignore")))
        if context.draw.chance(50)
        else ""
    )
    return [_write(context, kind, name, body, asked)]


def _wrong_text(context: Context) -> list[Step]:
    kind, name = context.target()
    return [_write(context, kind, name, context.draw.pick(_BODIES))]


def _wrong_type(context: Context) -> list[Step]:
    kind, name = context.target()
    return [_write(context, kind, name, kind.object(name), type=context.draw.pick(_TYPES[4:]))]


def _wrong_name(context: Context) -> list[Step]:
    kind, draw = context.kind(), context.draw
    name = draw.pick(_NAMES)
    if not kind.namespaced:
        name = f"$ns-{name}"
    if draw.chance(60):
        return [Step("POST", kind.collection, kind.object(name), save=context.save(kind))]
    made = context.target()[1]
    body = kind.object(name)
    return [draw.pick((_put, _apply))(kind, made, body)]


def _put(kind: Kind, name: str, body: Json) -> Step:
    return Step("PUT", kind.path(name), body)


def _apply(kind: Kind, name: str, body: Json) -> Step:
    return Step("PATCH", kind.path(name) + query(fieldManager="alice"), body, APPLY)


def _wrong_query(context: Context) -> list[Step]:
    kind, name = context.target()
    asked = query(**context.draw.pick(_QUERIES))
    match context.draw.pick(("write", "write", "delete", "get", "list")):
        case "delete":
            return [Step("DELETE", kind.path(name) + asked)]
        case "get":
            return [Step("GET", kind.path(name) + asked)]
        case "list" if kind.namespaced:
            return [Step("GET", kind.collection + asked)]
        case _:
            return [_write(context, kind, name, kind.object(name), asked)]


def _wrong_path(context: Context) -> list[Step]:
    kind, name = context.target()
    draw, body = context.draw, kind.object(name)
    ways = (
        Step("POST", kind.path(name), body),
        Step("PUT", kind.collection, body),
        Step("PATCH", kind.collection, body, MERGE),
        Step("GET", kind.path(name, "nonsense")),
        Step("GET", kind.path(name, "status/more")),
        Step("POST", kind.path(name, "status"), body),
        Step("DELETE", kind.path(name, "status")),
        Step("GET", f"{kind.root}/namespaces/$ns/nonsense"),
        Step("GET", f"{kind.root}/namespaces/$ns/nonsense/{name}"),
        Step("GET", f"{kind.root}/nonsense"),
        Step("PUT", kind.path(name, "scale"), body),
        Step("OPTIONS", kind.path(name)),
        Step("GET", kind.path(name) + "/"),
        Step("POST", f"{kind.root}/namespaces/none/{kind.plural}", body),
        Step("GET", f"{kind.root}/namespaces/none/{kind.plural}"),
        Step("POST", f"{kind.root}/{kind.plural}", body),
    )
    chosen = draw.pick(ways if kind.namespaced else ways[:-3])
    return [chosen]


def _wrong_accept(context: Context) -> list[Step]:
    kind, name = context.target()
    return [Step("GET", kind.path(name), accept=context.draw.pick(_ACCEPTED))]


def _twice(context: Context) -> list[Step]:
    """A body with a duplicate field, sent as text because a dict cannot have one."""
    kind, name = context.target()
    text = json.dumps(kind.object(name), separators=(",", ":"))
    twice = context.draw.pick(
        ('"kind":"Nonsense",', '"metadata":{"name":"b"},', '"data":{"k":"MA=="},', '"x":1,"x":2,')
    )
    asked = (
        query(fieldValidation=context.draw.pick(("Strict", "Warn", "Ignore")))
        if context.draw.chance(70)
        else ""
    )
    return [_write(context, kind, name, "{" + twice + text[1:], asked)]
