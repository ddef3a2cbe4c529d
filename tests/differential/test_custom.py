"""Custom resource definitions and the resources they define."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import JSON_PATCH, STRATEGIC, Step, delete, get, patch, post, put
from tests.support.manifests import DEFINITIONS, WIDGETS, definition, widget

NAME = f"{DEFINITIONS}/widgets.$ns.example.com"
ESTABLISHED = get(NAME, until="status.conditions.1", shown=False)
SERVED = get(WIDGETS, until="metadata.resourceVersion", shown=False)
DEFINED = (post(DEFINITIONS, definition(), shown=False), ESTABLISHED, SERVED)
OBJECT = f"{WIDGETS}/a"
BARE = {"apiVersion": "$ns.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
GADGET = {**widget(), "kind": "Gadget"}
TERMINATING = ("metadata.finalizers", "metadata.managedFields", "status")
"""Fields of a terminating definition that are not compared, because they change at any time."""


def create_definition(schema: dict[str, object]) -> list[Step]:
    """A definition with this schema for the spec."""
    return [post(DEFINITIONS, definition(schema))]


def changed(**names: object) -> dict[str, object]:
    custom = definition()
    spec = custom["spec"]
    assert isinstance(spec, dict)
    return {**custom, "spec": {**spec, **names}}


RULES: dict[str, object] = {
    "type": "object",
    "properties": {
        "min": {"type": "integer"},
        "max": {"type": "integer"},
        "name": {
            "type": "string",
            "maxLength": 20,
            "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "name cannot be changed"},
            ],
        },
        "list": {
            "type": "array",
            "maxItems": 5,
            "items": {"type": "string", "maxLength": 10},
            "x-kubernetes-validations": [{"rule": "self.all(x, x.startsWith('a'))"}],
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.min) || !has(self.max) || self.min <= self.max",
            "message": "min is more than max",
            "fieldPath": ".min",
        },
        {
            "rule": "!has(self.max) || self.max < 100",
            "messageExpression": "'max is ' + 'too large'",
            "reason": "FieldValueForbidden",
        },
    ],
}
RULED = (post(DEFINITIONS, definition(RULES), shown=False), ESTABLISHED, SERVED)


def ruled(**spec: object) -> dict[str, object]:
    return {"apiVersion": "$ns.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": spec}


def root_rule(rule: str, field_path: str = "", *, metadata: bool = False) -> dict[str, object]:
    """A definition with a CEL rule for the whole object, whose schema may declare `metadata`."""
    status = {"type": "object", "properties": {"phase": {"type": "string"}}}
    where = {"fieldPath": field_path} if field_path else {}
    root = {
        "type": "object",
        "properties": {"status": status, **({"metadata": {"type": "object"}} if metadata else {})},
        "x-kubernetes-validations": [{"rule": rule, "message": "not allowed", **where}],
    }
    return definition(schema={"openAPIV3Schema": root})


def named(name: str) -> dict[str, object]:
    return {**BARE, "metadata": {"name": name}}


EITHER = [{"type": "integer"}, {"type": "string"}]
INT_OR_STRING: dict[str, dict[str, object]] = {
    "anyOf: accepted": {"x-kubernetes-int-or-string": True, "anyOf": EITHER, "pattern": "^[a-z]+$"},
    "anyOf first in allOf: accepted": {
        "x-kubernetes-int-or-string": True,
        "allOf": [{"anyOf": EITHER}, {"minimum": 1}],
    },
}
OTHERWISE: dict[str, dict[str, object]] = {
    "anyOf with string before integer: rejected": {"anyOf": EITHER[::-1]},
    "oneOf: rejected": {"oneOf": EITHER},
    "anyOf second in allOf: rejected": {"allOf": [{"minimum": 1}, {"anyOf": EITHER}]},
}

CASES: dict[str, list[Step]] = {
    "definition: stored with defaults": [post(DEFINITIONS, definition()), ESTABLISHED, SERVED, get(NAME)],
    "definition without a schema: rejected": [post(DEFINITIONS, definition(schema=None))],
    "terminating definition with a finalizer: may be changed": [
        *DEFINED,
        patch(NAME, {"metadata": {"finalizers": ["mine"]}}),
        delete(NAME, shown=False),
        patch(NAME, {"metadata": {"labels": {"a": "b"}}}, hide=TERMINATING),
        patch(NAME, {"metadata": {"finalizers": None}}, shown=False),
    ],
    "definition whose name is not plural.group: rejected": [
        post(DEFINITIONS, {**definition(), "metadata": {"name": "gadgets.$ns.example.com"}})
    ],
    "definition without a storage version: rejected": [post(DEFINITIONS, definition(storage=False))],
    "definition with an unknown scope: rejected": [post(DEFINITIONS, changed(scope="Everywhere"))],
    "definition with invalid names: rejected": [
        post(DEFINITIONS, changed(names={"plural": "widgets", "kind": "widget Kind"})),
        post(DEFINITIONS, changed(names={"plural": "widgets", "kind": "Widget", "shortNames": ["W D"]})),
        post(DEFINITIONS, changed(names={"kind": "Widget"})),
    ],
    "definition without versions: rejected": [post(DEFINITIONS, changed(versions=[]))],
    **{
        f"int-or-string with {what}": [
            post(DEFINITIONS, definition({"type": "object", "properties": {"port": port}})),
            ESTABLISHED,
            SERVED,
            *(post(WIDGETS, {**BARE, "spec": {"port": value}}) for value in (80, "http", "HTTP", True)),
        ]
        for what, port in INT_OR_STRING.items()
    },
    **{
        f"int-or-string with {what}": create_definition(
            {"type": "object", "properties": {"port": {"x-kubernetes-int-or-string": True, **port}}}
        )
        for what, port in OTHERWISE.items()
    },
    "schema without a type: rejected": create_definition({"properties": {"a": {"type": "string"}}}),
    "schema with an unknown type: rejected": create_definition({"type": "thing"}),
    "schema with a default of the wrong type: rejected": create_definition(
        {"type": "object", "properties": {"a": {"type": "integer", "default": "x"}}}
    ),
    "schema with additionalProperties and properties: rejected": create_definition(
        {
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "additionalProperties": {"type": "string"},
        }
    ),
    "schema with a $ref: rejected": create_definition({"$ref": "#/definitions/x"}),
    "schema of a list without items: rejected": create_definition(
        {"type": "object", "properties": {"a": {"type": "array"}}}
    ),
    "schema of a map list without keys: rejected": create_definition(
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "items": {"type": "object", "properties": {"n": {"type": "string"}}},
                }
            },
        }
    ),
    "schema of a map list with an optional key without default: rejected": create_definition(
        {
            "type": "object",
            "properties": {
                "a": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["n"],
                    "items": {"type": "object", "properties": {"n": {"type": "string"}}},
                }
            },
        }
    ),
    "schema with additionalProperties false: accepted": create_definition(
        {"type": "object", "properties": {}, "additionalProperties": False}
    ),
    "schema with uniqueItems: rejected": create_definition(
        {
            "type": "object",
            "properties": {"a": {"type": "array", "items": {"type": "string"}, "uniqueItems": True}},
        }
    ),
    "schema with an invalid pattern: rejected": create_definition(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "["}}}
    ),
    "schema whose CEL rule does not compile: rejected": [
        post(
            DEFINITIONS,
            definition(
                {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}},
                    "x-kubernetes-validations": [{"rule": "self.b > 1"}],
                }
            ),
        )
    ],
    **{
        f"CEL rule with the object's name, metadata {what}: checked in every write": [
            post(
                DEFINITIONS,
                root_rule("self.metadata.name.size() < 3 || has(self.status)", metadata=metadata),
            ),
            ESTABLISHED,
            SERVED,
            post(WIDGETS, named("abc")),
            post(WIDGETS, named("ab")),
            post(WIDGETS, {**named(""), "metadata": {"generateName": "a"}}),
            patch(f"{WIDGETS}/ab/status", {"status": {"phase": "Ready"}}),
        ]
        for what, metadata in {"declared": True, "not declared": False}.items()
    },
    "CEL rule of the whole object with a fieldPath: error has that path": [
        post(DEFINITIONS, root_rule("self.metadata.name == 'a'", ".metadata", metadata=True)),
        ESTABLISHED,
        SERVED,
        post(WIDGETS, named("b")),
    ],
    "CEL rule of the whole object that fails to evaluate: error without a path": [
        post(DEFINITIONS, root_rule("self.status.phase == 'a'")),
        ESTABLISHED,
        SERVED,
        post(WIDGETS, named("b")),
    ],
    "CEL rule with generateName, apiVersion and kind: accepted": [
        post(DEFINITIONS, root_rule("has(self.metadata.generateName) || self.kind + self.apiVersion != ''"))
    ],
    "CEL rule with other metadata than the name: rejected": [
        post(DEFINITIONS, root_rule("self.metadata.namespace == 'a'", metadata=True)),
        post(DEFINITIONS, root_rule("has(self.metadata.labels)")),
    ],
    "CEL rule of the spec with a name in its own metadata, not declared: rejected": create_definition(
        {
            "type": "object",
            "properties": {"metadata": {"type": "object", "properties": {}}},
            "x-kubernetes-validations": [{"rule": "self.metadata.name == 'a'"}],
        }
    ),
    "change of a definition's scope or group: rejected": [
        *DEFINED,
        patch(NAME, {"spec": {"scope": "Cluster"}}),
        patch(NAME, {"spec": {"group": "other.example.com"}}),
    ],
    "change of a definition's short names: accepted with a new generation": [
        *DEFINED,
        patch(NAME, {"spec": {"names": {"shortNames": ["wd", "wdg"]}}}, hide=("status",)),
        get(NAME, until="status.acceptedNames.shortNames.1"),
    ],
    "definition deleted: its resources are deleted": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        delete(NAME, hide=("status", "metadata.deletionTimestamp", "metadata.resourceVersion")),
        get(NAME, until_code=404),
        get(WIDGETS, until_code=404),
    ],
    "custom resource without a definition: 404": [get(WIDGETS), post(WIDGETS, widget())],
    "created custom resource: defaults set, unknown fields dropped": [
        *DEFINED,
        post(WIDGETS, widget(nonsense=1, parts=[{"name": "p", "unknown": 2}], free={"any": {"thing": [1]}})),
        get(OBJECT),
    ],
    "status in a created custom resource: dropped": [
        *DEFINED,
        post(WIDGETS, {**widget(), "status": {"phase": "X"}}),
    ],
    "custom resource without an optional spec: accepted": [
        *DEFINED,
        post(WIDGETS, BARE),
    ],
    "custom resource without a required field: rejected": [
        *DEFINED,
        post(WIDGETS, widget(size=None)),
        post(WIDGETS, {**widget(), "spec": {}}),
    ],
    "number below minimum or above maximum: rejected": [
        *DEFINED,
        post(WIDGETS, widget(size=0)),
        post(WIDGETS, widget(size=11)),
    ],
    "value of the wrong type: rejected": [
        *DEFINED,
        post(WIDGETS, widget(size="3")),
        post(WIDGETS, widget(size=3.5)),
        post(WIDGETS, widget(parts={})),
        post(WIDGETS, widget(options={"a": 1})),
        post(WIDGETS, {**widget(), "spec": []}, hide=("details.causes",)),
    ],
    "value that is not in the enum: rejected": [*DEFINED, post(WIDGETS, widget(colour="blue"))],
    "string too long or not matching the pattern: rejected": [
        *DEFINED,
        post(WIDGETS, widget(title="toolongtitle")),
        post(WIDGETS, widget(title="A")),
    ],
    "list too long or with duplicates: rejected": [
        *DEFINED,
        post(WIDGETS, widget(parts=[{"name": str(index)} for index in range(5)])),
        post(WIDGETS, widget(tags=["a", "a"])),
        post(WIDGETS, widget(parts=[{"name": "a"}, {"name": "a"}])),
    ],
    "several invalid fields: one error for each": [
        *DEFINED,
        post(WIDGETS, widget(size=0, colour="blue", title="A")),
    ],
    "int-or-string: integers and strings accepted, booleans rejected": [
        *DEFINED,
        post(WIDGETS, widget(port=80)),
        post(WIDGETS, widget("b", port="http")),
        post(WIDGETS, widget("c", port=True)),
    ],
    "null for a field with a default: default set": [
        *DEFINED,
        post(WIDGETS, widget(colour=None, title=None)),
    ],
    "custom resource with an invalid name: rejected": [
        *DEFINED,
        post(WIDGETS, widget("Big")),
        post(WIDGETS, widget("")),
    ],
    "custom resource of another kind or version than in the path: rejected": [
        *DEFINED,
        post(WIDGETS, {**BARE, "kind": "Gadget"}),
        post(WIDGETS, {**BARE, "apiVersion": "$ns.example.com/v2"}),
        post(WIDGETS, {"metadata": {"name": "a"}}),
    ],
    "custom resource with invalid metadata: as kube-apiserver": [
        *DEFINED,
        post(WIDGETS, widget(metadata={"labels": {"a": 1}})),
        post(WIDGETS, widget(metadata={"nonsense": 1})),
        post(WIDGETS, {**widget(), "metadata": "text"}),
    ],
    "change of the spec: generation increased, not by a change of metadata": [
        *DEFINED,
        post(WIDGETS, widget()),
        patch(OBJECT, {"spec": {"size": 4}}),
        patch(OBJECT, {"metadata": {"labels": {"a": "b"}}}),
        patch(OBJECT, {"spec": {"size": 4}}),
    ],
    "write to the status subresource: only the status is changed": [
        *DEFINED,
        post(WIDGETS, widget(), save="made", shown=False),
        put(f"{OBJECT}/status", {**widget(size=9), "status": {"phase": "Up"}, "metadata": "$made.metadata"}),
        patch(f"{OBJECT}/status", {"status": {"phase": "Down"}, "spec": {"size": 5}}),
        patch(OBJECT, {"status": {"phase": "Ignored"}, "spec": {"size": 6}}),
        get(f"{OBJECT}/status"),
        patch(f"{OBJECT}/status", {"status": {"phase": 7}}),
        patch(f"{OBJECT}/status", {"metadata": {"labels": {"x": "y"}}}),
    ],
    "update of a custom resource without a resourceVersion: rejected": [
        *DEFINED,
        post(WIDGETS, widget(), save="made", shown=False),
        put(OBJECT, widget(size=5)),
        put(OBJECT, widget(size=5, metadata={"resourceVersion": "$made.metadata.resourceVersion"})),
        put(OBJECT, widget(size=6, metadata={"resourceVersion": "$made.metadata.resourceVersion"})),
        put(f"{OBJECT}/status", widget()),
    ],
    "custom resource of another kind: validated after its name, namespace and version": [
        *DEFINED,
        put(OBJECT, GADGET),
        post(WIDGETS, widget(), save="made", shown=False),
        put(OBJECT, GADGET),
        put(OBJECT, {**GADGET, "metadata": {"name": "b"}}),
        put(OBJECT, {**GADGET, "metadata": {"name": "a", "resourceVersion": "1"}}),
        put(OBJECT, {**GADGET, "metadata": "$made.metadata", "spec": {"size": "x"}}),
        patch(OBJECT, {"kind": "Gadget", "metadata": {"resourceVersion": "1"}}),
        patch(OBJECT, {"kind": "Gadget", "metadata": {"labels": {"-": "-"}}}),
        post(WIDGETS, {**GADGET, "metadata": {"name": "a", "labels": {"-": "-"}}}),
        post(WIDGETS, {**GADGET, "metadata": {"generateName": "x-"}}),
        post(WIDGETS.replace("$ns/", "none/"), GADGET),
    ],
    "scale subresource: replicas are read and written": [
        *DEFINED,
        post(WIDGETS, widget(replicas=2), shown=False),
        patch(f"{OBJECT}/status", {"status": {"replicas": 1, "selector": "app=a"}}, shown=False),
        get(f"{OBJECT}/scale", save="scale"),
        patch(f"{OBJECT}/scale", {"spec": {"replicas": 5}}),
        put(
            f"{OBJECT}/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "a", "namespace": "$ns"},
                "spec": {"replicas": 7},
            },
        ),
        patch(f"{OBJECT}/scale", {"spec": {"replicas": -1}}),
        put(f"{OBJECT}/scale", "$scale"),
        get(OBJECT),
        get(f"{WIDGETS}/none/scale"),
    ],
    "definition without subresources: status is an ordinary field": [
        post(DEFINITIONS, definition(subresources=None), shown=False),
        ESTABLISHED,
        SERVED,
        post(WIDGETS, {**widget(), "status": {"phase": "X"}}),
        get(f"{OBJECT}/status"),
        get(f"{OBJECT}/scale"),
        patch(OBJECT, {"status": {"phase": "Y"}}),
    ],
    "strategic patch of a custom resource: rejected, other patches applied": [
        *DEFINED,
        post(WIDGETS, widget(parts=[{"name": "a"}, {"name": "b"}]), shown=False),
        patch(OBJECT, {"spec": {"parts": [{"name": "c"}]}}),
        patch(OBJECT, [{"op": "add", "path": "/spec/parts/-", "value": {"name": "d"}}], JSON_PATCH),
        patch(OBJECT, {"spec": {"size": 1}}, STRATEGIC),
        patch(OBJECT, {"spec": {"size": 99}}),
        patch(OBJECT, {"spec": None}),
    ],
    "custom resource that violates a CEL rule: rejected": [
        *RULED,
        post(WIDGETS, ruled(min=3, max=2)),
        post(WIDGETS, ruled(max=200)),
        post(WIDGETS, ruled(list=["ab", "b"])),
        post(WIDGETS, ruled(min=1, max=2, name="x", list=["a"])),
        patch(OBJECT, {"spec": {"name": "y"}}),
        patch(OBJECT, {"spec": {"min": 5}}),
    ],
    "stored value above a new maximum: accepted while unchanged": [
        post(
            DEFINITIONS, definition({"type": "object", "properties": {"a": {"type": "integer"}}}), shown=False
        ),
        ESTABLISHED,
        SERVED,
        post(WIDGETS, ruled(a=50), shown=False),
        patch(
            NAME,
            [
                {
                    "op": "add",
                    "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/a/maximum",
                    "value": 10,
                }
            ],
            JSON_PATCH,
            shown=False,
        ),
        post(
            f"{WIDGETS}?dryRun=All", {**ruled(a=49), "metadata": {"name": "b"}}, until_code=422, shown=False
        ),
        patch(OBJECT, {"metadata": {"labels": {"x": "y"}}}),
        patch(OBJECT, {"spec": {"a": 51}}),
    ],
    "cluster-scoped custom resource: not served in namespaces": [
        post(DEFINITIONS, changed(scope="Cluster"), shown=False),
        ESTABLISHED,
        get("/apis/$ns.example.com/v1/widgets", until="metadata.resourceVersion", shown=False),
        post("/apis/$ns.example.com/v1/widgets", widget()),
        get(WIDGETS),
        get("/apis/$ns.example.com/v1/widgets/a"),
    ],
    "list of custom resources: selectors and pages as for built-in kinds": [
        *DEFINED,
        post(WIDGETS, widget("a", metadata={"labels": {"x": "1"}}), shown=False),
        post(WIDGETS, widget("b"), shown=False),
        get(WIDGETS),
        get(f"{WIDGETS}?labelSelector=x%3D1"),
        get(f"{WIDGETS}?fieldSelector=metadata.name%3Db"),
        get(f"{WIDGETS}?fieldSelector=spec.size%3D3"),
        get(f"{WIDGETS}?limit=1"),
        get("/apis/$ns.example.com/v1/widgets"),
        delete(WIDGETS),
        get(WIDGETS),
    ],
    "field selector with a selectableField: matching objects": [
        post(DEFINITIONS, definition(selectableFields=[{"jsonPath": ".spec.colour"}]), shown=False),
        ESTABLISHED,
        SERVED,
        post(WIDGETS, widget("a"), shown=False),
        post(WIDGETS, widget("b", colour="green"), shown=False),
        get(f"{WIDGETS}?fieldSelector=spec.colour%3Dgreen"),
    ],
    "version with served false: 404": [
        post(
            DEFINITIONS,
            changed(
                versions=[
                    {
                        "name": name,
                        "served": name == "v1",
                        "storage": name == "v1",
                        "schema": {"openAPIV3Schema": {"type": "object"}},
                    }
                    for name in ("v1", "v1alpha1")
                ]
            ),
            shown=False,
        ),
        ESTABLISHED,
        SERVED,
        get("/apis/$ns.example.com/v1alpha1/namespaces/$ns/widgets"),
    ],
    "two served versions: the same object": [
        post(
            DEFINITIONS,
            changed(
                versions=[
                    {
                        "name": name,
                        "served": True,
                        "storage": name == "v1",
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            }
                        },
                    }
                    for name in ("v1", "v1alpha1")
                ]
            ),
            shown=False,
        ),
        ESTABLISHED,
        SERVED,
        post(WIDGETS, widget(), shown=False),
        get("/apis/$ns.example.com/v1alpha1/namespaces/$ns/widgets/a"),
        get("/apis/$ns.example.com"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_custom(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
