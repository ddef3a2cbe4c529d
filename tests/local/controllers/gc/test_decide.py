"""What is garbage and what is not."""

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
    "nobody's child is left alone": Case(thing("it"), None),
    "its owner is there": Case(thing("it", "owner"), None, others=[thing("owner")]),
    "its owner is on another level": Case(
        thing("it", "owner"), None, others=[thing("owner", namespace="", resource=CLUSTER)]
    ),
    "its owner was never seen": Case(thing("it", "owner"), LookUpOwners((reference("owner"),))),
    "its owner is in another namespace": Case(
        thing("it", "owner"), LookUpOwners((reference("owner"),)), others=[thing("owner", namespace="other")]
    ),
    "its owner is absent": Case(thing("it", "owner"), Delete("Background"), absent=[("owner", "ns")]),
    "absent for another namespace proves nothing": Case(
        thing("it", "owner"), LookUpOwners((reference("owner"),)), absent=[("owner", "other")]
    ),
    "one owner is left": Case(
        thing("it", "gone", "owner"),
        RemoveOwners((thing("it", "gone", "owner"),), frozenset({"gone"})),
        others=[thing("owner")],
        absent=[("gone", "ns")],
    ),
    "all owners must be known before it is deleted": Case(
        thing("it", "gone", "who"), LookUpOwners((reference("who"),)), absent=[("gone", "ns")]
    ),
    "its owner waits for it": Case(thing("it", "owner"), Delete("Background"), others=[WAITING]),
    "its owner waits for it and it has dependents itself": Case(
        thing("it", "owner"), Delete("Foreground"), others=[WAITING, thing("grandchild", "it")]
    ),
    "its owner is being deleted in the background": Case(
        thing("it", "owner"), None, others=[thing("owner", deleting=True, finalizers=("example.com/x",))]
    ),
    "it is being deleted and waits for a dependent": Case(
        WAITING, WaitForDependents((CHILD,)), others=[CHILD]
    ),
    "it is being deleted and no dependent blocks it": Case(
        WAITING, RemoveFinalizer(FOREGROUND), others=[LOOSE]
    ),
    "it is being deleted and has no dependents": Case(WAITING, RemoveFinalizer(FOREGROUND)),
    "its dependents are to be orphaned": Case(
        thing("owner", finalizers=(ORPHAN,), deleting=True),
        RemoveOwners((CHILD,), frozenset({"owner"}), then=ORPHAN),
        others=[CHILD],
    ),
    "something else holds it": Case(thing("it", finalizers=("example.com/x",), deleting=True), None),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decide(case: Case) -> None:
    graph = Graph()
    for each in (case.it, *case.others):
        graph.put(each)
    assert decide(case.it, graph, set(case.absent)) == case.want


def test_the_graph_forgets_what_is_removed() -> None:
    graph = Graph()
    graph.put(thing("a", "owner"))
    graph.put(thing("b", "owner"))
    assert [each.name for each in graph.dependents("owner")] == ["a", "b"]
    graph.put(thing("a"))
    graph.remove("b")
    assert graph.dependents("owner") == []
    assert graph.get("b") is None
