"""Tests for the nodes that pods are assigned to."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from msgspec import Struct

from argosy.local.controllers.api_types import Node, Pod
from argosy.local.scheduler.decide import can_enqueue, decide
from argosy.local.scheduler.gangs import Gang
from argosy.local.scheduler.outcome import Decision
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache
from tests.support.scheduler_objects import Json, node, pod
from tests.support.step_counter import count_steps


class Case(Struct):
    nodes: Sequence[Node]
    pods: Sequence[Pod]
    want: Mapping[str, str]
    """Pod name to node name, or to the message of its refusal."""
    gangs: Mapping[str, Gang] = {}
    running: Sequence[Pod] = ()
    priorities: Mapping[str, int] = {}


def run(case: Case) -> tuple[Decision, SchedulerCache]:
    world = SchedulerCache(case.nodes)
    for running_pod in case.running:
        world.place(PodInfo.of(running_pod), running_pod.spec.node_name)
    waiting = [
        PodInfo.of(waiting_pod, case.priorities.get(waiting_pod.metadata.name, 0))
        for waiting_pod in case.pods
    ]
    gangs = {("default", name): gang for name, gang in case.gangs.items()}
    return decide(world, waiting, gangs), world


def outcome(decision: Decision) -> dict[str, str]:
    placed = {facts.pod.metadata.name: where for facts, where in decision.bind}
    return placed | {facts.pod.metadata.name: message for facts, message in decision.unschedulable}


def _affinity(kind: str, app: str, key: str = "kubernetes.io/hostname") -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _spread(key: str) -> Json:
    selector = {"matchLabels": {"app": "a"}}
    return {"topologySpreadConstraints": [{"topologyKey": key, "maxSkew": 1, "labelSelector": selector}]}


def _prefers(zone: str) -> Json:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    preferred = [{"weight": 100, "preference": term}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


NEED_TWO = "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable"
A = {"app": "a"}

CASES = {
    "empty nodes: pods are spread": Case(
        nodes=[node("n1"), node("n2")], pods=[pod("a", cpu=1), pod("b", cpu=1)], want={"a": "n1", "b": "n2"}
    ),
    "nodes with different load: the emptiest is used": Case(
        nodes=[node("n1"), node("n2")],
        running=[pod("x", node="n1", cpu=2)],
        pods=[pod("a", cpu=1)],
        want={"a": "n2"},
    ),
    "no nodes: unschedulable": Case(
        nodes=[], pods=[pod("a")], want={"a": "no nodes available to schedule pods"}
    ),
    "insufficient CPU on every node: unschedulable": Case(
        nodes=[node(f"n{i}", cpu=1) for i in range(3)],
        pods=[pod("a", cpu=2)],
        want={"a": "0/3 nodes are available: 3 Insufficient cpu."},
    ),
    "different reasons by node: counted, sorted, all insufficient resources named": Case(
        nodes=[
            node("n1", cpu=1, memory="1Gi"),
            node("n2", taints=["gpu=yes:NoSchedule"]),
            node("n3", unschedulable=True),
        ],
        pods=[pod("a", cpu=2, memory="2Gi")],
        want={
            "a": "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, "
            "1 node(s) had untolerated taint(s), 1 node(s) were unschedulable."
        },
    ),
    "GPUs requested: placed as far as there are GPUs": Case(
        nodes=[node("n1", gpu=2)],
        pods=[pod("a", gpu=1), pod("b", gpu=1), pod("c", gpu=1)],
        want={"a": "n1", "b": "n1", "c": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."},
    ),
    "node with its maximum of pods: unschedulable": Case(
        nodes=[node("n1", pods=1)],
        pods=[pod("a"), pod("b")],
        want={"a": "n1", "b": "0/1 nodes are available: 1 Too many pods."},
    ),
    "tainted node: only the tolerating pod is placed": Case(
        nodes=[node("n1", taints=["gpu=yes:NoSchedule"])],
        pods=[pod("a", spec={"tolerations": [{"key": "gpu", "operator": "Exists"}]})],
        want={"a": "n1"},
    ),
    "PreferNoSchedule taint: node is used last": Case(
        nodes=[node("n1", taints=["old=:PreferNoSchedule"]), node("n2", cpu=1)],
        pods=[pod("a", cpu=1), pod("b", cpu=1)],
        want={"a": "n2", "b": "n1"},
    ),
    "nodeSelector matches no node: unschedulable": Case(
        nodes=[node("n1")],
        pods=[pod("a", spec={"nodeSelector": {"zone": "b"}})],
        want={"a": "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."},
    ),
    "preferred zone: used although it is fuller": Case(
        nodes=[node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"})],
        running=[pod("x", node="n2", cpu=2)],
        pods=[pod("a", cpu=1, spec=_prefers("b"))],
        want={"a": "n2"},
    ),
    "same host port: unschedulable": Case(
        nodes=[node("n1")],
        pods=[
            pod(name, spec={"containers": [{"ports": [{"containerPort": 80, "hostPort": 80}]}]}, age=-index)
            for index, name in enumerate("ab")
        ],
        want={
            "a": "n1",
            "b": "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        },
    ),
    "anti-affinity: pods on different nodes": Case(
        nodes=[node("n1"), node("n2")],
        pods=[pod(name, labels=A, spec=_affinity("podAntiAffinity", "a")) for name in "abc"],
        want={
            "a": "n1",
            "b": "n2",
            "c": "0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules.",
        },
    ),
    "anti-affinity of a placed pod: other node": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", spec=_affinity("podAntiAffinity", "a"))],
        pods=[pod("a", labels=A)],
        want={"a": "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."},
    ),
    "anti-affinity in another namespace: ignored": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", namespace="other", spec=_affinity("podAntiAffinity", "a"))],
        pods=[pod("a", labels=A)],
        want={"a": "n1"},
    ),
    "affinity: placed in the zone of the other pod": Case(
        nodes=[node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}), node("n3")],
        running=[pod("x", node="n2", labels=A, cpu=3)],
        pods=[pod("p", spec=_affinity("podAffinity", "a", key="zone"))],
        want={"p": "n2"},
    ),
    "affinity to no existing pod: unschedulable": Case(
        nodes=[node("n1")],
        pods=[pod("p", spec=_affinity("podAffinity", "a"))],
        want={"p": "0/1 nodes are available: 1 node(s) didn't match pod affinity rules."},
    ),
    "affinity to its own group: first pod is placed, others follow": Case(
        nodes=[node("n1"), node("n2")],
        pods=[pod(name, labels=A, spec=_affinity("podAffinity", "a")) for name in "ab"],
        want={"a": "n1", "b": "n1"},
    ),
    "topology spread: even over zones, whatever is free": Case(
        nodes=[node("n1", labels={"zone": "a"}, cpu=64), node("n2", labels={"zone": "b"}, cpu=2), node("n3")],
        pods=[pod(name, labels=A, cpu=1, spec=_spread("zone")) for name in "abcde"],
        want={
            "a": "n1",
            "b": "n2",
            "c": "n1",
            "d": "n2",
            "e": "n1",
        },
    ),
    "topology spread violated on every node: unschedulable": Case(
        nodes=[node("n1", labels={"zone": "a"}), node("n2", labels={"zone": "b"}, cpu=1), node("n3")],
        running=[pod("x", labels=A, node="n1", cpu=1)],
        pods=[pod("a", labels=A, cpu=2, spec=_spread("zone"))],
        want={
            "a": "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod topology spread "
            "constraints, 1 node(s) didn't match pod topology spread constraints (missing required label)."
        },
    ),
    "two priorities: the higher one is placed first": Case(
        nodes=[node("n1", cpu=1)],
        pods=[pod("a", cpu=1, age=10), pod("b", cpu=1)],
        priorities={"b": 5},
        want={"b": "n1", "a": "0/1 nodes are available: 1 Insufficient cpu."},
    ),
    "same priority: the older one is placed first": Case(
        nodes=[node("n1", cpu=1)],
        pods=[pod("a", cpu=1), pod("b", cpu=1, age=10)],
        want={"b": "n1", "a": "0/1 nodes are available: 1 Insufficient cpu."},
    ),
    "gang fits: placed completely": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        pods=[pod("a", group="g", cpu=1), pod("b", group="g", cpu=1)],
        gangs={"g": Gang(2)},
        want={"a": "n1", "b": "n2"},
    ),
    "gang does not fit: no member is placed": Case(
        nodes=[node("n1", cpu=1)],
        pods=[pod("a", group="g", cpu=1), pod("b", group="g", cpu=1)],
        gangs={"g": Gang(2)},
        want={
            "a": f"{NEED_TWO}; Pending: 1 Schedulable, 1 Unschedulable",
            "b": "0/1 nodes are available: 1 Insufficient cpu.",
        },
    ),
    "gang with missing pods: waits": Case(
        nodes=[node("n1")],
        pods=[pod("a", group="g")],
        gangs={"g": Gang(2)},
        want={
            "a": "2/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 2 minAvailable; "
            "Pending: 1 Undetermined"
        },
    ),
    "resources for one of two gangs: one is placed completely": Case(
        nodes=[node("n1", cpu=2)],
        pods=[
            pod("a1", group="g", cpu=1, age=4),
            pod("b1", group="h", cpu=1, age=3),
            pod("a2", group="g", cpu=1, age=2),
            pod("b2", group="h", cpu=1, age=1),
        ],
        gangs={"g": Gang(2), "h": Gang(2)},
        want={
            "a1": "n1",
            "a2": "n1",
            "b1": "0/1 nodes are available: 1 Insufficient cpu.",
            "b2": f"{NEED_TWO}; Pending: 1 Undetermined, 1 Unschedulable",
        },
    ),
    "small pod after a gang that does not fit: placed": Case(
        nodes=[node("n1", cpu=1)],
        pods=[pod("a", group="g", cpu=1, age=2), pod("b", group="g", cpu=1, age=2), pod("c", cpu=1)],
        gangs={"g": Gang(2)},
        want={
            "a": f"{NEED_TWO}; Pending: 1 Schedulable, 1 Unschedulable",
            "b": "0/1 nodes are available: 1 Insufficient cpu.",
            "c": "n1",
        },
    ),
    "members beyond the minimum: placed if they fit": Case(
        nodes=[node("n1", cpu=2)],
        pods=[pod(name, group="g", cpu=1) for name in "abc"],
        gangs={"g": Gang(2)},
        want={"a": "n1", "b": "n1", "c": "0/1 nodes are available: 1 Insufficient cpu."},
    ),
    "new member of a running gang: placed alone": Case(
        nodes=[node("n1", cpu=1)],
        pods=[pod("b", group="g", cpu=1)],
        gangs={"g": Gang(2, bound={"": 1})},
        want={"b": "n1"},
    ),
    "partially bound gang: before one of higher priority": Case(
        nodes=[node("n1", cpu=1)],
        pods=[pod("b", group="g", cpu=1), pod("c", cpu=1)],
        priorities={"c": 100},
        gangs={"g": Gang(2, bound={"": 1})},
        want={"b": "n1", "c": "0/1 nodes are available: 1 Insufficient cpu."},
    ),
    "minTaskMember: each task needs its minimum": Case(
        nodes=[node("n1", cpu=1)],
        pods=[
            pod("a", group="g", cpu=1, age=1, annotations={"volcano.sh/task-spec": "worker"}),
            pod("b", group="g", cpu=1, annotations={"volcano.sh/task-spec": "launcher"}),
        ],
        gangs={"g": Gang(1, tasks={"launcher": 1})},
        want={
            "a": "1/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 1 minAvailable; "
            "Pending: 1 Schedulable, 1 Unschedulable",
            "b": "0/1 nodes are available: 1 Insufficient cpu.",
        },
    ),
    "gang fits only if packed: packed": Case(
        nodes=[node("n1", gpu=4), node("n2", gpu=4)],
        pods=[
            pod("a", group="g", gpu=2, age=3),
            pod("b", group="g", gpu=2, age=2),
            pod("c", group="g", gpu=4, age=1),
        ],
        gangs={"g": Gang(3)},
        want={"c": "n1", "a": "n2", "b": "n2"},
    ),
    "PodGroup not in queue: waits": Case(
        nodes=[node("n1")],
        pods=[pod("a", group="g")],
        gangs={"g": Gang(1, queued=False)},
        want={
            "a": "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 minAvailable; "
            "Pending: 1 Undetermined"
        },
    ),
    "Volcano pod without its PodGroup: waits": Case(
        nodes=[node("n1")],
        pods=[pod("a", group="g", spec={"schedulerName": "volcano"})],
        want={"a": 'PodGroup "default/g" not found'},
    ),
    "default scheduler pod without its PodGroup: placed": Case(
        nodes=[node("n1")], pods=[pod("a", group="g")], want={"a": "n1"}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decide(case: Case) -> None:
    decision, world = run(case)
    assert outcome(decision) == case.want
    for facts, where in decision.bind:
        assert world.node_of(facts.uid) == where
    for facts, _ in decision.unschedulable:
        assert world.node_of(facts.uid) is None


@pytest.mark.parametrize("seed", range(30))
def test_gangs_are_placed_completely_or_not_and_nodes_are_never_overcommitted(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [node(f"n{i}", cpu=chance.randint(1, 6), gpu=chance.randint(0, 4)) for i in range(6)]
    pods, gangs = [], {}
    for group in range(8):
        size = chance.randint(1, 6)
        gangs[f"g{group}"] = Gang(chance.randint(1, size))
        pods += [
            pod(f"g{group}-{i}", group=f"g{group}", cpu=chance.randint(1, 3), gpu=chance.randint(0, 2))
            for i in range(size)
        ]
    chance.shuffle(pods)
    decision, world = run(Case(nodes=nodes, pods=pods, gangs=gangs, want={}))
    placed = Counter(facts.group for facts, _ in decision.bind)
    assert all(placed[name] == 0 or placed[name] >= gang.minimum for name, gang in gangs.items())
    for room in world.nodes.values():
        assert all(used <= room.allocatable.get(name, 0) for name, used in room.requested.items())
    again = decide(
        world, [facts for facts, _ in decision.unschedulable], {("default", k): g for k, g in gangs.items()}
    )
    assert not {facts.group for facts, _ in again.bind} - set(placed), "what was refused would have fitted"


def test_min_resources_of_a_group_are_compared_with_free_resources() -> None:
    world = SchedulerCache([node("n1", cpu=10)])
    assert can_enqueue(world, {"cpu": 12_000})
    assert not can_enqueue(world, {"cpu": 12_001})


def test_the_cost_of_placing_pods_is_linear() -> None:
    def steps(count: int) -> int:
        world = SchedulerCache([node(f"n{i}") for i in range(count)])
        waiting = [PodInfo.of(pod(f"p{i}", cpu=1)) for i in range(count)]
        decisions: list[Decision] = []
        counted = count_steps(lambda: decisions.append(decide(world, waiting, {})))
        assert len(decisions[0].bind) == count
        return counted

    assert steps(400) < 6 * steps(100)


def test_the_cost_of_rejecting_gangs_is_linear() -> None:
    def steps(count: int) -> int:
        world = SchedulerCache([node(f"n{i}", gpu=8) for i in range(2 * count)])
        names = [f"g{number}" for number in range(5 * count)]
        waiting = [PodInfo.of(pod(f"{name}-{i}", group=name, gpu=8)) for name in names for i in range(8)]
        gangs = {("default", name): Gang(8) for name in names}
        decisions: list[Decision] = []
        counted = count_steps(lambda: decisions.append(decide(world, waiting, gangs)))
        assert (len(decisions[0].bind), len(decisions[0].unschedulable)) == (2 * count, 38 * count)
        return counted

    assert steps(80) < 6 * steps(20)
