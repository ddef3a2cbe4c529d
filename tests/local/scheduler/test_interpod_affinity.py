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
    "preferred affinity to a pod on a fuller node: new pod goes to that node": Case(
        running=[pod("x", node="n2", labels=A, cpu=2)],
        pods=[pod("p", cpu=1, spec=preferred("podAffinity", (10, term(A))))],
        want={"p": "n2"},
    ),
    "preferred affinity by zone: new pod goes to the same zone": Case(
        running=[pod("x", node="n3", labels=A, cpu=2)],
        pods=[pod("p", cpu=1, spec=preferred("podAffinity", (10, term(A, "zone"))))],
        want={"p": "n3"},
    ),
    "preferred anti-affinity to pods on two nodes: new pod goes to the third": Case(
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
    "two preferences, one match each: the larger weight decides": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n3", labels=B)],
        pods=[pod("p", spec=preferred("podAffinity", (10, term(A)), (20, term(B))))],
        want={"p": "n3"},
    ),
    "two preferences: three matches of weight 10 beat one of weight 20": Case(
        running=[pod("x", node="n1", labels=B), *(pod(f"y{i}", node="n3", labels=A) for i in range(3))],
        pods=[pod("p", spec=preferred("podAffinity", (10, term(A)), (20, term(B))))],
        want={"p": "n3"},
    ),
    "placed pod prefers affinity to the new pod: new pod goes to that node": Case(
        running=[pod("x", node="n3", cpu=2, spec=preferred("podAffinity", (10, term(A))))],
        pods=[pod("p", labels=A, cpu=1)],
        want={"p": "n3"},
    ),
    "placed pod prefers anti-affinity to the new pod: new pod avoids that node": Case(
        nodes=[node("n1"), node("n2")],
        running=[
            pod("x", node="n1", spec=preferred("podAntiAffinity", (10, term(A)))),
            pod("y", node="n2", cpu=3),
        ],
        pods=[pod("p", labels=A, cpu=1)],
        want={"p": "n2"},
    ),
    "preferred anti-affinity among new pods: one per node": Case(
        pods=[pod(name, labels=A, spec=preferred("podAntiAffinity", (1, term(A)))) for name in "pqr"],
        want={"p": "n1", "q": "n2", "r": "n3"},
    ),
    "two affinity terms: both must match": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n3", labels={**A, "tier": "1"})],
        pods=[pod("p", spec=required("podAffinity", term(A), term({"tier": "1"}, "zone")))],
        want={"p": "n3"},
    ),
    "affinity, match only in another namespace: unschedulable": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", labels=A)],
        pods=[pod("p", spec=required("podAffinity", term(A)))],
        want={"p": "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
    ),
    "affinity with namespaces, match in another namespace: new pod goes to that node": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", labels=A)],
        pods=[pod("p", spec=required("podAffinity", term(A, namespaces=["other"])))],
        want={"p": "n1"},
    ),
    "affinity with namespaceSelector, match in another namespace: new pod goes to that node": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", labels=A)],
        pods=[pod("p", spec=required("podAffinity", term(A, namespaceSelector={"matchLabels": {"t": "1"}})))],
        namespaces={"other": {"t": "1"}},
        want={"p": "n1"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_affinity_decides_the_node(case: Case) -> None:
    cache = SchedulerCache(case.nodes)
    cache.topology.namespaces = {name: dict(labels) for name, labels in case.namespaces.items()}
    for running_pod in case.running:
        cache.place(PodInfo.of(running_pod), running_pod.spec.node_name)
    decision = decide(cache, [PodInfo.of(waiting_pod) for waiting_pod in case.pods], {})
    placed = {pod_info.pod.metadata.name: where for pod_info, where in decision.bind}
    assert (
        placed | {pod_info.pod.metadata.name: text for pod_info, text in decision.unschedulable} == case.want
    )


def test_pod_without_terms_depends_on_pods_only_if_their_anti_affinity_selects_it() -> None:
    cache = SchedulerCache([node("n1")])
    cache.place(PodInfo.of(pod("x", node="n1", spec=required("podAntiAffinity", term(A)))), "n1")
    assert depends_on_pods(PodInfo.of(pod("a", labels=A)), cache)
    assert not depends_on_pods(PodInfo.of(pod("b", labels=B)), cache)
    cache.remove("uid-default-x")
    assert not depends_on_pods(PodInfo.of(pod("a", labels=A)), cache)


def test_preferred_affinity_beats_packing() -> None:
    cache = SchedulerCache([node("n1"), node("n2")])
    cache.place(PodInfo.of(pod("x", labels=A, cpu=1)), "n1")
    cache.place(PodInfo.of(pod("y", cpu=2)), "n2")
    assert PodPlacer(cache).place(PodInfo.of(pod("p", cpu=1)), pack=True) == "n2"
    near = PodInfo.of(pod("q", cpu=1, spec=preferred("podAffinity", (100, term(A)))))
    assert PodPlacer(cache).place(near, pack=True) == "n1"
