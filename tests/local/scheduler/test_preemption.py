"""Tests for which pods are preempted, and for which other pods."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from msgspec import Struct

from argosy.local.controllers.api_types import Node, Pod
from argosy.local.scheduler.decide import decide
from argosy.local.scheduler.gangs import Gang
from argosy.local.scheduler.outcome import Decision
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache
from tests.support.scheduler_objects import Json, node, pod
from tests.support.step_counter import count_steps

HIGH, MIDDLE, LOW = 100, 50, 10


class Case(Struct):
    nodes: Sequence[Node]
    running: Sequence[Pod]
    pods: Sequence[Pod]
    victims: Sequence[str] = ()
    nominated: Mapping[str, str] = {}
    bound: Mapping[str, str] = {}
    priorities: Mapping[str, int] = {}
    """Of pods by their name; zero for the others."""
    gangs: Mapping[str, Gang] = {}
    leaving: Sequence[str] = ()


def spec(policy: str) -> Json:
    return {"preemptionPolicy": policy}


def away(app: str) -> Json:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def members(group: str, *places: str, cpu: int = 0, gpu: int = 0) -> list[Pod]:
    """A gang: its pods run on these nodes, or wait where there is none."""
    return [
        pod(f"{group}{number}", group=group, node=place, cpu=cpu, gpu=gpu)
        for number, place in enumerate(places)
    ]


CASES = {
    "higher priority does not fit: preempts a lower one and is nominated": Case(
        nodes=[node("n1", cpu=1)],
        running=[pod("x", node="n1", cpu=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        victims=["x"],
        nominated={"a": "n1"},
    ),
    "equal priority: no preemption": Case(
        nodes=[node("n1", cpu=1)],
        running=[pod("x", node="n1", cpu=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH, "x": HIGH},
    ),
    "pod fits: no preemption": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        bound={"a": "n2"},
    ),
    "preemptionPolicy Never: no preemption": Case(
        nodes=[node("n1", cpu=1)],
        running=[pod("x", node="n1", cpu=1)],
        pods=[pod("a", cpu=1, spec=spec("Never"))],
        priorities={"a": HIGH},
    ),
    "several lower pods: only as many as necessary": Case(
        nodes=[node("n1", cpu=4)],
        running=[pod("x", node="n1", cpu=2), pod("y", node="n1", cpu=2, age=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        victims=["x"],
        nominated={"a": "n1"},
    ),
    "several priorities: the lowest is preempted": Case(
        nodes=[node("n1", cpu=2)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n1", cpu=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH, "x": MIDDLE, "y": LOW},
        victims=["y"],
        nominated={"a": "n1"},
    ),
    "several nodes: the one with the lowest victim priority": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH, "x": MIDDLE, "y": LOW},
        victims=["y"],
        nominated={"a": "n2"},
    ),
    "several nodes, equal priority: the one with the fewest victims": Case(
        nodes=[node("n1", cpu=2), node("n2", cpu=2)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n1", cpu=1), pod("z", node="n2", cpu=2)],
        pods=[pod("a", cpu=2)],
        priorities={"a": HIGH},
        victims=["z"],
        nominated={"a": "n2"},
    ),
    "several nodes, equal priority and number: the one with the youngest victim": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1, age=50), pod("y", node="n2", cpu=1, age=5)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        victims=["y"],
        nominated={"a": "n2"},
    ),
    "preemption would not help: no victims": Case(
        nodes=[node("n1", cpu=1, taints=["gpu=yes:NoSchedule"]), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        pods=[pod("a", cpu=2), pod("b", cpu=1, spec={"nodeSelector": {"zone": "b"}})],
        priorities={"a": HIGH, "b": HIGH},
    ),
    "victim already terminating: no further victims": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        leaving=["x"],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        nominated={"a": "n1"},
    ),
    "nominated pod: resources are reserved for it": Case(
        nodes=[node("n1", cpu=2)],
        running=[pod("x", node="n1", cpu=1)],
        leaving=["x"],
        pods=[pod("a", cpu=2), pod("b", cpu=1, age=100)],
        priorities={"a": HIGH, "x": LOW},
        nominated={"a": "n1"},
    ),
    "equal priority: the nominated pod is placed first": Case(
        nodes=[node("n1", cpu=1)],
        running=[],
        pods=[pod("a", cpu=1, status={"nominatedNodeName": "n1"}), pod("b", cpu=1, age=100)],
        priorities={"a": HIGH, "b": HIGH},
        bound={"a": "n1"},
    ),
    "two preemptors: different victims": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        pods=[pod("a", cpu=1, age=2), pod("b", cpu=1, age=1)],
        priorities={"a": HIGH, "b": HIGH},
        victims=["x", "y"],
        nominated={"a": "n1", "b": "n2"},
    ),
    "anti-affinity of a lower priority pod: preempted": Case(
        nodes=[node("n1")],
        running=[pod("x", node="n1", spec=away("a"))],
        pods=[pod("a", labels={"app": "a"})],
        priorities={"a": HIGH},
        victims=["x"],
        nominated={"a": "n1"},
    ),
    "gang of higher priority: preempts for its whole minimum": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1), node("n3", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        pods=members("g", "", "", "", cpu=1),
        priorities={"g0": HIGH, "g1": HIGH, "g2": HIGH},
        gangs={"g": Gang(3)},
        victims=["x", "y"],
        nominated={"g0": "n3", "g1": "n1", "g2": "n2"},
    ),
    "gang would not fit even with preemption: no victims": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        pods=members("g", "", "", "", cpu=1),
        priorities={"g0": HIGH, "g1": HIGH, "g2": HIGH},
        gangs={"g": Gang(3)},
    ),
    "members beyond a gang's minimum: no preemption for them": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=[pod("x", node="n1", cpu=1), pod("y", node="n2", cpu=1)],
        pods=members("g", "", "", cpu=1),
        priorities={"g0": HIGH, "g1": HIGH},
        gangs={"g": Gang(1)},
        victims=["x"],
        nominated={"g0": "n1"},
    ),
    "gang as victim: members beyond its minimum first": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=members("g", "n1", "n2", cpu=1),
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        gangs={"g": Gang(1)},
        victims=["g0"],
        nominated={"a": "n1"},
    ),
    "gang at its minimum as victim: all members": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=members("g", "n1", "n2", cpu=1),
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH},
        gangs={"g": Gang(2)},
        victims=["g0", "g1"],
        nominated={"a": "n1"},
    ),
    "single pod or gang as victim: the single pod, even of higher priority": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1), node("n3", cpu=1)],
        running=[*members("g", "n1", "n2", cpu=1), pod("x", node="n3", cpu=1)],
        pods=[pod("a", cpu=1)],
        priorities={"a": HIGH, "x": MIDDLE},
        gangs={"g": Gang(2)},
        victims=["x"],
        nominated={"a": "n3"},
    ),
    "gang with a member of higher priority: no victim": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=1)],
        running=members("g", "n1", "n2", cpu=1),
        pods=[pod("a", cpu=1)],
        priorities={"a": MIDDLE, "g1": HIGH},
        gangs={"g": Gang(2)},
    ),
    "victim that turns out unnecessary: kept": Case(
        nodes=[node("n1", cpu=1), node("n2", cpu=2)],
        running=[*members("old", "n1", "n2", cpu=1), pod("x", node="n2", cpu=1)],
        pods=members("new", "", "", cpu=1),
        priorities={"new0": HIGH, "new1": HIGH},
        gangs={"old": Gang(2), "new": Gang(2)},
        victims=["old0", "old1"],
        nominated={"new0": "n2", "new1": "n1"},
    ),
    "gang preempts a gang: all members of the latter": Case(
        nodes=[node("n1", gpu=2), node("n2", gpu=2)],
        running=members("old", "n1", "n1", "n2", "n2", gpu=1),
        pods=members("new", "", "", gpu=1),
        priorities={"new0": HIGH, "new1": HIGH},
        gangs={"old": Gang(4), "new": Gang(2)},
        victims=["old0", "old1", "old2", "old3"],
        nominated={"new0": "n1", "new1": "n2"},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_preempt(case: Case) -> None:
    world = SchedulerCache(case.nodes)
    for running_pod in case.running:
        world.place(_facts(running_pod, case), running_pod.spec.node_name)
    world.terminating.update(f"uid-default-{name}" for name in case.leaving)
    before = sorted((facts.uid, where) for facts, where in world.placed_pods())
    gangs = {("default", name): gang for name, gang in case.gangs.items()}
    decision = decide(world, [_facts(waiting_pod, case) for waiting_pod in case.pods], gangs)
    names = {waiting_pod.metadata.uid: waiting_pod.metadata.name for waiting_pod in case.pods}
    assert sorted(victim.victim.pod.metadata.name for victim in decision.victims) == list(case.victims)
    assert {names[uid]: where for uid, where in decision.nominated.items()} == case.nominated
    assert {facts.pod.metadata.name: where for facts, where in decision.bind} == case.bound
    bound = {(facts.uid, where) for facts, where in decision.bind}
    after = {(facts.uid, where) for facts, where in world.placed_pods()}
    assert sorted(after - bound) == before, "no victim has ended yet, and only bound pods are on nodes"


@pytest.mark.parametrize("seed", range(60))
def test_victims_have_lower_priority_are_necessary_and_gangs_stay_complete(seed: int) -> None:
    chance = random.Random(seed)
    world = SchedulerCache([node(f"n{i}", cpu=chance.randint(2, 8)) for i in range(5)])
    gangs: dict[tuple[str, str], Gang] = {}
    waiting: list[PodInfo] = []
    for number in range(8):
        size, priority, group = chance.randint(1, 4), chance.choice([LOW, MIDDLE, HIGH]), f"g{number}"
        group = group if chance.random() < 0.6 else ""
        pods = [pod(f"p{number}-{i}", group=group, cpu=chance.randint(1, 3)) for i in range(size)]
        if group:
            gangs["default", group] = Gang(chance.randint(1, size))
        waiting += [PodInfo.of(waiting_pod, priority) for waiting_pod in pods]
    first = decide(world, [facts for facts in waiting if facts.priority < HIGH], gangs)
    bound = Counter(facts.group for facts, _ in first.bind)
    gangs = {key: Gang(gang.minimum, bound={"": bound[key[1]]}) for key, gang in gangs.items()}
    decision = decide(world, [facts for facts in waiting if facts.priority == HIGH], gangs)
    lost = Counter(victim.victim.group for victim in decision.victims)
    for key, gang in gangs.items():
        left = bound[key[1]] - lost[key[1]]
        assert not lost[key[1]] or left == 0 or left >= gang.minimum
    assert all(victim.victim.priority < victim.preemptor.priority for victim in decision.victims)
    assert len({victim.victim.uid for victim in decision.victims}) == len(decision.victims)
    for victim in decision.victims:
        world.remove(victim.victim.uid)
    refused = {facts.uid: facts for facts, _ in decision.unschedulable}
    for uid, where in decision.nominated.items():
        world.place(refused[uid], where)
    for room in world.nodes.values():
        assert all(used <= room.allocatable.get(name, 0) for name, used in room.requested.items())


def test_the_cost_of_preemption_is_less_than_quadratic() -> None:
    def steps(count: int) -> int:
        world = SchedulerCache([node(f"n{i}", cpu=count // 20) for i in range(20)])
        for number in range(count):
            world.place(PodInfo.of(pod(f"old{number}", cpu=1)), f"n{number % 20}")
        waiting = [PodInfo.of(pod(f"new{number}", cpu=1), HIGH) for number in range(count)]
        decisions: list[Decision] = []
        counted = count_steps(lambda: decisions.append(decide(world, waiting, {})))
        assert len(decisions[0].victims) == len(decisions[0].nominated) == count
        return counted

    assert steps(400) < 10 * steps(100)


def _facts(waiting_pod: Pod, case: Case) -> PodInfo:
    return PodInfo.of(waiting_pod, case.priorities.get(waiting_pod.metadata.name, 0))
