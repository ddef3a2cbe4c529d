"""The OpenAPI documents, held against those of a real server.

Ours leave out prose, and which values an enumeration has; all else in a definition is the same.
"""

import http.client
import json
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest
import yaml

from tests.support.differential import Caller, post
from tests.support.servers import ADMIN, Server

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
STEADY = ("io.k8s.", "com.example.openapi.")
Json = dict[str, object]


@pytest.fixture(scope="module")
def documents(real_apiserver: Server, local_apiserver: Server) -> tuple[Json, Json]:
    """The documents of both servers once they show the same custom resource, and its list."""
    found: list[Json] = []
    for server in (real_apiserver, local_apiserver):
        with Caller(server) as caller:
            caller.send(post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION))
        deadline = time.monotonic() + 30
        while WIDGET not in part(document := json.loads(fetch(server)[2]), "definitions"):
            assert time.monotonic() < deadline, f"{server.name} does not show {WIDGET}"
            time.sleep(0.1)
        found.append(document)
    return found[0], found[1]


def test_every_definition_is_that_of_kubernetes(documents: tuple[Json, Json]) -> None:
    want, got = (part(document, "definitions") for document in documents)
    assert len(got) > 400
    missing = set(got) - set(want)
    assert not {name for name in missing if not name.startswith("com.example.")}
    for name in set(got) - missing - {META + "DeleteOptions"}:
        assert plain(part(got, name)) == plain(part(want, name)), name


def test_kinds_are_deleted_with_options_that_kubernetes_has(documents: tuple[Json, Json]) -> None:
    want, got = (part(document, "definitions", META + "DeleteOptions") for document in documents)
    assert plain(want)["properties"] == plain(got)["properties"]
    ours, theirs = (set(kinds({"": options})) for options in (got, want))
    assert "apps/v1 DeleteOptions" in ours
    assert ours <= theirs


def test_every_operation_is_one_of_kubernetes(documents: tuple[Json, Json]) -> None:
    want, got = (part(document, "paths") for document in documents)
    for path in (path for path in got if "example.com" not in path or path in want):
        for method in set(part(got, path)) - {"parameters"}:
            theirs, ours = part(want, path, method), part(got, path, method)
            for key in ("x-kubernetes-action", "x-kubernetes-group-version-kind"):
                assert ours[key] == theirs[key], (path, method)
            if method == "patch":
                types = ours["consumes"], theirs["consumes"]
                assert set(map(str, types[0])) <= set(map(str, types[1])), path  # type: ignore[call-overload]


def test_a_patch_is_offered_in_the_forms_of_kubernetes(documents: tuple[Json, Json]) -> None:
    """All but CBOR, which nothing here speaks."""
    want, got = (part(document, "paths") for document in documents)
    patched = [path for path in set(got) & set(want) if "patch" in part(got, path)]
    assert any("example.com" in path for path in patched)
    for path in patched:
        theirs, ours = (part(paths, path, "patch")["consumes"] for paths in (want, got))
        assert isinstance(theirs, list)
        assert isinstance(ours, list)
        assert set(ours) == set(theirs) - {"application/apply-patch+cbor"}, path


def test_definitions_in_protobuf_say_what_those_in_json_say(
    documents: tuple[Json, Json], real_apiserver: Server, local_apiserver: Server
) -> None:
    """Of what is built in and of this file's own kind; definitions of other tests come and go meanwhile."""
    for server in (real_apiserver, local_apiserver):
        whole = dict(wire(fetch(server, accept=PROTOBUF)[2]))
        found = (named(whole[9]), part(json.loads(fetch(server)[2]), "definitions"))
        got, want = ({name: form[name] for name in form if name.startswith(STEADY)} for form in found)
        for form in (got, want):
            assert form.pop(META + "DeleteOptions")  # it lists all groups that there are
        assert len(want) > 400
        assert got == want, server.name


ACCEPTS = {
    "anything is JSON": "*/*",
    "nothing said is JSON": "",
    "what kubectl asks for": PROTOBUF,
    "protobuf by its newer name": PROTOBUF.replace("@", "."),
    "the better of two": f"application/json;q=0.5, {PROTOBUF}",
    "the first of two that are there": f"text/plain, application/json, {PROTOBUF}",
    "nothing that is there": "text/plain",
}


