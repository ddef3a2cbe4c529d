"""Custom resources: definitions refused or read, objects pruned, defaulted and validated."""

import copy
from typing import NamedTuple

import pytest

from argosy.local.schema.crd.definition import CrdInfo, object_schema, parse_crd
from argosy.local.schema.crd.prune_default import admit
from argosy.local.schema.crd.validate import validate, validate_status
from argosy.local.schema.errors import aggregate
from argosy.local.schema.model import Json

SPEC: Json = {
    "type": "object",
    "required": ["req"],
    "properties": {
        "req": {"type": "string"},
        "int": {"type": "integer", "minimum": 1, "maximum": 10},
        "emin": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
        "num": {"type": "number", "multipleOf": 0.5},
        "str": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^[a-z]+$"},
        "en": {"type": "string", "enum": ["a", "b"]},
        "arr": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "lm": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
            },
        },
        "map": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "integer"}},
        "ios": {"x-kubernetes-int-or-string": True},
        "nul": {"type": "string", "nullable": True},
        "obj": {
            "type": "object",
            "default": {},
            "properties": {"a": {"type": "string", "default": "x"}, "b": {"type": "integer"}},
        },
        "dt": {"type": "string", "format": "date-time"},
        "i32": {"type": "integer", "format": "int32"},
        "any": {"x-kubernetes-preserve-unknown-fields": True},
        "emb": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "one": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    },
}
SCHEMA = object_schema({"type": "object", "properties": {"spec": SPEC}})


def thing(**spec: object) -> Json:
    return {
        "apiVersion": "x.io/v1",
        "kind": "Thing",
        "metadata": {"name": "t"},
        "spec": {"req": "x", **copy.deepcopy(spec)},
    }


class Case(NamedTuple):
    spec: Json
    want: str


INVALID = {
    "a wrong type": Case(
        {"int": "x"}, 'spec.int: Invalid value: "string": spec.int in body must be of type integer: "string"'
    ),
    "below the minimum": Case(
        {"int": 0}, "spec.int: Invalid value: 0: spec.int in body should be greater than or equal to 1"
    ),
    "above the maximum": Case(
        {"int": 11}, "spec.int: Invalid value: 11: spec.int in body should be less than or equal to 10"
    ),
    "at an exclusive bound": Case(
        {"emin": 1}, "spec.emin: Invalid value: 1: spec.emin in body should be greater than 1"
    ),
    "no multiple": Case(
        {"num": 0.7}, "spec.num: Invalid value: 0.7: spec.num in body should be a multiple of 0.5"
    ),
    "too short": Case(
        {"str": "x"}, 'spec.str: Invalid value: "x": spec.str in body should be at least 2 chars long'
    ),
    "too long": Case({"str": "xxxxx"}, "spec.str: Too long: may not be more than 4 bytes"),
    "another pattern": Case(
        {"str": "X1"}, "spec.str: Invalid value: \"X1\": spec.str in body should match '^[a-z]+$'"
    ),
    "none of the enum": Case({"en": "c"}, 'spec.en: Unsupported value: "c": supported values: "a", "b"'),
    "too few items": Case(
        {"arr": []}, "spec.arr: Invalid value: 0: spec.arr in body should have at least 1 items"
    ),
    "too many items": Case({"arr": ["a", "b", "c"]}, "spec.arr: Too many: 3: must have at most 2 items"),
    "a null item": Case(
        {"arr": [None]},
        'spec.arr[0]: Invalid value: "null": spec.arr[0] in body must be of type string: "null"',
    ),
    "a set with a value twice": Case({"set": ["a", "a"]}, 'spec.set[1]: Duplicate value: "a"'),
    "a list with a key twice": Case(
        {"lm": [{"name": "a"}, {"name": "a"}]}, 'spec.lm[1]: Duplicate value: {"name":"a"}'
    ),
    "an item without its key": Case({"lm": [{"v": 1}]}, "spec.lm[0].name: Required value"),
    "too many keys": Case(
        {"map": {"a": 1, "b": 2, "c": 3}}, "spec.map: Too many: 3: must have at most 2 items"
    ),
    "neither integer nor string": Case(
        {"ios": 1.5},
        'spec.ios: Invalid value: "number": spec.ios in body must be of type integer,string: "number"',
    ),
    "no time": Case(
        {"dt": "x"}, 'spec.dt: Invalid value: "x": spec.dt in body must be of type date-time: "x"'
    ),
    "more than 32 bits": Case(
        {"i32": 2**40},
        '<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.i32',
    ),
    "an embedded object without a type": Case(
        {"emb": {"a": 1}}, "[spec.emb.apiVersion: Required value, spec.emb.kind: Required value]"
    ),
    "none of the alternatives": Case(
        {"one": {}},
        '[<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none '
        "valid, spec.one.a: Required value]",
    ),
    "a required field that is null": Case({"req": None}, "spec.req: Required value"),
}


@pytest.mark.parametrize("case", INVALID.values(), ids=INVALID.keys())
def test_an_invalid_object_is_refused(case: Case) -> None:
    obj = thing(**case.spec)
    admit(obj, SCHEMA)
    assert aggregate(validate(obj, SCHEMA)) == f": {case.want}"


class Admitted(NamedTuple):
    spec: Json
    want: Json
    unknown: list[str]


