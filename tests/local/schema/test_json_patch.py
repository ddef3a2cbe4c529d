"""Patches do what kube-apiserver does with them, and never touch their arguments."""

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
def test_a_merge_patch_applied_twice_changes_nothing_more(target: Json, patch: Json) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


class JsonCase(NamedTuple):
    operations: list[object]
    want: object


DOCUMENT: Json = {"a": {"b": [1, 2, 3]}, "c/d": "x"}

JSON_CASES = {
    "add puts a key": JsonCase(
        [{"op": "add", "path": "/a/e", "value": 1}], {"a": {"b": [1, 2, 3], "e": 1}, "c/d": "x"}
    ),
    "add with - appends": JsonCase(
        [{"op": "add", "path": "/a/b/-", "value": 4}], {"a": {"b": [1, 2, 3, 4]}, "c/d": "x"}
    ),
    "add with an index inserts": JsonCase(
        [{"op": "add", "path": "/a/b/1", "value": 9}], {"a": {"b": [1, 9, 2, 3]}, "c/d": "x"}
    ),
    "a slash in a key is written ~1": JsonCase(
        [{"op": "replace", "path": "/c~1d", "value": "y"}], {"a": {"b": [1, 2, 3]}, "c/d": "y"}
    ),
    "remove takes an item away": JsonCase(
        [{"op": "remove", "path": "/a/b/0"}], {"a": {"b": [2, 3]}, "c/d": "x"}
    ),
    "move carries a value": JsonCase(
        [{"op": "move", "from": "/a/b", "path": "/e"}], {"a": {}, "c/d": "x", "e": [1, 2, 3]}
    ),
    "copy leaves the source": JsonCase(
        [{"op": "copy", "from": "/c~1d", "path": "/e"}], {"a": {"b": [1, 2, 3]}, "c/d": "x", "e": "x"}
    ),
    "a passing test changes nothing": JsonCase([{"op": "test", "path": "/a/b/0", "value": 1}], DOCUMENT),
    "a failing test stops all": JsonCase(
        [{"op": "test", "path": "/a/b/0", "value": 2}], "test failed: /a/b/0"
    ),
    "removing what is not there is refused": JsonCase(
        [{"op": "remove", "path": "/a/x"}],
        "path not found: /a/x",
    ),
    "replacing what is not there adds it": JsonCase(
        [{"op": "replace", "path": "/a/x", "value": 1}], {"a": {"b": [1, 2, 3], "x": 1}, "c/d": "x"}
    ),
    "replacing an item that is not there is refused": JsonCase(
        [{"op": "replace", "path": "/a/b/7", "value": 1}],
        "index 7 is out of range",
    ),
    "adding below what is not there is refused": JsonCase(
        [{"op": "add", "path": "/x/y", "value": 1}],
        "path not found: /x",
    ),
    "an unknown operation is refused": JsonCase([{"op": "twist", "path": "/a"}], "unknown operation: twist"),
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
    "containers merge by name": StrategicCase(
        pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
        pod(containers=[{"name": "b", "image": "2"}]),
        pod(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]),
    ),
    "a new item comes first, as the patch orders": StrategicCase(
        pod(containers=[{"name": "a"}]),
        pod(containers=[{"name": "b"}]),
        pod(containers=[{"name": "b"}, {"name": "a"}]),
    ),
    "an item is deleted by directive": StrategicCase(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        pod(containers=[{"name": "a", "$patch": "delete"}]),
        pod(containers=[{"name": "b"}]),
    ),
    "a list is replaced by directive": StrategicCase(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        pod(containers=[{"$patch": "replace"}, {"name": "c"}]),
        pod(containers=[{"name": "c"}]),
    ),
    "an atomic list is replaced": StrategicCase(
        pod(containers=[{"name": "a", "args": ["x", "y"]}]),
        pod(containers=[{"name": "a", "args": ["z"]}]),
        pod(containers=[{"name": "a", "args": ["z"]}]),
    ),
    "finalizers merge as a set": StrategicCase(
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"finalizers": ["c"]}},
        {"metadata": {"finalizers": ["c", "a", "b"]}},
    ),
    "scalars leave a set by directive": StrategicCase(
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    "the order list orders": StrategicCase(
        pod(containers=[{"name": "a"}, {"name": "b"}]),
        {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
        pod(containers=[{"name": "b"}, {"name": "a"}]),
    ),
    "retainKeys drops what it does not name": StrategicCase(
        {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"type": "Recreate"}}},
    ),
    "null removes": StrategicCase(pod(hostname="x", containers=[]), pod(hostname=None), pod(containers=[])),
}


@pytest.mark.parametrize("case", STRATEGIC_CASES.values(), ids=STRATEGIC_CASES.keys())
def test_strategic_merge_patch(case: StrategicCase) -> None:
    kind = builtin_kind("", "v1", "Pod")
    assert kind is not None
    before = copy.deepcopy(case.target)
    assert strategic_merge_patch(case.target, case.patch, kind.schema) == case.want
    assert case.target == before
