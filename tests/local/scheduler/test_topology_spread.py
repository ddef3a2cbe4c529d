"""Tests for topology spread constraints."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec import Struct

from argosy.local.controllers.api_types import Node, Pod
from argosy.local.scheduler.decide import decide
from argosy.local.scheduler.outcome import Decision
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache
from argosy.local.scheduler.topology_spread import SPREAD_UNMET
from tests.support.scheduler_objects import Json, node, pod
from tests.support.step_counter import count_steps

A = {"app": "a"}
REFUSED = f"0/2 nodes are available: 2 {SPREAD_UNMET}."


def even(key: str = "zone", when: str = "DoNotSchedule", **more: object) -> Json:
    constraint = {
        "topologyKey": key,
        "maxSkew": 1,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": A},
    }
    return {"topologySpreadConstraints": [constraint | more]}


def rather(key: str = "zone", **more: object) -> Json:
    return even(key, "ScheduleAnyway", **more)


def zoned(name: str, zone: str, taints: Sequence[str] = ()) -> Node:
    return node(name, labels={"zone": zone}, taints=taints)


class Case(Struct):
    pods: Sequence[Pod]
    want: Mapping[str, str]
    nodes: Sequence[Node] = (zoned("n1", "a"), zoned("n2", "b"))
    running: Sequence[Pod] = ()
    leaving: Sequence[str] = ()


CASES = {
    "ScheduleAnyway: domain with the fewest pods, although it is fuller": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n2", cpu=2)],
        pods=[pod("p", labels=A, cpu=1, spec=rather())],
        want={"p": "n2"},
    ),
    "ScheduleAnyway with only an uneven domain: placed": Case(
        nodes=[zoned("n1", "a"), node("n2", labels={"zone": "b"}, cpu=1)],
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", labels=A, cpu=2, spec=rather())],
        want={"p": "n1"},
    ),
    "ScheduleAnyway: node without the label is used last": Case(
        nodes=[zoned("n1", "a"), node("n2", cpu=64)],
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", labels=A, cpu=1, spec=rather())],
        want={"p": "n1"},
    ),
    "many pods: spread evenly": Case(
        nodes=[zoned("n1", "a"), zoned("n2", "a"), zoned("n3", "b")],
        pods=[pod(f"p{i}", labels=A, spec=rather()) for i in range(4)],
        want={"p0": "n1", "p1": "n3", "p2": "n2", "p3": "n3"},
    ),
    "pods of other namespaces: not counted": Case(
        running=[pod("x", node="n1", namespace="other", labels=A), pod("z", node="n2", cpu=4)],
        pods=[pod("p", labels=A, cpu=1, spec=even())],
        want={"p": "n1"},
    ),
    "terminating pods: not counted": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n1", labels=A), pod("z", node="n2", cpu=4)],
        leaving=["x", "y"],
        pods=[pod("p", labels=A, cpu=1, spec=even())],
        want={"p": "n1"},
    ),
    "nodes that nodeSelector excludes: no domain": Case(
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", labels=A, spec=even() | {"nodeSelector": {"zone": "a"}})],
        want={"p": "n1"},
    ),
    "nodeAffinityPolicy Ignore: excluded nodes are a domain": Case(
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", labels=A, spec=even(nodeAffinityPolicy="Ignore") | {"nodeSelector": {"zone": "a"}})],
        want={
            "p": "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, "
            f"1 {SPREAD_UNMET}."
        },
    ),
    "tainted nodes: a domain": Case(
        nodes=[zoned("n1", "a"), zoned("n2", "b", ["gpu=yes:NoSchedule"])],
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", labels=A, spec=even())],
        want={
            "p": f"0/2 nodes are available: 1 {SPREAD_UNMET}, 1 node(s) had untolerated taint(s).",
        },
    ),
    "nodeTaintsPolicy Honor: tainted nodes are no domain": Case(
        nodes=[zoned("n1", "a"), zoned("n2", "b", ["gpu=yes:NoSchedule"])],
        running=[pod("x", node="n1", labels=A)],
        pods=[pod("p", labels=A, spec=even(nodeTaintsPolicy="Honor"))],
        want={"p": "n1"},
    ),
    "fewer domains than minDomains: global minimum is 0": Case(
        running=[pod("x", node="n1", labels=A), pod("y", node="n2", labels=A)],
        pods=[pod("p", labels=A, spec=even(minDomains=3))],
        want={"p": REFUSED},
    ),
    "matchLabelKeys: only pods with the same value are counted": Case(
        running=[pod("x", node="n1", labels={**A, "v": "1"})],
        pods=[pod(name, labels={**A, "v": "2"}, spec=even(matchLabelKeys=["v"])) for name in "pq"],
        want={"p": "n2", "q": "n1"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_spread(case: Case) -> None:
    world = SchedulerCache(case.nodes)
    world.terminating.update(f"uid-default-{name}" for name in case.leaving)
    for running_pod in case.running:
        world.place(PodInfo.of(running_pod), running_pod.spec.node_name)
    decision = decide(world, [PodInfo.of(waiting_pod) for waiting_pod in case.pods], {})
    placed = {facts.pod.metadata.name: where for facts, where in decision.bind}
    assert placed | {facts.pod.metadata.name: text for facts, text in decision.unschedulable} == case.want


def test_the_cost_of_spreading_pods_is_linear() -> None:
    """It would grow with the square if pods were counted again for each pod that is placed."""

    def steps(count: int) -> int:
        world = SchedulerCache([node(f"n{number}", cpu=64, pods=200) for number in range(20)])
        waiting = [
            PodInfo.of(pod(f"p{number}", labels=A, cpu=1, spec=even("kubernetes.io/hostname")))
            for number in range(count)
        ]
        decisions: list[Decision] = []
        counted = count_steps(lambda: decisions.append(decide(world, waiting, {})))
        assert len(decisions[0].bind) == count
        return counted

    assert steps(200) < 6 * steps(50)
