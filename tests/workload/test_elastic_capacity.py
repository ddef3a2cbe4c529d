"""Tests how elastic roles follow the capacity of the cluster."""

from collections.abc import Sequence
from datetime import datetime

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.decide import decide
from argosy.workload.elastic_capacity import MAX_DOUBLINGS, fit_to_capacity
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Elastic, Limits, Phase, ResizeMode, RestartPolicy, Rules, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.phases import count_pods
from argosy.workload.plan import CreatePod, DeletePod
from argosy.workload.record import Record, RoleRecord
from argosy.workload.record_encoding import decode
from argosy.workload.wait_reasons import status_message
from tests.support.fake_cluster import FakeCluster
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload

RULES = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),))
WINDOW = 30


def job(replicas: int = 4, bounds: Elastic = Elastic(2, 8), rules: Rules = RULES) -> Workload:
    workers = role(replicas=replicas, restart=RestartPolicy.ON_FAILURE, elastic=bounds)
    return workload(workers, rules=rules, limits=Limits(restarts=3, below_min_timeout=600))


def record(
    members: Sequence[int], declared: int = 4, joining: Sequence[int] = (), **fields: object
) -> Record:
    last = RoleRecord(
        phase=Phase.RUNNING,
        phase_since=NOW,
        members=IndexSet.of(members),
        declared=declared,
        created=IndexSet.of(members),
        joining=IndexSet.of(joining),
    )
    return Record(
        phase=Phase.RUNNING,
        phase_since=NOW,
        started_at=NOW,
        attempt_started_at=NOW,
        first_running_at=NOW,
        roles={"worker": replace(last, **fields)},
    )


def unplaced(index: int, created: datetime = NOW) -> ObservedPod:
    return pod(index, "Pending", waiting_reason="Unschedulable", created=created)


def waiting(index: int) -> ObservedPod:
    return pod(index, "Pending", node=f"n{index}", waits_for_dependency=True)


class Case(Struct):
    before: Record
    pods: tuple[ObservedPod, ...]
    bounds: Elastic = Elastic(2, 8)
    replicas: int = 4
    seconds: float = WINDOW
    want_members: tuple[int, ...] = (0, 1, 2, 3)
    want_joining: tuple[int, ...] = ()
    want_requeue: float | None = None


