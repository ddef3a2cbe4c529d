"""Tests which replicas are removed first."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.index_set import IndexSet
from argosy.workload.model import Rules
from argosy.workload.notice import OpenNotice
from argosy.workload.observed import ObservedPod
from argosy.workload.record import Record
from argosy.workload.victims import choose_victims
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload


def costly(index: int, cost: int) -> ObservedPod:
    return replace(pod(index, node=f"n{index}"), deletion_cost=cost)


ALL = tuple(pod(index, node=f"n{index}") for index in range(4))
NOTICE = OpenNotice("node/u1", "Preempted", "spot", "n1", NOW, later(60), "Restart")


class Case(Struct):
    pods: tuple[ObservedPod, ...] = ALL
    count: int = 1
    notice: OpenNotice | None = None
    coordinator: bool = False
    want: tuple[int, ...] = (3,)


CASES = {
    "all run: the highest index": Case(),
    "two of them: the two highest indexes": Case(count=2, want=(2, 3)),
    "one is not running yet: that one": Case((*ALL[:2], pod(2, "Pending"), ALL[3]), want=(2,)),
    "one has no pod: that one": Case((ALL[0], ALL[2], ALL[3]), want=(1,)),
    "one is terminating: that one": Case((ALL[0], pod(1, terminating=True), *ALL[2:]), want=(1,)),
    "one on a node that will end: that one": Case(notice=NOTICE, want=(1,)),
    "node that may end, which is a hint: the highest index": Case(notice=replace(NOTICE, response="None")),
    "lower deletion cost: that one": Case(
        (costly(0, 5), costly(1, -1), costly(2, 0), costly(3, 0)), want=(1,)
    ),
    "node that will end, against a lower deletion cost: the node": Case(
        (ALL[0], ALL[1], costly(2, -5), ALL[3]), notice=NOTICE, want=(1,)
    ),
    "not running, against a node that will end: the one that is not running": Case(
        (ALL[0], ALL[1], pod(2, "Pending"), ALL[3]), notice=NOTICE, want=(2,)
    ),
    "all but the coordinator, which is never removed": Case(count=4, coordinator=True, want=(1, 2, 3)),
    "coordinator that is not running: another one": Case(
        (pod(0, "Pending"), *ALL[1:]), coordinator=True, want=(3,)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_victims_are_those_whose_loss_costs_least(case: Case) -> None:
    job = workload(role(replicas=4), rules=Rules(coordinators=("worker",) if case.coordinator else ()))
    notices = (case.notice,) if case.notice else ()
    record = Record(roles={"worker": role_record(size=4)}, notices=notices)
    victims = choose_victims(job, "worker", record, observation(*case.pods), IndexSet.first(4), case.count)
    assert tuple(victims) == case.want
