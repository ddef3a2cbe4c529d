"""CEL rules are evaluated, and refused if this server cannot evaluate them."""

import pytest

from argosy.local.schema.crd.cel import CelError, compile_expression, escape, rule_errors, run_rules
from argosy.local.schema.errors import aggregate
from argosy.local.schema.model import Json, Schema


def schema(*rules: Json, **properties: Json) -> Schema:
    inner = {"type": "object", "properties": properties, "x-kubernetes-validations": list(rules)}
    return Schema({"type": "object", "properties": {"spec": inner}})


INT: Json = {"type": "integer"}
BOUNDS: Json = {"rule": "!has(self.min) || !has(self.max) || self.min <= self.max", "message": "min over max"}


def errors_text(rules: Schema, new: Json, old: Json | None = None) -> str:
    before: Json | None = None if old is None else {"spec": old}
    return aggregate(run_rules({"spec": new}, rules, before)).removeprefix(": ")


def test_error_of_a_violated_rule_has_its_message() -> None:
    rules = schema(BOUNDS, min=INT, max=INT)
    assert errors_text(rules, {"min": 1, "max": 2}) == ""
    assert errors_text(rules, {"min": 3, "max": 2}) == "spec: Invalid value: min over max"


def test_path_of_a_map_value_has_its_key_in_brackets() -> None:
    role: Json = {
        "type": "object",
        "properties": {"min": INT},
        "x-kubernetes-validations": [{"rule": "false"}],
    }
    rules = schema(roles={"type": "object", "additionalProperties": role})
    assert (
        errors_text(rules, {"roles": {"worker": {}}})
        == "spec.roles[worker]: Invalid value: failed rule: false"
    )


def test_error_of_a_rule_without_a_message_has_the_rule() -> None:
    rules = schema({"rule": "self.min >= 0"}, min=INT)
    assert errors_text(rules, {"min": -1}) == "spec: Invalid value: failed rule: self.min >= 0"


def test_error_has_the_reason_field_path_and_message_expression_of_the_rule() -> None:
    rule: Json = {
        "rule": "self.max < 100",
        "messageExpression": "'max ' + string(self.max) + ' is too big'",
        "fieldPath": ".max",
        "reason": "FieldValueForbidden",
    }
    assert errors_text(schema(rule, max=INT), {"max": 200}) == "spec.max: Forbidden: max 200 is too big"


def test_transition_rule_is_evaluated_in_updates_only() -> None:
    fixed: Json = {
        "type": "string",
        "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed"}],
    }
    rules = schema(kind=fixed)
    assert errors_text(rules, {"kind": "a"}) == ""
    assert errors_text(rules, {"kind": "a"}, {"kind": "a"}) == ""
    assert errors_text(rules, {"kind": "b"}, {"kind": "a"}) == 'spec.kind: Invalid value: "b": fixed'


def test_rule_is_not_evaluated_for_unchanged_values() -> None:
    rules = schema(BOUNDS, min=INT, max=INT)
    assert errors_text(rules, {"min": 3, "max": 2}, {"min": 3, "max": 2}) == ""


def test_old_list_items_are_found_by_their_keys() -> None:
    item: Json = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "v": INT},
        "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "message": "never less"}],
    }
    listed: Json = {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": item,
    }
    rules = schema(items=listed)
    old: Json = {"items": [{"name": "a", "v": 1}, {"name": "b", "v": 5}]}
    assert errors_text(rules, {"items": [{"name": "b", "v": 6}, {"name": "c", "v": 0}]}, old) == ""
    assert (
        errors_text(rules, {"items": [{"name": "b", "v": 4}]}, old)
        == "spec.items[0]: Invalid value: never less"
    )


def test_times_and_durations_can_be_compared() -> None:
    duration: Json = {"type": "string", "format": "duration"}
    rule: Json = {"rule": "self.a < self.b", "message": "order"}
    rules = schema(rule, a=duration, b=duration)
    assert errors_text(rules, {"a": "90s", "b": "2m"}) == ""
    assert errors_text(rules, {"a": "3m", "b": "2m"}) == "spec: Invalid value: order"


def test_names_that_are_not_identifiers_are_escaped() -> None:
    assert escape("a-b") == "a__dash__b"
    assert escape("namespace") == "__namespace__"
    rules = schema({"rule": "self.a__dash__b > 0", "message": "m"}, **{"a-b": INT})
    assert errors_text(rules, {"a-b": 1}) == ""
    assert errors_text(rules, {"a-b": 0}) == "spec: Invalid value: m"


@pytest.mark.parametrize(
    "text", ["self.isURL()", "quantity('1')", "self.split(',')", "self.?a", "sets.contains([1],[1])"]
)
def test_unsupported_functions_are_refused(text: str) -> None:
    with pytest.raises(CelError):
        compile_expression(text)


def test_error_of_an_invalid_rule_has_its_path() -> None:
    errors = rule_errors(schema({"rule": ""}, {"rule": "1"}, {"rule": "self.nothing"}), "root")
    assert [error.path for error in errors] == [
        "root.properties[spec].x-kubernetes-validations[0].rule",
        "root.properties[spec].x-kubernetes-validations[1].rule",
        "root.properties[spec].x-kubernetes-validations[2].rule",
    ]
