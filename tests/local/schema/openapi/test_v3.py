"""OpenAPI v3 documents contain what kubectl uses, and all definitions that they refer to."""

import re

import pytest

from argosy.local.schema.builtin import builtin_kinds
from argosy.local.schema.crd.definition import parse_crd
from argosy.local.schema.model import Json
from argosy.local.schema.openapi.v3 import document, encode_document, published, published_custom

PLACES = sorted({(info.group, info.version) for info in builtin_kinds()})


@pytest.mark.parametrize(("group", "version"), PLACES)
def test_all_references_exist(group: str, version: str) -> None:
    kinds = [published(k) for k in builtin_kinds() if (k.group, k.version) == (group, version)]
    encoded = encode_document(kinds, "v1.36.3")
    openapi = document(kinds, "v1.36.3")
    components = openapi["components"]
    assert isinstance(components, dict)
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', encoded.decode()))
    assert references <= set(components["schemas"])


def custom() -> Json:
    spec = {"type": "object", "properties": {"size": {"type": "integer", "description": "How big."}}}
    declared = {"type": "object", "properties": {"spec": spec}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": declared},
        "subresources": {"status": {}},
    }
    return {
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version],
        },
    }


def test_a_custom_resource_can_be_explained_and_patched() -> None:
    info = parse_crd(custom())
    openapi = document([published_custom(info, info.versions[0])], "v1.36.3")
    components, paths = openapi["components"], openapi["paths"]
    assert isinstance(components, dict)
    assert isinstance(paths, dict)
    thing = components["schemas"]["io.x.v1.Thing"]
    assert thing["x-kubernetes-group-version-kind"] == [{"group": "x.io", "version": "v1", "kind": "Thing"}]
    assert thing["properties"]["spec"]["properties"]["size"]["description"] == "How big."
    patch = paths["/apis/x.io/v1/namespaces/{namespace}/things/{name}"]["patch"]
    assert "fieldValidation" in [parameter["name"] for parameter in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Thing"
    assert "/apis/x.io/v1/namespaces/{namespace}/things/{name}/status" in paths