ODD = Elastic(2, 8, 2)
CASES = {
    "all run: nothing": Case(record(range(4)), tuple(map(pod, range(4)))),
    "one is unschedulable for less than the window: looked at again when it is over": Case(
        record(range(4)), (*map(pod, range(3)), unplaced(3, later(10))), want_requeue=WINDOW + 10
    ),
    "one is unschedulable for the window: fewer members, and its pod waits on": Case(
        record(range(4)), (*map(pod, range(3)), unplaced(3)), want_members=(0, 1, 2), want_joining=(3,)
    ),
    "longer window of the spec: nothing yet": Case(
        record(range(4)),
        (*map(pod, range(3)), unplaced(3)),
        replace(Elastic(2, 8), stabilization=60),
        want_requeue=60,
    ),
    "pod with a node that does not run yet: nothing": Case(
        record(range(4)), (*map(pod, range(3)), pod(3, "Pending", node="n1")), seconds=500
    ),
    "too few would be left: nothing, the role waits": Case(
        record(range(4)), (pod(0), *map(unplaced, (1, 2, 3)))
    ),
    "deleted pod, any size allowed: its replica stays, and is created again": Case(
        record(range(4)), tuple(map(pod, range(3)))
    ),
    "deleted pod, even sizes allowed: another one goes too, at once": Case(
        record(range(4)), tuple(map(pod, range(3))), ODD, seconds=1, want_members=(0, 1)
    ),
    "failed pod, even sizes allowed: another one goes too, at once": Case(
        record(range(4)),
        (*map(pod, range(3)), pod(3, "Failed", exit_code=1)),
        ODD,
        seconds=1,
        want_members=(0, 1),
    ),
    "pods of a larger size are still starting, even sizes allowed: nothing": Case(
        record(range(4), created=IndexSet.first(3)), (pod(0), pod(1), pod(2, "Pending")), ODD, seconds=1
    ),
    "two of an even size are unschedulable: both wait on together": Case(
        record(range(4)),
        (pod(0), pod(1), unplaced(2), unplaced(3)),
        ODD,
        want_members=(0, 1),
        want_joining=(2, 3),
    ),
    "one of an even size is unschedulable: another one goes too, and none waits on alone": Case(
        record(range(4)), (pod(0), pod(1), pod(2), unplaced(3)), ODD, want_members=(0, 1)
    ),
    "two added replicas wait in their init containers, even sizes allowed: members, before they run": Case(
        record((0, 1), joining=(2, 3)),
        (pod(0), pod(1), waiting(2), waiting(3)),
        ODD,
    ),
    "one of two added replicas waits in its init container, the other is unschedulable: given up": Case(
        record((0, 1), joining=(2, 3)),
        (pod(0), pod(1), waiting(2), unplaced(3)),
        ODD,
        want_members=(0, 1),
        want_requeue=2 * WINDOW,
    ),
    "smaller than declared: replicas are added": Case(
        record((0, 1, 2)), tuple(map(pod, range(3))), want_members=(0, 1, 2), want_joining=(3,)
    ),
    "smaller than declared, and a pod of the lowest free index terminates: the next index": Case(
        record((0, 1, 2)),
        (*map(pod, range(3)), pod(3, terminating=True)),
        want_members=(0, 1, 2),
        want_joining=(4,),
    ),
    "added replica waits for a node: it may wait for ever": Case(
        record((0, 1, 2), joining=(3,)),
        (*map(pod, range(3)), unplaced(3)),
        seconds=100_000,
        want_members=(0, 1, 2),
        want_joining=(3,),
    ),
    "added replica runs: a member": Case(record((0, 1, 2), joining=(3,)), tuple(map(pod, range(4)))),
    "one of two added replicas runs, any size allowed: a member": Case(
        record((0, 1), joining=(2, 3)),
        (pod(0), pod(1), unplaced(2), pod(3)),
        want_members=(0, 1, 3),
        want_joining=(2,),
    ),
    "one of two added replicas runs, even sizes allowed: waits for the other": Case(
        record((0, 1), joining=(2, 3)),
        (pod(0), pod(1), pod(2), pod(3, "Pending", node="n3")),
        ODD,
        want_members=(0, 1),
        want_joining=(2, 3),
    ),
    "one of two added replicas runs, the other is unschedulable, even sizes allowed: both are given up": Case(
        record((0, 1), joining=(2, 3)),
        (pod(0), pod(1), pod(2, node="n2"), unplaced(3)),
        ODD,
        want_members=(0, 1),
        want_requeue=2 * WINDOW,
    ),
    "no added replica is placed, even sizes allowed: they wait": Case(
        record((0, 1), joining=(2, 3)),
        (pod(0), pod(1), unplaced(2), unplaced(3)),
        ODD,
        want_members=(0, 1),
        want_joining=(2, 3),
    ),
    "added replica fails before it is a member: tried again after the window": Case(
        record((0, 1, 2), joining=(3,)),
        (*map(pod, range(3)), pod(3, "Failed", exit_code=1)),
        want_members=(0, 1, 2),
        want_requeue=2 * WINDOW,
    ),
    "training ends: nothing changes any more": Case(
        record((0, 1, 2), succeeded_indexes={0: 1}),
        (pod(0, "Succeeded"), pod(1), pod(2)),
        want_members=(0, 1, 2),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_size_follows_the_capacity(case: Case) -> None:
    wanted = job(case.replicas, case.bounds)
    plan = fit_to_capacity(wanted, case.before, observation(*case.pods), later(case.seconds))
    last = plan.record.role("worker")
    assert (tuple(last.members), tuple(last.joining)) == (case.want_members, case.want_joining)
    assert plan.requeue_at == (None if case.want_requeue is None else later(case.want_requeue))
    assert last.declared == case.before.role("worker").declared


RIGID = {
    "framework that restarts for a new size": job(rules=replace(RULES, resize=ResizeMode.RESTART)),
    "role that is not elastic": workload(role(replicas=4, restart=RestartPolicy.ON_FAILURE), rules=RULES),
    "role whose pods are not replaced": workload(role(replicas=4, elastic=Elastic(2, 8)), rules=RULES),
}


@pytest.mark.parametrize("rigid", RIGID.values(), ids=RIGID.keys())
def test_other_roles_keep_their_size(rigid: Workload) -> None:
    before, pods = record(range(4)), (*map(pod, range(3)), unplaced(3))
    assert fit_to_capacity(rigid, before, observation(*pods), later(500)).record == before


def test_coordinator_that_cannot_be_placed_stays_a_member() -> None:
    rules = replace(RULES, coordinators=("worker",))
    observed = observation(unplaced(0), *map(pod, (1, 2, 3)))
    plan = fit_to_capacity(job(rules=rules), record(range(4)), observed, later(WINDOW))
    assert 0 in plan.record.role("worker").members


def test_members_of_a_restarted_role_are_not_added_to() -> None:
    before = record((0, 1), joining=(2,), phase=Phase.PENDING)
    after = fit_to_capacity(job(), before, observation(), later(1)).record
    assert after.role("worker").joining == EMPTY


def test_role_on_nodes_that_come_and_go_grows_later_and_later() -> None:
    """Each time the added replica runs for a minute, and its node is lost again."""
    current, now, waits = record(range(4)), 0.0, list[float]()
    for _ in range(8):
        now += 60
        shrunk = fit_to_capacity(
            job(), current, observation(*map(pod, range(3)), unplaced(3, later(now - WINDOW))), later(now)
        )
        last = shrunk.record.role("worker")
        waits.append((last.grow_at - later(now)).total_seconds() if last.grow_at else 0.0)
        now += waits[-1]
        grown = fit_to_capacity(job(), shrunk.record, observation(*map(pod, range(3))), later(now))
        assert 3 in grown.record.role("worker").joining
        current = fit_to_capacity(job(), grown.record, observation(*map(pod, range(4))), later(now)).record
        assert current.role("worker").size == 4
    assert waits == [0, 30, 60, 120, 240, 480, 480, 480]
    assert waits[-1] == WINDOW * 2**MAX_DOUBLINGS


def test_role_that_was_stable_grows_at_once() -> None:
    before = record(range(4), grown_at=NOW, flaps=3, grow_at=NOW)
    pods = (*map(pod, range(3)), unplaced(3, later(270)))
    last = fit_to_capacity(job(), before, observation(*pods), later(300)).record.role("worker")
    assert (last.flaps, last.grow_at, tuple(last.joining)) == (0, None, (3,))


def test_held_role_deletes_waiting_pods_until_it_may_grow() -> None:
    before = record((0, 1, 2), joining=(3,), grow_at=later(90))
    before = before.with_role("worker", replace(before.role("worker"), joining=EMPTY))
    pods = (*map(pod, range(3)), unplaced(3))
    plan = decide(job(), before, observation(*pods), later(60))
    assert [action.name for action in plan.actions if isinstance(action, DeletePod)] == ["job-worker-3"]
    assert plan.requeue_at == later(90)
    later_plan = decide(job(), before, observation(*map(pod, range(3))), later(90))
    assert [action.index for action in later_plan.actions if isinstance(action, CreatePod)] == [3]


def test_status_says_that_the_role_waits_for_capacity() -> None:
    observed = observation(*map(pod, range(3)), unplaced(3))
    plan = decide(job(), record(range(4)), observed, later(WINDOW))
    assert plan.record.phase is Phase.RUNNING
    assert plan.record.waiting
    assert plan.record.waiting.reason == "BelowReplicas"
    message = "worker runs with 3 of 4 pods, and grows when there is capacity"
    assert plan.record.waiting.message == message
    counts = {"worker": count_pods(job(), job().roles["worker"], plan.record, observed)}
    assert status_message(job(), plan.record, observed, counts) == message
    (event,) = plan.events
    assert (event.reason, event.message) == (
        "Resized",
        "resized worker from 4 to 3 pods: worker-3 cannot be scheduled",
    )
    grown = decide(job(), plan.record, observation(*map(pod, range(4))), later(60))
    assert grown.record.waiting is None
    assert grown.events[-1].message == "resized worker from 3 to 4 pods: there is capacity for more"


def test_framework_that_needs_all_pods_says_so() -> None:
    rigid = replace(job(rules=replace(RULES, resize=ResizeMode.RESTART)), framework="jax")
    observed = observation(*map(pod, range(3)), unplaced(3))
    plan = decide(rigid, record(range(4)), observed, later(500))
    counts = {"worker": count_pods(rigid, rigid.roles["worker"], plan.record, observed)}
    message = status_message(rigid, plan.record, observed, counts)
    assert "jax cannot run with fewer pods of worker; set replicas to a number that fits" in message


class Resize(Struct):
    before: Record
    replicas: int
    pods: tuple[ObservedPod, ...] = tuple(map(pod, range(4)))
    want_members: tuple[int, ...] = ()
    want_joining: tuple[int, ...] = ()


RESIZES = {
    "larger: members at once": Resize(record(range(4)), 6, want_members=(0, 1, 2, 3, 4, 5)),
    "smaller: the cheapest go": Resize(
        record(range(4)),
        2,
        (pod(0), replace(pod(1), deletion_cost=-1), pod(2), pod(3)),
        want_members=(0, 2),
    ),
    "larger while there is no capacity: more are added, none is a member": Resize(
        record((0, 1, 2), joining=(3,)),
        6,
        (*map(pod, range(3)), unplaced(3)),
        want_members=(0, 1, 2),
        want_joining=(3, 4, 5),
    ),
    "smaller while there is no capacity: fewer are added": Resize(
        record((0, 1, 2), declared=6, joining=(3, 4, 5)),
        4,
        (*map(pod, range(3)), *map(unplaced, (3, 4, 5))),
        want_members=(0, 1, 2),
        want_joining=(3,),
    ),
    "the size that it has: none is added any more": Resize(
        record((0, 1, 2), joining=(3,)), 3, (*map(pod, range(3)), unplaced(3)), want_members=(0, 1, 2)
    ),
    "smaller than it is: members go, none is added": Resize(
        record((0, 1, 2), joining=(3,)), 2, (*map(pod, range(3)), unplaced(3)), want_members=(0, 1)
    ),
}


@pytest.mark.parametrize("case", RESIZES.values(), ids=RESIZES.keys())
def test_kubectl_scale_and_capacity_do_not_fight(case: Resize) -> None:
    wanted = replace(job(case.replicas), generation=2)
    current = case.before
    for _ in range(3):
        current = decide(wanted, current, observation(*case.pods), later(1)).record
        last = current.role("worker")
        assert (tuple(last.members), tuple(last.joining)) == (case.want_members, case.want_joining)
        assert last.declared == case.replicas
    assert current.attempt == 1


def test_role_below_its_minimum_waits_with_a_limit_and_grows_back() -> None:
    cluster = FakeCluster(job(bounds=Elastic(3, 8)))
    cluster.settle()
    cluster.slots = 2
    for name in ("job-worker-2", "job-worker-3"):
        cluster.terminate(
            replace(cluster.pods[name], disrupted=True, disruption_reason="PreemptionByScheduler")
        )
    for _ in range(6):
        cluster.sync()
        cluster.reconcile()
        cluster.tick()
    cluster.advance(100)
    cluster.sync()
    plan = cluster.reconcile()
    assert plan
    assert plan.record.waiting
    assert (plan.record.phase, plan.record.waiting.reason) == (Phase.RESTARTING, "BelowMinReplicas")
    assert plan.requeue_at is not None
    cluster.slots = None
    cluster.settle()
    assert cluster.job is not None
    stored = decode(cluster.job.status)
    assert stored
    assert (stored.phase, stored.role("worker").size, stored.restarts) == (Phase.RUNNING, 4, 0)


def test_lost_capacity_is_followed_down_and_up_again() -> None:
    cluster = FakeCluster(job(bounds=Elastic(2, 8)))
    cluster.settle()
    cluster.slots = 3
    cluster.terminate(
        replace(cluster.pods["job-worker-1"], disrupted=True, disruption_reason="PreemptionByScheduler")
    )
    cluster.settle()
    assert cluster.job
    small = decode(cluster.job.status)
    assert small
    assert (small.phase, small.role("worker").size, small.role("worker").declared) == (Phase.RUNNING, 3, 4)
    assert sum(one.phase == "Running" for one in cluster.pods.values()) == 3
    cluster.slots = None
    cluster.tick()
    cluster.settle()
    whole = decode(cluster.job.status)
    assert whole
    assert (whole.role("worker").size, whole.restarts, whole.attempt) == (4, 0, 1)
    assert role_record(size=4).members - whole.role("worker").members == IndexSet.of((1,))
