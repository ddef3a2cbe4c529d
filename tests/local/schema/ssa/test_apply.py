"""Server-side apply: ownership, removal of fields, conflicts."""

import copy
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.local.schema.builtin import builtin_kind
from argosy.local.schema.crd.definition import object_schema
from argosy.local.schema.model import Json
from argosy.local.schema.ssa import fieldpath
from argosy.local.schema.ssa.apply import ApplyError, Conflicts, apply
from argosy.local.schema.ssa.merge import all_paths, field_set
from argosy.local.schema.ssa.typed_shape import shape_of
from argosy.local.schema.ssa.update import excluding, only, update_managed_fields

SCHEMA = object_schema(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "a": {"type": "string"},
                    "n": {"type": "integer"},
                    "atomic": {"type": "array", "items": {"type": "string"}},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "items": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                        "items": {
                            "type": "object",
                            "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
                        },
                    },
                    "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                },
            },
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
)
TIME, LATER = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def thing(**spec: object) -> Json:
    return {"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


def applied(live: Json | None, config: Json, manager: str, *, force: bool = False, time: str = TIME) -> Json:
    return apply(live, config, manager=manager, api_version="x.io/v1", time=time, schema=SCHEMA, force=force)


def owned(obj: Json) -> dict[str, object]:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return {entry["manager"]: entry["fieldsV1"] for entry in metadata.get("managedFields", [])}


def spec(obj: Json) -> Json:
    spec = obj.get("spec", {})
    assert isinstance(spec, dict)
    return spec


def test_manager_owns_the_fields_that_it_applied() -> None:
    live = applied(None, thing(a="x", items=[{"name": "p", "v": 1}], set=["s"], map={"k": 1}), "alice")
    assert owned(live) == {
        "alice": {
            "f:spec": {
                "f:a": {},
                "f:items": {'k:{"name":"p"}': {".": {}, "f:name": {}, "f:v": {}}},
                "f:set": {'v:"s"': {}},
                "f:map": {"f:k": {}},
            }
        }
    }


class Case(NamedTuple):
    first: Json
    second: Json
    want: Json


PRUNED = {
    "field that is no longer applied: removed": Case({"a": "x", "n": 1}, {"n": 1}, {"n": 1}),
    "list item that is no longer applied: removed": Case(
        {"items": [{"name": "p", "v": 1}, {"name": "q"}]},
        {"items": [{"name": "q"}]},
        {"items": [{"name": "q"}]},
    ),
    "field of a list item that is no longer applied: removed": Case(
        {"items": [{"name": "p", "v": 1}]}, {"items": [{"name": "p"}]}, {"items": [{"name": "p"}]}
    ),
    "member of a set that is no longer applied: removed": Case(
        {"set": ["a", "b"]}, {"set": ["b"]}, {"set": ["b"]}
    ),
    "key of a map that is no longer applied: removed": Case(
        {"map": {"a": 1, "b": 2}}, {"map": {"b": 2}}, {"map": {"b": 2}}
    ),
    "atomic list: replaced": Case({"atomic": ["a", "b"]}, {"atomic": ["c"]}, {"atomic": ["c"]}),
}


@pytest.mark.parametrize("case", PRUNED.values(), ids=PRUNED.keys())
def test_fields_that_a_manager_no_longer_applies_are_removed(case: Case) -> None:
    live = applied(None, thing(**case.first), "alice")
    assert spec(applied(live, thing(**case.second), "alice")) == case.want


def test_fields_of_another_manager_are_kept() -> None:
    live = applied(None, thing(a="x", n=1), "alice")
    live = applied(live, thing(a="x"), "bob")
    live = applied(live, thing(n=1), "alice")
    assert spec(live) == {"a": "x", "n": 1}
    assert owned(live) == {"alice": {"f:spec": {"f:n": {}}}, "bob": {"f:spec": {"f:a": {}}}}


def test_change_of_a_field_of_another_manager_is_a_conflict() -> None:
    live = applied(None, thing(a="x", n=1, items=[{"name": "p", "v": 1}]), "alice")
    with pytest.raises(Conflicts) as one_conflict:
        applied(live, thing(a="y"), "bob")
    assert str(one_conflict.value) == 'Apply failed with 1 conflict: conflict with "alice": .spec.a'
    assert one_conflict.value.causes() == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "alice"', "field": ".spec.a"}
    ]
    with pytest.raises(Conflicts) as two_conflicts:
        applied(live, thing(a="y", items=[{"name": "p", "v": 2}]), "bob")
    assert str(two_conflicts.value) == (
        'Apply failed with 2 conflicts: conflicts with "alice":\n- .spec.a\n- .spec.items[name="p"].v'
    )


