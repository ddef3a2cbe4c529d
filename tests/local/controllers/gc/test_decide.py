"""Tests for which objects are garbage."""

from collections.abc import Sequence

import pytest
from msgspec import Struct

from argosy.kinds.meta import OwnerReference
from argosy.kinds.resource import Resource
from argosy.local.controllers.gc.decide import (
    Action,
    Delete,
    LookUpOwners,
    RemoveFinalizer,
    RemoveOwners,
    WaitForDependents,
    decide,
)
from argosy.local.controllers.gc.graph import FOREGROUND, ORPHAN, Graph, GraphObject

KIND = Resource("", "v1", "ConfigMap", "configmaps")
CLUSTER = Resource("", "v1", "Node", "nodes", namespaced=False)


def thing(
    name: str,
    *owners: str,
    namespace: str = "ns",
    block: bool = False,
    finalizers: tuple[str, ...] = (),
    deleting: bool = False,
    resource: Resource = KIND,
) -> GraphObject:
    references = tuple(reference(owner, block) for owner in owners)
    return GraphObject(resource, namespace, name, name, "1", references, finalizers, deleting)


def reference(uid: str, block: bool = False) -> OwnerReference:
    return OwnerReference("v1", "ConfigMap", uid, uid, block_owner_deletion=block)


class Case(Struct):
    it: GraphObject
    want: Action
    others: Sequence[GraphObject] = ()
    absent: Sequence[tuple[str, str]] = ()


WAITING = thing("owner", finalizers=(FOREGROUND,), deleting=True)
CHILD = thing("child", "owner", block=True)
LOOSE = thing("child", "owner")

CASES = {
    "no owner: kept": Case(thing("it"), None),
    "owner exists: kept": Case(thing("it", "owner"), None, others=[thing("owner")]),
    "cluster-scoped owner exists: kept": Case(
        thing("it", "owner"), None, others=[thing("owner", namespace="", resource=CLUSTER)]
    ),
    "owner unknown: looked up": Case(thing("it", "owner"), LookUpOwners((reference("owner"),))),
    "owner of the same uid in another namespace: looked up": Case(
        thing("it", "owner"), LookUpOwners((reference("owner"),)), others=[thing("owner", namespace="other")]
    ),
    "owner absent: deleted": Case(thing("it", "owner"), Delete("Background"), absent=[("owner", "ns")]),
    "owner absent in another namespace: looked up": Case(
        thing("it", "owner"), LookUpOwners((reference("owner"),)), absent=[("owner", "other")]
    ),
    "one of two owners absent: its reference removed": Case(
        thing("it", "gone", "owner"),
        RemoveOwners((thing("it", "gone", "owner"),), frozenset({"gone"})),
        others=[thing("owner")],
        absent=[("gone", "ns")],
    ),
    "one owner absent, one unknown: looked up": Case(
        thing("it", "gone", "who"), LookUpOwners((reference("who"),)), absent=[("gone", "ns")]
    ),
    "owner in foreground deletion: deleted": Case(
        thing("it", "owner"), Delete("Background"), others=[WAITING]
    ),
    "owner in foreground deletion, has dependents: deleted in the foreground": Case(
        thing("it", "owner"), Delete("Foreground"), others=[WAITING, thing("grandchild", "it")]
    ),
    "owner in background deletion: kept": Case(
        thing("it", "owner"), None, others=[thing("owner", deleting=True, finalizers=("example.com/x",))]
    ),
    "in foreground deletion with a blocking dependent: waits": Case(
        WAITING, WaitForDependents((CHILD,)), others=[CHILD]
    ),
    "in foreground deletion without a blocking dependent: finalizer removed": Case(
        WAITING, RemoveFinalizer(FOREGROUND), others=[LOOSE]
    ),
    "in foreground deletion without dependents: finalizer removed": Case(
        WAITING, RemoveFinalizer(FOREGROUND)
    ),
    "orphan finalizer: owner references of dependents removed": Case(
        thing("owner", finalizers=(ORPHAN,), deleting=True),
        RemoveOwners((CHILD,), frozenset({"owner"}), then=ORPHAN),
        others=[CHILD],
    ),
    "terminating with another finalizer: kept": Case(
        thing("it", finalizers=("example.com/x",), deleting=True), None
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decide(case: Case) -> None:
    graph = Graph()
    for node in (case.it, *case.others):
        graph.put(node)
    assert decide(case.it, graph, set(case.absent)) == case.want


def test_removed_objects_are_removed_from_the_graph() -> None:
    graph = Graph()
    graph.put(thing("a", "owner"))
    graph.put(thing("b", "owner"))
    assert [dependent.name for dependent in graph.dependents("owner")] == ["a", "b"]
    graph.put(thing("a"))
    graph.remove("b")
    assert graph.dependents("owner") == []
    assert graph.get("b") is None
