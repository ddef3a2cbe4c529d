"""Tests for affinity and anti-affinity to pods that are already placed."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec import Struct

from argosy.local.controllers.api_types import Node, Pod
from argosy.local.scheduler.decide import decide
from argosy.local.scheduler.interpod_affinity import depends_on_pods
from argosy.local.scheduler.node_heap import PodPlacer
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache
from tests.support.scheduler_objects import Json, node, pod

HOST = "kubernetes.io/hostname"
A, B = {"app": "a"}, {"app": "b"}


def term(labels: Mapping[str, str], key: str = HOST, **more: object) -> Json:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels}, **more}


def required(kind: str, *terms: Json) -> Json:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def preferred(kind: str, *terms: tuple[int, Json]) -> Json:
    weighted = [{"weight": weight, "podAffinityTerm": term} for weight, term in terms]
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}}


def zoned(name: str, zone: str, **resources: int) -> Node:
    return node(name, labels={"zone": zone}, cpu=resources.get("cpu", 4))


class Case(Struct):
    pods: Sequence[Pod]
    want: Mapping[str, str]
    """Pod name to node name, or to the message of its refusal."""
    nodes: Sequence[Node] = (zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b"))
    running: Sequence[Pod] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}


CASES = {
    "preferred affinity: used although the node is fuller": Case(
        running=[pod("x", node="n2", labels=A, cpu=2)],
        pods=[pod("p", cpu=1, spec=preferred("podAffinity", (10, term(A))))],
        want={"p": "n2"},
    ),
    "preferred affinity by zone: same zone": Case(
        running=[pod("x", node="n3", labels=A, cpu=2)],
        pods=[pod("p", cpu=1, spec=preferred("podAffinity", (10, term(A, "zone"))))],
        want={"p": "n3"},
    ),
    "preferred anti-affinity: other node": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n2", labels=A)],
        pods=[pod("p", cpu=1, spec=preferred("podAntiAffinity", (10, term(A))))],
        want={"p": "n3"},
    ),
    "preferred anti-affinity with no other node: placed anyway": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", cpu=1, spec=preferred("podAntiAffinity", (10, term(A))))],
        want={"p": "n1"},
    ),
    "two preferences: the larger weight decides": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n3", labels=B)],
        pods=[pod("p", spec=preferred("podAffinity", (10, term(A)), (20, term(B))))],
        want={"p": "n3"},
    ),
    "preferred affinity: node with more matching pods": Case(
        running=[pod("x", node="n1", labels=B), *(pod(f"y{i}", node="n3", labels=A) for i in range(3))],
        pods=[pod("p", spec=preferred("podAffinity", (10, term(A)), (20, term(B))))],
        want={"p": "n3"},
    ),
    "preferred affinity of placed pods: counts": Case(
        running=[pod("x", node="n3", cpu=2, spec=preferred("podAffinity", (10, term(A))))],
        pods=[pod("p", labels=A, cpu=1)],
        want={"p": "n3"},
    ),
    "preferred anti-affinity of placed pods: counts": Case(
        nodes=[node("n1"), node("n2")],
        running=[
            pod("x", node="n1", spec=preferred("podAntiAffinity", (10, term(A)))),
            pod("y", node="n2", cpu=3),
        ],
        pods=[pod("p", labels=A, cpu=1)],
        want={"p": "n2"},
    ),
    "preferred anti-affinity among pods: spread": Case(
        pods=[pod(name, labels=A, spec=preferred("podAntiAffinity", (1, term(A)))) for name in "pqr"],
        want={"p": "n1", "q": "n2", "r": "n3"},
    ),
    "two affinity terms: both must match": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n3", labels={**A, "tier": "1"})],
        pods=[pod("p", spec=required("podAffinity", term(A), term({"tier": "1"}, "zone")))],
        want={"p": "n3"},
    ),
    "affinity to a pod in another namespace: ignored": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", labels=A)],
        pods=[pod("p", spec=required("podAffinity", term(A)))],
        want={"p": "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
    ),
    "affinity with namespaces: other namespace counts": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", labels=A)],
        pods=[pod("p", spec=required("podAffinity", term(A, namespaces=["other"])))],
        want={"p": "n1"},
    ),
    "affinity with namespaceSelector: other namespace counts": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", labels=A)],
        pods=[pod("p", spec=required("podAffinity", term(A, namespaceSelector={"matchLabels": {"t": "1"}})))],
        namespaces={"other": {"t": "1"}},
        want={"p": "n1"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_placement(case: Case) -> None:
    world = SchedulerCache(case.nodes)
    world.topology.namespaces = {name: dict(labels) for name, labels in case.namespaces.items()}
    for running_pod in case.running:
        world.place(PodInfo.of(running_pod), running_pod.spec.node_name)
    decision = decide(world, [PodInfo.of(waiting_pod) for waiting_pod in case.pods], {})
    placed = {facts.pod.metadata.name: where for facts, where in decision.bind}
    assert placed | {facts.pod.metadata.name: text for facts, text in decision.unschedulable} == case.want


def test_pods_without_terms_have_no_constraints() -> None:
    world = SchedulerCache([node("n1")])
    world.place(PodInfo.of(pod("x", node="n1", spec=required("podAntiAffinity", term(A)))), "n1")
    assert depends_on_pods(PodInfo.of(pod("a", labels=A)), world)
    assert not depends_on_pods(PodInfo.of(pod("b", labels=B)), world)
    world.remove("uid-default-x")
    assert not depends_on_pods(PodInfo.of(pod("a", labels=A)), world)


def test_preferences_count_when_packing() -> None:
    world = SchedulerCache([node("n1"), node("n2")])
    world.place(PodInfo.of(pod("x", labels=A, cpu=1)), "n1")
    world.place(PodInfo.of(pod("y", cpu=2)), "n2")
    assert PodPlacer(world).place(PodInfo.of(pod("p", cpu=1)), pack=True) == "n2"
    near = PodInfo.of(pod("q", cpu=1, spec=preferred("podAffinity", (100, term(A)))))
    assert PodPlacer(world).place(near, pack=True) == "n1"
