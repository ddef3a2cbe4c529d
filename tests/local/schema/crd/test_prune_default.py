"""Custom resources are pruned, defaulted and validated by their schema."""

import copy
from typing import NamedTuple

import pytest

from argosy.local.schema.crd.definition import object_schema
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
    "wrong type: rejected": Case(
        {"int": "x"}, 'spec.int: Invalid value: "string": spec.int in body must be of type integer: "string"'
    ),
    "number below the minimum: rejected": Case(
        {"int": 0}, "spec.int: Invalid value: 0: spec.int in body should be greater than or equal to 1"
    ),
    "number above the maximum: rejected": Case(
        {"int": 11}, "spec.int: Invalid value: 11: spec.int in body should be less than or equal to 10"
    ),
    "number equal to an exclusive bound: rejected": Case(
        {"emin": 1}, "spec.emin: Invalid value: 1: spec.emin in body should be greater than 1"
    ),
    "number that is not a multiple: rejected": Case(
        {"num": 0.7}, "spec.num: Invalid value: 0.7: spec.num in body should be a multiple of 0.5"
    ),
    "string below the minimum length: rejected": Case(
        {"str": "x"}, 'spec.str: Invalid value: "x": spec.str in body should be at least 2 chars long'
    ),
    "string above the maximum length: rejected": Case(
        {"str": "xxxxx"}, "spec.str: Too long: may not be more than 4 bytes"
    ),
    "string that does not match the pattern: rejected": Case(
        {"str": "X1"}, "spec.str: Invalid value: \"X1\": spec.str in body should match '^[a-z]+$'"
    ),
    "value that is not in the enum: rejected": Case(
        {"en": "c"}, 'spec.en: Unsupported value: "c": supported values: "a", "b"'
    ),
    "list below the minimum length: rejected": Case(
        {"arr": []}, "spec.arr: Invalid value: 0: spec.arr in body should have at least 1 items"
    ),
    "list above the maximum length: rejected": Case(
        {"arr": ["a", "b", "c"]}, "spec.arr: Too many: 3: must have at most 2 items"
    ),
    "null as a list item: rejected": Case(
        {"arr": [None]},
        'spec.arr[0]: Invalid value: "null": spec.arr[0] in body must be of type string: "null"',
    ),
    "set with a duplicate value: rejected": Case({"set": ["a", "a"]}, 'spec.set[1]: Duplicate value: "a"'),
    "list of type map with a duplicate key: rejected": Case(
        {"lm": [{"name": "a"}, {"name": "a"}]}, 'spec.lm[1]: Duplicate value: {"name":"a"}'
    ),
    "list item without its key: rejected": Case({"lm": [{"v": 1}]}, "spec.lm[0].name: Required value"),
    "map with too many keys: rejected": Case(
        {"map": {"a": 1, "b": 2, "c": 3}}, "spec.map: Too many: 3: must have at most 2 items"
    ),
    "fraction for int-or-string: rejected": Case(
        {"ios": 1.5},
        'spec.ios: Invalid value: "number": spec.ios in body must be of type integer,string: "number"',
    ),
    "string that is not a date-time: rejected": Case(
        {"dt": "x"}, 'spec.dt: Invalid value: "x": spec.dt in body must be of type date-time: "x"'
    ),
    "int32 above 32 bits: rejected": Case(
        {"i32": 2**40},
        '<nil>: Invalid value: "": spec.i32 must be an integer of 32 bits',
    ),
    "embedded resource without a kind: rejected": Case(
        {"emb": {"a": 1}}, "[spec.emb.apiVersion: Required value, spec.emb.kind: Required value]"
    ),
    "value that matches no alternative: rejected": Case(
        {"one": {}},
        '[<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none '
        "valid, spec.one.a: Required value]",
    ),
    "null for a required field: rejected": Case({"req": None}, "spec.req: Required value"),
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
    "empty object: nested defaults": Admitted({}, {"obj": {"a": "x"}}, []),
    "null that is not allowed: dropped": Admitted(
        {"int": None, "obj": None, "map": {"k": None}}, {"obj": {"a": "x"}, "map": {}}, []
    ),
    "null that is allowed: kept": Admitted({"nul": None}, {"nul": None, "obj": {"a": "x"}}, []),
    "unknown fields: dropped and returned": Admitted(
        {"foo": 1, "lm": [{"name": "x", "z": 1}]},
        {"lm": [{"name": "x"}], "obj": {"a": "x"}},
        ["spec.foo", "spec.lm[0].z"],
    ),
    "preserved unknown fields: kept with nulls": Admitted(
        {"any": {"a": {"b": None}}}, {"any": {"a": {"b": None}}, "obj": {"a": "x"}}, []
    ),
    "whole float: integer": Admitted({"int": 1.0}, {"int": 1, "obj": {"a": "x"}}, []),
    "unknown metadata of an embedded resource: dropped and returned": Admitted(
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


def test_values_that_did_not_change_are_not_validated_again() -> None:
    old = thing(int=50, obj={"a": "x"})
    assert validate({**old, "metadata": {"name": "t", "labels": {"a": "b"}}}, SCHEMA, old) == []
    changed = thing(int=60, obj={"a": "x"})
    assert len(validate(changed, SCHEMA, old)) == 1


def test_errors_of_a_status_write_have_paths_below_status() -> None:
    status: Json = {"type": "object", "properties": {"phase": {"type": "string"}}}
    schema = object_schema({"type": "object", "properties": {"status": status}})
    errors = validate_status({"spec": {"anything": 1}, "status": {"phase": 1}}, schema)
    assert [error.path for error in errors] == ["status.phase"]
