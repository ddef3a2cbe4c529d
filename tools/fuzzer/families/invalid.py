"""Requests with something wrong in them: bodies, names, kinds of content, queries, paths, methods."""

import json

from tests.support.differential import APPLY, JSON_PATCH, MERGE, STRATEGIC, Step
from tools.fuzzer.context import Scene, query
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


def mistake(scene: Scene) -> list[Step]:
    """One of the ways to be wrong, with everything else right."""
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
    return ways[scene.draw.weighted(range(len(ways)), (40, 8, 8, 10, 12, 8, 3, 5))](scene)


def _write(scene: Scene, kind: Kind, name: str, body: object, asked: str = "", type: str = "") -> Step:
    """The same body by one of the ways to write."""
    way = scene.draw.pick(("POST", "POST", "PUT", "PATCH", "APPLY"))
    saved = scene.save(kind, name)
    if way == "POST":
        return Step("POST", kind.collection + asked, body, type or "application/json", save=saved)
    if way == "PUT":
        return Step("PUT", kind.path(name) + asked, body, type or "application/json", save=saved)
    if way == "APPLY":
        manager = asked or query(fieldManager="alice")
        return Step("PATCH", kind.path(name) + manager, body, type or APPLY, save=saved)
    return Step("PATCH", kind.path(name) + asked, body, type or MERGE, save=saved)


def _wrong_field(scene: Scene) -> list[Step]:
    """A value that is wrong for certain."""
    kind, name = scene.target()
    table = [one for one in (*kind.fields, *kind.fields, *METADATA, *SYSTEM) if one.bad]
    body = kind.object(name)
    for one in scene.draw.some(table, 1, 2):
        body = merged(body, fragment(one.path, scene.draw.pick(one.bad)))
    asked = (
        query(fieldValidation=scene.draw.pick(("Strict", "Warn", "Ignore"))) if scene.draw.chance(50) else ""
    )
    return [_write(scene, kind, name, body, asked)]


def _wrong_text(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    return [_write(scene, kind, name, scene.draw.pick(_BODIES))]


def _wrong_type(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    return [_write(scene, kind, name, kind.object(name), type=scene.draw.pick(_TYPES[4:]))]


def _wrong_name(scene: Scene) -> list[Step]:
    kind, draw = scene.kind(), scene.draw
    name = draw.pick(_NAMES)
    if not kind.namespaced:
        name = f"$ns-{name}"
    if draw.chance(60):
        return [Step("POST", kind.collection, kind.object(name), save=scene.save(kind))]
    made = scene.target()[1]
    body = kind.object(name)
    return [draw.pick((_put, _apply))(kind, made, body)]


def _put(kind: Kind, name: str, body: Json) -> Step:
    return Step("PUT", kind.path(name), body)


def _apply(kind: Kind, name: str, body: Json) -> Step:
    return Step("PATCH", kind.path(name) + query(fieldManager="alice"), body, APPLY)


def _wrong_query(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    asked = query(**scene.draw.pick(_QUERIES))
    match scene.draw.pick(("write", "write", "delete", "get", "list")):
        case "delete":
            return [Step("DELETE", kind.path(name) + asked)]
        case "get":
            return [Step("GET", kind.path(name) + asked)]
        case "list" if kind.namespaced:
            return [Step("GET", kind.collection + asked)]
        case _:
            return [_write(scene, kind, name, kind.object(name), asked)]


def _wrong_path(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    draw, body = scene.draw, kind.object(name)
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


def _wrong_accept(scene: Scene) -> list[Step]:
    kind, name = scene.target()
    return [Step("GET", kind.path(name), accept=scene.draw.pick(_ACCEPTED))]


def _twice(scene: Scene) -> list[Step]:
    """A body in which a field stands twice, which JSON objects here cannot have: it is sent as text."""
    kind, name = scene.target()
    text = json.dumps(kind.object(name), separators=(",", ":"))
    twice = scene.draw.pick(
        ('"kind":"Nonsense",', '"metadata":{"name":"b"},', '"data":{"k":"MA=="},', '"x":1,"x":2,')
    )
    asked = (
        query(fieldValidation=scene.draw.pick(("Strict", "Warn", "Ignore"))) if scene.draw.chance(70) else ""
    )
    return [_write(scene, kind, name, "{" + twice + text[1:], asked)]