def test_conflict_with_an_update_contains_its_version() -> None:
    live = update_managed_fields(
        None, thing(a="x"), manager="me", api_version="x.io/v1", time=TIME, schema=SCHEMA
    )
    with pytest.raises(Conflicts, match=r'conflict with "me" using x.io/v1: .spec.a'):
        applied(live, thing(a="y"), "bob")


def test_force_transfers_ownership() -> None:
    live = applied(None, thing(a="x", n=1), "alice")
    live = applied(live, thing(a="y"), "bob", force=True)
    assert spec(live) == {"a": "y", "n": 1}
    assert owned(live) == {"alice": {"f:spec": {"f:n": {}}}, "bob": {"f:spec": {"f:a": {}}}}


def test_second_apply_changes_neither_object_nor_time() -> None:
    live = applied(None, thing(a="x", items=[{"name": "p"}]), "alice")
    assert applied(live, thing(a="x", items=[{"name": "p"}]), "alice", time=LATER) == live


REFUSED = {
    "undeclared field: rejected": (
        thing(zzz=1),
        "failed to create typed patch object: .spec.zzz: field not declared in schema",
    ),
    "duplicate list item: rejected": (
        thing(items=[{"name": "p"}, {"name": "p"}]),
        'failed to create typed patch object: .spec.items: duplicate entries for key [name="p"]',
    ),
}