ADMITTED = {
    "defaults are filled in, nested ones too": Admitted({}, {"obj": {"a": "x"}}, []),
    "a null where null is not allowed is as good as absent": Admitted(
        {"int": None, "obj": None, "map": {"k": None}}, {"obj": {"a": "x"}, "map": {}}, []
    ),
    "a null where it is allowed stays": Admitted({"nul": None}, {"nul": None, "obj": {"a": "x"}}, []),
    "unknown fields go and are told": Admitted(
        {"foo": 1, "lm": [{"name": "x", "z": 1}]},
        {"lm": [{"name": "x"}], "obj": {"a": "x"}},
        ["spec.foo", "spec.lm[0].z"],
    ),
    "where unknown fields are kept they are kept with their nulls": Admitted(
        {"any": {"a": {"b": None}}}, {"any": {"a": {"b": None}}, "obj": {"a": "x"}}, []
    ),
    "a whole number is an integer": Admitted({"int": 1.0}, {"int": 1, "obj": {"a": "x"}}, []),
    "metadata of embedded objects is read as metadata": Admitted(
        {"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n", "foo": 1}}},
        {"emb": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}}, "obj": {"a": "x"}},
        ["spec.emb.metadata.foo"],
    ),
}


@pytest.mark.parametrize("case", ADMITTED.values(), ids=ADMITTED.keys())
def test_an_object_is_pruned_and_defaulted(case: Admitted) -> None:
    obj = thing(**case.spec)
    assert admit(obj, SCHEMA) == case.unknown
    assert obj["spec"] == {"req": "x", **case.want}
    assert validate(obj, SCHEMA) == []


def test_what_did_not_change_is_not_complained_about_again() -> None:
    old = thing(int=50, obj={"a": "x"})
    assert validate({**old, "metadata": {"name": "t", "labels": {"a": "b"}}}, SCHEMA, old) == []
    changed = thing(int=60, obj={"a": "x"})
    assert len(validate(changed, SCHEMA, old)) == 1


def definition(**spec: object) -> Json:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA_ROOT}}
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


SCHEMA_ROOT: Json = {"type": "object", "properties": {"spec": SPEC}}


def with_field(field: Json) -> Json:
    declared = {"type": "object", "properties": {"x": field}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": declared}}
    return definition(versions=[version])


X = "spec.validation.openAPIV3Schema.properties[x]"
REFUSED = {
    "a name that is not plural.group": (
        definition(group="y.io"),
        'metadata.name: Invalid value: "things.x.io": must be spec.names.plural+"."+spec.group',
    ),
    "an unknown scope": (
        definition(scope="x"),
        'spec.scope: Unsupported value: "x": supported values: "Cluster", "Namespaced"',
    ),
    "a field without a type": (
        with_field({}),
        f"{X}.type: Required value: must not be empty for specified object fields",
    ),
    "an unknown type": (
        with_field({"type": "foo"}),
        f'{X}.type: Unsupported value: "foo": supported values: "array", "boolean", "integer", "number", '
        '"object", "string"',
    ),
    "a list without items": (with_field({"type": "array"}), f"{X}.items: Required value: must be specified"),
    "a default of the wrong type": (
        with_field({"type": "string", "default": 5}),
        f'{X}.default: Invalid value: "integer":  in body must be of type string: "integer"',
    ),
    "a broken pattern": (
        with_field({"type": "string", "pattern": "["}),
        f'{X}.pattern: Invalid value: "[": must be a valid regular expression, but isn\'t: error parsing '
        "regexp: missing closing ]: `[`",
    ),
    "a reference": (with_field({"$ref": "#/x"}), f"{X}.$ref: Forbidden: $ref is not supported"),
    "a type inside anyOf": (
        with_field({"type": "string", "anyOf": [{"type": "string"}]}),
        f"{X}.anyOf[0].type: Forbidden: must be empty to be structural",
    ),
    "unique items": (
        with_field({"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        f"{X}.uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes "
        "quadratic",
    ),
    "a map list without keys": (
        with_field({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
        f"{X}.x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map",
    ),
    "a rule about a field that is not declared": (
        with_field({"type": "object", "x-kubernetes-validations": [{"rule": "self.foo == 1"}]}),
        f'{X}.x-kubernetes-validations[0].rule: Invalid value: {{"Rule":"self.foo == 1","Message":"",'
        '"MessageExpression":"","Reason":null,"FieldPath":"","OptionalOldSelf":null}: compilation failed: '
        "ERROR: <input>:1:5: undefined field 'foo'\n | self.foo == 1\n | ....^",
    ),
}


@pytest.mark.parametrize(("crd", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_a_broken_definition_is_refused(crd: Json, want: str) -> None:
    errors = parse_crd(crd)
    assert isinstance(errors, list)
    assert aggregate(errors) == f": {want}"


def test_a_definition_is_read() -> None:
    info = parse_crd(definition())
    assert isinstance(info, CrdInfo)
    assert (info.kind, info.plural, info.storage_version, info.namespaced) == ("Thing", "things", "v1", True)


def test_a_write_of_status_is_told_from_status_on() -> None:
    status: Json = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = object_schema({"type": "object", "properties": {"status": status}})
    errors = validate_status({"spec": {"anything": 1}, "status": {"phase": 1}}, schema)
    want = 'status.phase: Invalid value: "integer": phase in body must be of type string: "integer"'
    assert aggregate(errors) == f": {want}"
