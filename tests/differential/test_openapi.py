"""The OpenAPI v3 documents agree with those of a real server, but for descriptions and enumerations."""

import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

import pytest

from tests.support.differential import Caller, post
from tests.support.servers import ADMIN, Server

PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
GROUP = "apis/openapi.example.com/v1"
Json = dict[str, object]


@pytest.fixture(scope="module")
def servers_with_crd(real_apiserver: Server, local_apiserver: Server) -> tuple[Server, Server]:
    """Both servers, with the same custom resource in their documents."""
    for server in (real_apiserver, local_apiserver):
        with Caller(server) as caller:
            caller.send(post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION))
        deadline = time.monotonic() + 30
        while fetch(server, f"/openapi/v3/{GROUP}")[0] != 200:
            assert time.monotonic() < deadline, f"{server.name} does not show {GROUP}"
            time.sleep(0.1)
    return real_apiserver, local_apiserver


def test_schemas_and_paths_are_those_of_kubernetes(servers_with_crd: tuple[Server, Server]) -> None:
    index = part(json.loads(fetch(servers_with_crd[1], "/openapi/v3")[2]), "paths")
    documents = [key for key in index if "example.com" not in key or key == GROUP]
    assert {"api/v1", "apis/apps/v1", "apis/batch/v1", GROUP} <= set(documents)
    for key in documents:
        want, got = (json.loads(fetch(server, f"/openapi/v3/{key}")[2]) for server in servers_with_crd)
        schemas, theirs = part(got, "components", "schemas"), part(want, "components", "schemas")
        for name in schemas.keys() & theirs.keys() - {META + "DeleteOptions"}:
            assert without_descriptions(part(schemas, name)) == without_descriptions(part(theirs, name)), name
        assert {name for name in schemas.keys() - theirs.keys() if not name.startswith(META)} == set(), key
        check_operations(part(got, "paths"), part(want, "paths"))
        validated = kinds_with_field_validation(want) & set(kinds(schemas))
        assert kinds_with_field_validation(got) == validated, key


def check_operations(got: Json, want: Json) -> None:
    for path in got:
        for method in set(part(got, path)) - {"parameters"}:
            ours, theirs = part(got, path, method), part(want, path, method)
            for key in ("x-kubernetes-action", "x-kubernetes-group-version-kind"):
                assert ours[key] == theirs[key], (path, method)
            if method == "patch":
                types = [set(part(operation, "requestBody", "content")) for operation in (ours, theirs)]
                assert types[0] == types[1] - {"application/apply-patch+cbor"}, path


ACCEPTS = {
    "Accept protobuf, media type of kubectl: as kube-apiserver": PROTOBUF,
    "Accept protobuf, newer media type: as kube-apiserver": PROTOBUF.replace("@", "."),
    "Accept protobuf, then JSON: as kube-apiserver": f"application/json;q=0.5, {PROTOBUF}",
    "Accept text/plain: as kube-apiserver": "text/plain",
}


@pytest.mark.parametrize("accept", ACCEPTS.values(), ids=ACCEPTS)
def test_content_type_of_the_v2_document(
    real_apiserver: Server, local_apiserver: Server, accept: str
) -> None:
    want, got = (fetch(server, accept=accept) for server in (real_apiserver, local_apiserver))
    assert got[0] == want[0]
    if got[0] == 200:
        assert got[1]["content-type"] == want[1]["content-type"]


def test_v2_document_with_the_same_etag_is_304_until_definitions_change(local_apiserver: Server) -> None:
    tag = fetch(local_apiserver, accept=PROTOBUF)[1]["etag"]
    assert fetch(local_apiserver, accept=PROTOBUF, etag=tag)[0] == 304
    other = json.loads(json.dumps(DEFINITION).replace("openapi.example.com", "tags.example.com"))
    with Caller(local_apiserver) as caller:
        caller.send(post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", other))
    deadline = time.monotonic() + 10
    while fetch(local_apiserver, accept=PROTOBUF, etag=tag)[0] == 304:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert b"com.example.tags.v1.Widget" in fetch(local_apiserver, accept=PROTOBUF)[2]


def kinds(schemas: Json) -> Iterator[str]:
    for schema in schemas.values():
        assert isinstance(schema, dict)
        for place in schema.get("x-kubernetes-group-version-kind", ()):
            yield f"{place['group']}/{place['version']} {place['kind']}"


def kinds_with_field_validation(document: Json) -> set[str]:
    """The kinds whose PATCH takes fieldValidation; kubectl leaves their validation to the server."""
    kinds: set[str] = set()
    for item in part(document, "paths").values():
        assert isinstance(item, dict)
        patch = item.get("patch", {})
        if any(parameter["name"] == "fieldValidation" for parameter in patch.get("parameters", ())):
            place = patch["x-kubernetes-group-version-kind"]
            kinds.add(f"{place['group']}/{place['version']} {place['kind']}")
    return kinds


def without_descriptions(schema: Mapping[str, object]) -> Json:
    """A schema without descriptions and enumerations; those of the custom resource stay.

    Kubernetes wraps a reference that has a description in an allOf.
    """
    shown: Json = {}
    match schema.get("allOf"):
        case [{"$ref": reference}]:
            schema = {**{key: value for key, value in schema.items() if key != "allOf"}, "$ref": reference}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            shown[key] = {name: without_descriptions(child) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            shown[key] = without_descriptions(value)
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
    server: Server, path: str = "/openapi/v2", accept: str = "application/json", etag: str = ""
) -> tuple[int, Mapping[str, str], bytes]:
    context = ssl.create_default_context(cafile=str(server.ca_file))
    connection = http.client.HTTPSConnection(urlsplit(server.url).netloc, context=context, timeout=30)
    headers = {"Authorization": f"Bearer {ADMIN.token}"}
    headers |= ({"Accept": accept} if accept else {}) | ({"If-None-Match": etag} if etag else {})
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


TEXT: Json = {"type": "string"}
ITEM: Json = {
    "type": "object",
    "required": ["k"],
    "properties": {"k": TEXT, "v": {**TEXT, "not": {"enum": ["z"]}}},
}
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
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"a": TEXT}},
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
