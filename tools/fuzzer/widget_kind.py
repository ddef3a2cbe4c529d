"""A custom kind with defaults, validation rules, all types of lists, status and scale, and its definition.

It is defined once for all sequences, because a definition takes kube-apiserver a second; `families.crd`
creates and changes other definitions.
"""

from tests.support.differential import Caller, get, post
from tools.fuzzer.fields import Json, field
from tools.fuzzer.kinds import Kind

GROUP = "oracle.example.com"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

SPEC: Json = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 10},
        "colour": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "replicas": {"type": "integer", "format": "int32"},
        "title": {"type": "string", "maxLength": 8, "pattern": "^[a-z]+$", "nullable": True},
        "share": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "multipleOf": 0.5},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name", "protocol"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    "protocol": {"type": "string", "default": "TCP"},
                    "weight": {"type": "integer", "default": 1},
                },
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "steps": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        "options": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        },
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "day": {"type": "string", "format": "date-time"},
        "nested": {
            "type": "object",
            "default": {},
            "properties": {"on": {"type": "boolean", "default": True}, "level": {"type": "integer"}},
        },
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "fixed": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is fixed"}],
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "message": "low is above high",
            "fieldPath": ".low",
        },
        {"rule": "!has(self.high) || self.high < 100", "reason": "FieldValueForbidden"},
    ],
}
STATUS: Json = {
    "type": "object",
    "properties": {
        "phase": {"type": "string", "enum": ["Up", "Down"]},
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "conditions": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type"],
                "properties": {"type": {"type": "string"}, "status": {"type": "string"}},
            },
        },
    },
}
SUBRESOURCES: Json = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}


def version(name: str = "v1", spec: Json = SPEC, **changes: object) -> Json:
    """One version of a definition."""
    schema = {"type": "object", "properties": {"spec": spec, "status": STATUS}}
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": SUBRESOURCES,
        "selectableFields": [{"jsonPath": ".spec.colour"}],
        "additionalPrinterColumns": [
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        ],
        **changes,
    }


def definition(group: str, *versions: Json) -> Json:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "shortNames": ["wd"]},
            "versions": list(versions),
        },
    }


def kind(group: str, version: str = "v1") -> Kind:
    """The kind of a definition, for sequences."""
    return Kind(
        "Widget",
        f"{group}/{version}",
        "widgets",
        {"spec": {"size": 3}},
        _FIELDS,
        _STATUS_FIELDS,
        scales=True,
        typed=False,
        selectors=("metadata.name", "spec.colour"),
    )


DEFINED = (
    post(DEFINITIONS, definition(GROUP, version()), shown=False),
    get(f"{DEFINITIONS}/widgets.{GROUP}", until="status.acceptedNames.kind", shown=False),
    get(f"/apis/{GROUP}/v1/widgets", until="metadata.resourceVersion", shown=False),
)
"""Defines the kind that all sequences share, unless it exists, and waits until it is served."""


def define(caller: Caller) -> None:
    for step in DEFINED:
        caller.send(step)


_FIELDS = (
    field("spec/size", [4, 1, 10], [0, 11, "3", 3.5, None, True]),
    field("spec/colour", ["green", "red", None], ["blue", 1]),
    field("spec/replicas", [0, 2, 5], [-1, "2", 3000000000]),
    field("spec/title", ["abc", None], ["toolongtitle", "A", 1]),
    field("spec/share", [0.5, 1, 2.5], [0, 0.3, -1, "1"]),
    field(
        "spec/parts",
        [
            [{"name": "a"}],
            [{"name": "a", "weight": 2}, {"name": "b"}],
            [{"name": "a", "protocol": "UDP"}, {"name": "a"}],
            [],
        ],
        [
            [{"name": "a"}, {"name": "a"}],
            [{"weight": 1}],
            [{"name": str(number)} for number in range(4)],
            [{"name": "a", "unknown": 1}],
            ["a"],
            {},
            [{"name": 1}],
        ],
    ),
    field("spec/tags", [["a"], ["a", "b"], ["b", "a"], []], [["a", "a"], [1], "a"]),
    field("spec/steps", [["a", "b"], ["b"], ["b", "a", "b"]], [[], [""], [1], [None]]),
    field(
        "spec/options", [{"a": "1"}, {"a": "2", "b": "1"}, {}], [{"a": 1}, {"a": "1", "b": "1", "c": "1"}, []]
    ),
    field("spec/options/a", ["1", "2"], [1]),
    field("spec/whole", [{"a": "1"}, {"a": "1", "b": "2"}], [{"c": "1"}, "text"]),
    field("spec/port", [80, "http"], [True, 1.5, {}]),
    field("spec/free", [{"any": {"thing": [1, {"x": None}]}}, {"any": 1.5}, {}], ["text"]),
    field("spec/free/any", [1, "text", [1, 2], None], []),
    field("spec/day", ["2024-01-01T00:00:00Z"], ["today", 1]),
    field("spec/nested", [{"on": False}, {"level": 3}, {}, None], [{"on": "yes"}, {"unknown": 1}, []]),
    field("spec/nested/on", [True, False], ["yes"]),
    field("spec/low", [1, 5], ["1"]),
    field("spec/high", [3, 9], [200, 0]),
    field("spec/fixed", ["a", "b"], ["x" * 21]),
    field("spec/unknown", [], [1, {"a": "b"}]),
    field("spec", [], ["text", [], None, {}]),
    field("status/phase", ["Up"], ["Sideways"]),
)
_STATUS_FIELDS = (
    field("status/phase", ["Up", "Down"], ["Sideways", 1]),
    field("status/replicas", [1, 3], ["1", -1]),
    field("status/selector", ["app=a"], ["no selector!!", 1]),
    field(
        "status/conditions",
        [[{"type": "A", "status": "True"}], [{"type": "B"}, {"type": "A"}], []],
        [[{"type": "A"}, {"type": "A"}], [{"status": "True"}]],
    ),
    field("status/unknown", [], [1]),
    field("spec/size", [7], ["x"]),
)

WIDGET = kind(GROUP)