@pytest.mark.parametrize(("config", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_configuration_that_does_not_fit_the_schema_is_refused(config: Json, want: str) -> None:
    with pytest.raises(ApplyError) as error:
        applied(None, config, "alice")
    assert str(error.value) == want


def test_update_owns_changed_paths_and_keeps_its_time_without_changes() -> None:
    first = update_managed_fields(
        None, thing(a="x"), manager="me", api_version="x.io/v1", time=TIME, schema=SCHEMA
    )
    assert owned(first) == {"me": {"f:spec": {".": {}, "f:a": {}}}}
    same = update_managed_fields(
        first, copy.deepcopy(first), manager="you", api_version="x.io/v1", time=LATER, schema=SCHEMA
    )
    assert same == first
    changed = {**copy.deepcopy(first), "spec": {"a": "y", "n": 1}}
    after = update_managed_fields(
        first, changed, manager="you", api_version="x.io/v1", time=LATER, schema=SCHEMA
    )
    assert owned(after) == {"me": {"f:spec": {}}, "you": {"f:spec": {"f:a": {}, "f:n": {}}}}


def test_write_to_status_owns_status_only() -> None:
    first = update_managed_fields(
        None, thing(a="x"), manager="me", api_version="x.io/v1", time=TIME, schema=SCHEMA
    )
    changed: Json = {**copy.deepcopy(first), "spec": {"a": "ignored"}, "status": {"ready": 1}}
    after = update_managed_fields(
        first,
        changed,
        manager="ctl",
        api_version="x.io/v1",
        time=LATER,
        schema=SCHEMA,
        subresource="status",
        resets=only("status"),
    )
    metadata = after["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["managedFields"][1] == {
        "manager": "ctl",
        "operation": "Update",
        "apiVersion": "x.io/v1",
        "time": LATER,
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:status": {".": {}, "f:ready": {}}},
        "subresource": "status",
    }


def test_empty_managed_fields_remove_all_owners() -> None:
    first = applied(None, thing(a="x"), "alice")
    reset: Json = {**first, "metadata": {"name": "t", "managedFields": [{}]}}
    after = update_managed_fields(
        first, reset, manager="me", api_version="x.io/v1", time=LATER, schema=SCHEMA
    )
    assert owned(after) == {}


def test_oldest_of_more_than_ten_update_entries_are_joined() -> None:
    live: Json | None = None
    for count in range(13):
        new = thing(map={f"k{i}": i for i in range(count + 1)})
        if live is not None:
            new["metadata"] = live["metadata"]
        time = f"2026-01-01T00:00:{count:02}Z"
        live = update_managed_fields(
            live, new, manager=f"m{count}", api_version="x.io/v1", time=time, schema=SCHEMA
        )
    assert live is not None
    assert len(owned(live)) == 10
    assert "ancient-changes" in owned(live)


def test_managed_fields_of_a_new_pod_equal_those_of_kube_apiserver() -> None:
    kind = builtin_kind("", "v1", "Pod")
    assert kind is not None
    pod: Json = {
        "metadata": {"generateName": "x", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}], "restartPolicy": "Always"},
        "status": {"phase": "Pending"},
    }
    tracked = update_managed_fields(
        None,
        pod,
        manager="me",
        api_version="v1",
        time=TIME,
        schema=kind.schema,
        resets=excluding("status"),
    )
    assert owned(tracked) == {
        "me": {
            "f:metadata": {"f:generateName": {}, "f:labels": {".": {}, "f:a": {}}},
            "f:spec": {
                "f:containers": {'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}},
                "f:restartPolicy": {},
            },
        }
    }


Fields = dict[str, st.SearchStrategy[object]]
named: Fields = {"name": st.sampled_from("abc")}
weighed: Fields = {"v": st.integers(0, 2)}
always: Fields = {"n": st.integers(0, 2)}
sometimes: Fields = {
    "a": st.sampled_from(["x", "y"]),
    "atomic": st.lists(st.sampled_from(["p", "q"]), min_size=1, max_size=2),
    "set": st.lists(st.sampled_from(["p", "q", "r"]), unique=True, min_size=1, max_size=3),
    "items": st.lists(
        st.fixed_dictionaries(named, optional=weighed),
        unique_by=lambda item: str(item["name"]),
        min_size=1,
        max_size=3,
    ),
    "map": st.dictionaries(st.sampled_from("kl"), st.integers(0, 2), min_size=1, max_size=2),
}
specs = st.fixed_dictionaries(always, optional=sometimes)
histories = st.lists(
    st.tuples(st.sampled_from(["alice", "bob", "carol"]), specs, st.booleans()), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(histories)
def test_owned_fields_exist_after_random_applies(
    history: list[tuple[str, Json, bool]],
) -> None:
    live: Json | None = None
    shape = shape_of(SCHEMA)
    for manager, wanted, force in history:
        config = thing(**copy.deepcopy(wanted))
        before = copy.deepcopy(live)
        try:
            result = applied(live, config, manager, force=force)
        except Conflicts:
            assert not force
            assert live == before
            continue
        assert live == before
        live = result
        # Everything that was asked for is there, and applying it again changes nothing.
        assert applied(live, config, manager) == live
        for key, value in wanted.items():
            if key in ("a", "n", "atomic"):
                assert spec(live).get(key) == value
        body = {key: value for key, value in live.items() if key == "spec"}
        everyone: fieldpath.FieldSet = {}
        for fields in owned(live).values():
            assert isinstance(fields, dict)
            everyone = fieldpath.union(everyone, fields)
        # Nobody owns what is not there; and what came only by apply belongs to someone.
        assert not fieldpath.difference(everyone, all_paths(body, shape))
        assert not fieldpath.difference(field_set(body, shape), everyone)
