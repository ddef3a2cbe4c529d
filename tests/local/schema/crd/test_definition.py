"""CustomResourceDefinitions are parsed, and refused with the paths and reasons of kube-apiserver."""

import pytest

from argosy.local.schema.crd.definition import crd_errors, parse_crd
from argosy.local.schema.model import Json

SCHEMA: Json = {"type": "object", "properties": {"spec": {"type": "object"}}}


def definition(schema: Json = SCHEMA, **spec: object) -> Json:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": "things.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [version],
            **spec,
        },
    }


def with_field(field: Json) -> Json:
    return definition({"type": "object", "properties": {"x": field}})


X = "spec.validation.openAPIV3Schema.properties[x]"
REFUSED = {
    "name that is not plural.group: rejected": (definition(group="y.io"), "metadata.name", "Invalid"),
    "unknown scope: rejected": (definition(scope="x"), "spec.scope", "NotSupported"),
    "field without a type: rejected": (with_field({}), f"{X}.type", "Required"),
    "unknown type: rejected": (with_field({"type": "foo"}), f"{X}.type", "NotSupported"),
    "list without items: rejected": (with_field({"type": "array"}), f"{X}.items", "Required"),
    "default of the wrong type: rejected": (
        with_field({"type": "string", "default": 5}),
        f"{X}.default",
        "TypeInvalid",
    ),
    "invalid pattern: rejected": (with_field({"type": "string", "pattern": "["}), f"{X}.pattern", "Invalid"),
    "reference to another schema: rejected": (with_field({"$ref": "#/x"}), f"{X}.$ref", "Forbidden"),
    "type inside anyOf: rejected": (
        with_field({"type": "string", "anyOf": [{"type": "string"}]}),
        f"{X}.anyOf[0].type",
        "Forbidden",
    ),
    "uniqueItems: rejected": (
        with_field({"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        f"{X}.uniqueItems",
        "Forbidden",
    ),
    "list of type map without keys: rejected": (
        with_field({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
        f"{X}.x-kubernetes-list-map-keys",
        "Required",
    ),
    "rule with an undeclared field: rejected": (
        with_field({"type": "object", "x-kubernetes-validations": [{"rule": "self.foo == 1"}]}),
        f"{X}.x-kubernetes-validations[0].rule",
        "Invalid",
    ),
    "rule with a field of an integer: rejected": (
        with_field({"type": "integer", "x-kubernetes-validations": [{"rule": "self.foo > 1"}]}),
        f"{X}.x-kubernetes-validations[0].rule",
        "Invalid",
    ),
}


@pytest.mark.parametrize(("crd", "path", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_definition_is_refused(crd: Json, path: str, reason: str) -> None:
    assert [(error.path, str(error.type)) for error in crd_errors(crd)] == [(path, f"FieldValue{reason}")]


ACCEPTED = {
    "int-or-string with the anyOf of generators: accepted": with_field(
        {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    ),
    "validations inside allOf: accepted": with_field({"type": "string", "allOf": [{"minLength": 1}]}),
    "rule with a declared field: accepted": with_field(
        {
            "type": "object",
            "properties": {"foo": {"type": "integer"}},
            "x-kubernetes-validations": [{"rule": "self.foo == 1"}],
        }
    ),
}


@pytest.mark.parametrize("crd", ACCEPTED.values(), ids=ACCEPTED)
def test_structural_schema_is_accepted(crd: Json) -> None:
    assert list(crd_errors(crd)) == []


def test_definition_is_parsed() -> None:
    info = parse_crd(definition())
    assert (info.kind, info.plural, info.storage_version, info.namespaced) == ("Thing", "things", "v1", True)
