"""Patches have the effect that they have in kube-apiserver, and do not change their arguments."""

import copy
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.local.schema.builtin import builtin_kind
from argosy.local.schema.json_patch import PatchError, json_patch, merge_patch
from argosy.local.schema.model import Json
from argosy.local.schema.strategic_merge import strategic_merge_patch

scalars = st.one_of(st.booleans(), st.integers(-3, 3), st.text("ab", max_size=2))
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)
objects = st.dictionaries(st.text("abc", max_size=2), values, max_size=4)


@given(objects, objects)
def test_second_application_of_a_merge_patch_changes_nothing(target: Json, patch: Json) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


class JsonCase(NamedTuple):
    operations: list[object]
    want: object


DOCUMENT: Json = {"a": {"b": [1, 2, 3]}, "c/d": "x"}

JSON_CASES = {
    "add of a key: set": JsonCase(
        [{"op": "add", "path": "/a/e", "value": 1}], {"a": {"b": [1, 2, 3], "e": 1}, "c/d": "x"}
    ),
    "add with index -: appended": JsonCase(
        [{"op": "add", "path": "/a/b/-", "value": 4}], {"a": {"b": [1, 2, 3, 4]}, "c/d": "x"}
    ),
    "add with an index: inserted": JsonCase(
        [{"op": "add", "path": "/a/b/1", "value": 9}], {"a": {"b": [1, 9, 2, 3]}, "c/d": "x"}
    ),
    "~1 in a path: slash in a key": JsonCase(
        [{"op": "replace", "path": "/c~1d", "value": "y"}], {"a": {"b": [1, 2, 3]}, "c/d": "y"}
    ),
    "remove of a list item: removed": JsonCase(
        [{"op": "remove", "path": "/a/b/0"}], {"a": {"b": [2, 3]}, "c/d": "x"}
    ),
    "move: value at its new path": JsonCase(
        [{"op": "move", "from": "/a/b", "path": "/e"}], {"a": {}, "c/d": "x", "e": [1, 2, 3]}
    ),
    "copy: value at both paths": JsonCase(
        [{"op": "copy", "from": "/c~1d", "path": "/e"}], {"a": {"b": [1, 2, 3]}, "c/d": "x", "e": "x"}
    ),
    "test with the same value: no change": JsonCase([{"op": "test", "path": "/a/b/0", "value": 1}], DOCUMENT),
    "test with another value: error": JsonCase(
        [{"op": "test", "path": "/a/b/0", "value": 2}], "test failed: /a/b/0"
    ),
    "remove of a missing field: error": JsonCase(
        [{"op": "remove", "path": "/a/x"}],
        "path not found: /a/x",
    ),
    "replace of a missing field: added": JsonCase(
        [{"op": "replace", "path": "/a/x", "value": 1}], {"a": {"b": [1, 2, 3], "x": 1}, "c/d": "x"}
    ),
    "replace of a missing list item: error": JsonCase(
        [{"op": "replace", "path": "/a/b/7", "value": 1}],
        "index 7 is out of range",
    ),
    "add below a missing field: error": JsonCase(
        [{"op": "add", "path": "/x/y", "value": 1}],
        "path not found: /x",
    ),
    "unknown operation: error": JsonCase([{"op": "twist", "path": "/a"}], "unknown operation: twist"),
}


@pytest.mark.parametrize("case", JSON_CASES.values(), ids=JSON_CASES.keys())
def test_json_patch(case: JsonCase) -> None:
    before = copy.deepcopy(DOCUMENT)
    if isinstance(case.want, str):
        with pytest.raises(PatchError) as error:
            json_patch(DOCUMENT, case.operations)
        assert str(error.value) == case.want
    else:
        assert json_patch(DOCUMENT, case.operations) == case.want
    assert before == DOCUMENT


class StrategicCase(NamedTuple):
    target: Json
    patch: Json
    want: Json


def pod(**spec: object) -> Json:
    return {"spec": spec}


STRATEGIC_CASES = {
    "containers: merged by name": StrategicCase(
        pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
        pod(containers=[{"name": "b", "image": "2"}]),
        pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]),
    ),
    "new item: first, in the order of the patch": StrategicCase(
        pod(containers=[{"name": "a"}]),
        pod(containers=[{"name": "b"}]),
        pod(containers=[{"name": "b"}, {"name": "a"}]),
    ),
    "directive delete: item is removed": StrategicCase(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        pod(containers=[{"name": "a", "$patch": "delete"}]),
        pod(containers=[{"name": "b"}]),
    ),
    "directive replace: list is replaced": StrategicCase(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        pod(containers=[{"$patch": "replace"}, {"name": "c"}]),
        pod(containers=[{"name": "c"}]),
    ),
    "atomic list: replaced": StrategicCase(
        pod(containers=[{"name": "a", "args": ["x", "y"]}]),
        pod(containers=[{"name": "a", "args": ["z"]}]),
        pod(containers=[{"name": "a", "args": ["z"]}]),
    ),
    "finalizers: merged as a set": StrategicCase(
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["c"]}},
        {"metadata": {"finalizers": ["c", "a", "b"]}},
    ),
    "directive deleteFromPrimitiveList: scalars are removed": StrategicCase(
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    "directive setElementOrder: its order": StrategicCase(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        pod(containers=[{"name": "b"}, {"name": "a"}]),
    ),
    "directive retainKeys: other keys are removed": StrategicCase(
        {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"type": "Recreate"}}},
    ),
    "null: field is removed": StrategicCase(
        pod(hostname="x", containers=[]), pod(hostname=None), pod(containers=[])
    ),
}


@pytest.mark.parametrize("case", STRATEGIC_CASES.values(), ids=STRATEGIC_CASES.keys())
def test_strategic_merge_patch(case: StrategicCase) -> None:
    kind = builtin_kind("", "v1", "Pod")
    assert kind is not None
    before = copy.deepcopy(case.target)
    assert strategic_merge_patch(case.target, case.patch, kind.schema) == case.want
    assert case.target == before
