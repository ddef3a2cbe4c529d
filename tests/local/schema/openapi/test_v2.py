"""The document of v2 holds every kind, refers only to what it holds, and lets pass what the server takes."""

import re

import msgspec
import pytest

from argosy.local.schema.builtin import builtin_kinds
from argosy.local.schema.crd.definition import CrdInfo, parse_crd
from argosy.local.schema.model import Json
from argosy.local.schema.openapi.v2 import document_v2
from argosy.local.schema.openapi.v3 import PublishedKind, published, published_custom

BUILTIN = [published(info) for info in builtin_kinds()]


def test_every_kind_is_defined_and_every_reference_leads_somewhere() -> None:
    made = document_v2([*BUILTIN, custom({"type": "object"})], "v1.36.3")
    definitions = made["definitions"]
    assert isinstance(definitions, dict)
    for kind in BUILTIN:
        places = definitions[kind.component]["x-kubernetes-group-version-kind"]
        assert places == [{"group": kind.group, "version": kind.version, "kind": kind.kind}]
    text = msgspec.json.encode(made).decode()
    assert set(re.findall(r'"#/definitions/([^"]+)"', text)) <= set(definitions)
    assert "#/components" not in text
    assert made["info"] == {"title": "Kubernetes", "version": "1.36"}


def test_lists_say_how_they_are_merged() -> None:
    definitions = document_v2(BUILTIN, "v1.36.3")["definitions"]
    assert isinstance(definitions, dict)
    containers = definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Container"}


def test_a_patch_says_which_types_it_takes() -> None:
    paths = document_v2(BUILTIN, "v1.36.3")["paths"]
    assert isinstance(paths, dict)
    patch = paths["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert "application/strategic-merge-patch+json" in patch["consumes"]
    assert patch["parameters"][0] == {
        "name": "body",
        "in": "body",
        "required": True,
        "schema": {"type": "object"},
    }


META = {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
TEXT: Json = {"type": "string"}
FREE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"
SCHEMAS: dict[str, tuple[Json, Json]] = {
    "a default is left out": ({**TEXT, "default": "a"}, TEXT),
    "limits stay": ({**TEXT, "maxLength": 3, "enum": ["a"]}, {**TEXT, "maxLength": 3, "enum": ["a"]}),
    "what may be null has no type": ({"type": "object", "nullable": True, "properties": {"a": TEXT}}, {}),
    "what may be null is not required": (
        {
            "type": "object",
            "required": ["a", "b"],
            "properties": {"a": {**TEXT, "nullable": True}, "b": TEXT},
        },
        {"type": "object", "required": ["b"], "properties": {"a": {}, "b": TEXT}},
    ),
    "what takes any field names none": (
        {"type": "object", FREE: True, "properties": {"a": TEXT}},
        {FREE: True},
    ),
    "a list of anything has no type": ({"type": "array", FREE: True, "items": TEXT}, {FREE: True}),
    "conditions are left out": ({**TEXT, "anyOf": [{"pattern": "a"}], "not": {"enum": ["b"]}}, TEXT),
    "a map stays one": (
        {"type": "object", "additionalProperties": {**TEXT, "nullable": True}},
        {"type": "object", "additionalProperties": {}},
    ),
    "a map of anything stays one": (
        {"type": "object", "additionalProperties": True},
        {"type": "object", "additionalProperties": True},
    ),
    "an object inside of an object says its kind": (
        {"type": "object", EMBEDDED: True, "properties": {"spec": TEXT}},
        {
            "type": "object",
            EMBEDDED: True,
            "required": ["kind", "apiVersion"],
            "properties": {"spec": TEXT, "apiVersion": TEXT, "kind": TEXT, "metadata": META},
        },
    ),
}


@pytest.mark.parametrize(("declared", "wanted"), SCHEMAS.values(), ids=SCHEMAS)
def test_schemas_of_custom_resources(declared: Json, wanted: Json) -> None:
    definitions = document_v2([custom({"type": "object", "properties": {"it": declared}})], "v1.36.3")[
        "definitions"
    ]
    assert isinstance(definitions, dict)
    thing = definitions["io.x.v1.Thing"]
    assert thing["properties"]["it"] == wanted
    assert set(thing["properties"]) == {"apiVersion", "kind", "metadata", "it"}


def test_a_custom_resource_that_takes_any_field_names_none() -> None:
    definitions = document_v2([custom({"type": "object", FREE: True})], "v1.36.3")["definitions"]
    assert isinstance(definitions, dict)
    place = {"group": "x.io", "version": "v1", "kind": "Thing"}
    assert definitions["io.x.v1.Thing"] == {"type": "object", "x-kubernetes-group-version-kind": [place]}
    assert definitions["io.x.v1.Things"]["x-kubernetes-group-version-kind"] == [{**place, "kind": "Things"}]


def custom(schema: Json) -> PublishedKind:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    info = parse_crd(
        {
            "metadata": {"name": "things.x.io"},
            "spec": {
                "group": "x.io",
                "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "Things"},
                "versions": [version],
            },
        }
    )
    assert isinstance(info, CrdInfo)
    return published_custom(info, info.versions[0])