@pytest.mark.parametrize("accept", ACCEPTS.values(), ids=ACCEPTS)
def test_forms(real_apiserver: Server, local_apiserver: Server, accept: str) -> None:
    want, got = (fetch(server, accept=accept) for server in (real_apiserver, local_apiserver))
    assert got[0] == want[0]
    if got[0] == 200:
        assert got[1]["content-type"] == want[1]["content-type"]
        assert "Accept" in got[1]["vary"]


def test_a_client_that_has_the_document_gets_no_other_until_it_changes(
    real_apiserver: Server, local_apiserver: Server
) -> None:
    for server in (real_apiserver, local_apiserver):
        tag = fetch(server)[1]["etag"]
        assert tag == fetch(server, accept=PROTOBUF)[1]["etag"]
        for known in (tag, f'"other", {tag}', f"W/{tag}", "*"):
            code, headers, body = fetch(server, known=known)
            assert (code, headers["etag"], body) == (304, tag, b""), server.name
        assert fetch(server, known='"other"')[0] == 200


def test_the_tag_changes_with_the_definitions(local_apiserver: Server) -> None:
    before = fetch(local_apiserver)[1]["etag"]
    other = json.loads(json.dumps(DEFINITION).replace("openapi.example.com", "tags.example.com"))
    with Caller(local_apiserver) as caller:
        caller.send(post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", other))
    deadline = time.monotonic() + 10
    while fetch(local_apiserver)[1]["etag"] == before:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert b"com.example.tags.v1.Widget" in fetch(local_apiserver, accept=PROTOBUF)[2]


def test_kubectl_leaves_to_the_server_what_it_leaves_to_a_real_one(
    real_apiserver: Server, local_apiserver: Server
) -> None:
    """It does for kinds with a patch that knows fieldValidation, by the v3 documents."""
    index = part(json.loads(fetch(local_apiserver, "/openapi/v3")[2]), "paths")
    checked = 0
    for key in (key for key in index if "example.com" not in key):
        want, got = (
            json.loads(fetch(server, f"/openapi/v3/{key}")[2]) for server in (real_apiserver, local_apiserver)
        )
        ours = set(kinds(part(got, "components", "schemas")))
        assert validated(got) == validated(want) & ours, key
        checked += len(ours)
    assert checked > 80


def kinds(schemas: Json) -> Iterator[str]:
    for schema in schemas.values():
        assert isinstance(schema, dict)
        for place in schema.get("x-kubernetes-group-version-kind", ()):
            yield f"{place['group']}/{place['version']} {place['kind']}"


def validated(document: Json) -> set[str]:
    found: set[str] = set()
    for item in part(document, "paths").values():
        assert isinstance(item, dict)
        patch = item.get("patch", {})
        if any(parameter["name"] == "fieldValidation" for parameter in patch.get("parameters", ())):
            place = patch["x-kubernetes-group-version-kind"]
            found.add(f"{place['group']}/{place['version']} {place['kind']}")
    return found


def plain(schema: Mapping[str, object]) -> Json:
    """A schema without prose and enumerations; those of custom resources stay."""
    shown: Json = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            shown[key] = {name: plain(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            shown[key] = plain(value)
        elif key not in ("description", "enum") or value == ["a", "ab"]:
            shown[key] = value
    return shown


def part(value: object, *path: str) -> Json:
    for name in path:
        assert isinstance(value, dict)
        value = value[name]
    assert isinstance(value, dict)
    return value


def fetch(
    server: Server, path: str = "/openapi/v2", accept: str = "application/json", known: str = ""
) -> tuple[int, Mapping[str, str], bytes]:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    connection = http.client.HTTPSConnection(urlsplit(server.url).netloc, context=context, timeout=30)
    headers = {"Authorization": f"Bearer {ADMIN.token}"}
    headers |= ({"Accept": accept} if accept else {}) | ({"If-None-Match": known} if known else {})
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


FIELDS = (
    "extension $ref format title description default multipleOf maximum exclusiveMaximum minimum"
    " exclusiveMinimum maxLength minLength pattern maxItems minItems uniqueItems maxProperties minProperties"
    " required enum additionalProperties type items allOf properties discriminator readOnly xml externalDocs"
    " example"
)
NAMES = FIELDS.split()
"""The fields of the message Schema by their numbers; extensions have 31, which is none of them."""


def schema(raw: object) -> Json:
    found: Json = {}
    for number, value in wire(raw):
        name = NAMES[number % 31]
        match name:
            case "required" | "enum":
                item = text(value) if name == "required" else anything(value)
                found[name] = [*found.get(name, []), item]  # type: ignore[misc]
            case "additionalProperties":
                ((kind, inner),) = wire(value)
                found[name] = schema(inner) if kind == 1 else bool(inner)
            case "type":
                found[name] = text(dict(wire(value))[1])
            case "items":
                found[name] = schema(dict(wire(value))[1])
            case "properties":
                found[name] = named(value)
            case "externalDocs":
                docs = dict(wire(value))
                found[name] = {"description": text(docs[1]), "url": text(docs[2])}
            case "example":
                found[name] = anything(value)
            case "extension":
                entry = dict(wire(value))
                found[text(entry[1])] = anything(entry[2])
            case _:
                flag = name.startswith(("exclusive", "unique"))
                found[name] = text(value) if isinstance(value, bytes) else bool(value) if flag else value
    return found


def named(raw: object) -> Json:
    entries = [dict(wire(entry)) for _, entry in wire(raw)]
    return {text(entry[1]): schema(entry[2]) for entry in entries}


def anything(raw: object) -> object:
    return yaml.safe_load(text(dict(wire(raw))[2]))


def text(raw: object) -> str:
    assert isinstance(raw, bytes)
    return raw.decode()


def wire(raw: object) -> Iterator[tuple[int, object]]:
    """The fields of a message, as numbers and bytes."""
    assert isinstance(raw, bytes)
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        if key & 7 == 0:
            value, at = varint(raw, at)
            yield key >> 3, value
        elif key & 7 == 1:
            yield key >> 3, struct.unpack("<d", raw[at : at + 8])[0]
            at += 8
        else:
            size, at = varint(raw, at)
            yield key >> 3, raw[at : at + size]
            at += size


def varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (raw[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not raw[at - 1] & 0x80:
            return value, at


WIDGET = "com.example.openapi.v1.Widget"
TEXT: Json = {"type": "string"}
ITEM: Json = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": TEXT, "v": {**TEXT, "not": {"enum": ["z"]}}},
}
"""With whatever v2 says in another way than v3, or does not say at all."""
SPEC: Json = {
    "type": "object",
    "required": ["size", "none"],
    "oneOf": [{"required": ["size"]}],
    "properties": {
        "size": {"type": "integer", "format": "int32", "minimum": 1, "default": 3, "description": "How big."},
        "ratio": {"type": "number", "maximum": 2.5, "exclusiveMaximum": True, "multipleOf": 0.5},
        "name": {
            **TEXT,
            "maxLength": 5,
            "minLength": 1,
            "pattern": "^a",
            "enum": ["a", "ab"],
            "example": "ab",
        },
        "none": {"type": "object", "nullable": True, "properties": {"a": TEXT}},
        "nones": {"type": "array", "nullable": True, "items": TEXT},
        "port": {"x-kubernetes-int-or-string": True},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": TEXT}},
        "object": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "required": ["spec"],
            "properties": {"spec": {"type": "object"}},
        },
        "objects": {
            "type": "array",
            "items": {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
        "labels": {
            "type": "object",
            "additionalProperties": {**TEXT, "nullable": True},
            "maxProperties": 4,
            "minProperties": 1,
        },
        "free": {"type": "object", "additionalProperties": True},
        "list": {
            "type": "array",
            "maxItems": 3,
            "minItems": 1,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": ITEM,
        },
        "atom": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": {**TEXT, "title": "A"}},
        },
        "docs": {**TEXT, "externalDocs": {"url": "http://example.com", "description": "More."}},
    },
}
DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.openapi.example.com"},
    "spec": {
        "group": "openapi.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetSet"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
                },
                "selectableFields": [{"jsonPath": ".spec.size"}],
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "description": "A widget.",
                        "required": ["spec"],
                        "x-kubernetes-validations": [{"rule": "has(self.spec)"}],
                        "properties": {
                            "metadata": {"type": "object", "properties": {"name": {**TEXT, "maxLength": 9}}},
                            "spec": SPEC,
                            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
                        },
                    }
                },
            },
            {
                "name": "v2",
                "served": True,
                "storage": False,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                        "properties": {"spec": {"type": "object"}},
                    }
                },
            },
        ],
    },
}
