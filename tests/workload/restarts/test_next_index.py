"""Tests roles whose lost pods are replaced under a new index, with a budget of their own."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import pods, reasons
from argosy.workload.current_pods import stale_pods
from argosy.workload.index_set import IndexSet
from argosy.workload.model import (
    Limits,
    Phase,
    ReplacementBudget,
    ReplacementPolicy,
    RestartPolicy,
    RestartScope,
    Workload,
)
from argosy.workload.observed import ObservedPod
from argosy.workload.operation import Operation
from argosy.workload.record import Record
from argosy.workload.record_sync import sync_record
from argosy.workload.restarts.policy import plan_restarts
from tests.support.step_counter import count_steps
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload

POLICY = ReplacementPolicy(RestartScope.POD, next_index=True, budget=ReplacementBudget(limit=3))
NOT_DELETED = replace(POLICY, deleted=False)


def job(policy: ReplacementPolicy = POLICY, restart: RestartPolicy = RestartPolicy.ON_FAILURE) -> Workload:
    worker = replace(role(restart=restart), replacement=policy)
    return workload(worker, limits=Limits(restarts=0))


def running(**fields: object) -> Record:
    last = role_record(Phase.RUNNING, size=3, created=3)
    return Record(
        phase=Phase.RUNNING,
        attempt_started_at=NOW,
        first_running_at=NOW,
        roles={"worker": replace(last, **fields)},
    )


class Case(Struct):
    pods: tuple[ObservedPod, ...]
    policy: ReplacementPolicy = POLICY
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    record: Record = running()
    absent: tuple[tuple[str, int], ...] = ()
    want_members: tuple[int, ...] = (0, 1, 2)
    want_retired: tuple[int, ...] = ()
    want_in_a_row: int = 0


CASES = {
    "pod failed: replaced by the next index": Case(
        (pod(0), pod(1, "Failed", exit_code=1), pod(2)),
        want_members=(0, 2, 3),
        want_retired=(1,),
        want_in_a_row=1,
    ),
    "two pods failed: replaced by the next two indexes": Case(
        (pod(0, "Failed", exit_code=1), pod(1, "Failed", exit_code=1), pod(2)),
        want_members=(2, 3, 4),
        want_retired=(0, 1),
        want_in_a_row=2,
    ),
    "pod failed, next index retired: the one after that": Case(
        (pod(0), pod(1, "Failed", exit_code=1), pod(2)),
        record=running(retired=IndexSet.of({3})),
        want_members=(0, 2, 4),
        want_retired=(1, 3),
        want_in_a_row=1,
    ),
    "pod failed while a scale-out adds the next index: the one after that": Case(
        (pod(0), pod(1, "Failed", exit_code=1), pod(2), pod(3, "Pending")),
        record=running(joining=IndexSet.of({3})),
        want_members=(0, 2, 4),
        want_retired=(1,),
        want_in_a_row=1,
    ),
    "pod of a scale-out failed: not replaced": Case(
        (pod(0), pod(1), pod(2), pod(3, "Failed", exit_code=1)),
        record=running(joining=IndexSet.of({3})),
    ),
    "pod evicted: replaced, and not counted": Case(
        (pod(0), pod(1, "Failed", disrupted=True, reason="Evicted"), pod(2)),
        want_members=(0, 2, 3),
        want_retired=(1,),
    ),
    "pod is being deleted: replaced at once": Case(
        (pod(0), pod(1, terminating=True), pod(2)), want_members=(0, 2, 3), want_retired=(1,)
    ),
    "pod confirmed to be deleted: replaced": Case(
        (pod(0), pod(2)), absent=(("worker", 1),), want_members=(0, 2, 3), want_retired=(1,)
    ),
    "pod not observed, deletion not confirmed: not replaced": Case((pod(0), pod(2))),
    "pod deleted, deleted pods are not replaced: not replaced": Case(
        (pod(0), pod(2)), policy=NOT_DELETED, absent=(("worker", 1),), want_retired=(1,)
    ),
    "pod is being deleted, deleted pods are not replaced: not replaced": Case(
        (pod(0), pod(1, terminating=True), pod(2)), policy=NOT_DELETED
    ),
    "pod failed, restart Never: not replaced": Case(
        (pod(0), pod(1, "Failed", exit_code=1), pod(2)), restart=RestartPolicy.NEVER, want_retired=(1,)
    ),
    "pod failed that is scaled in: not replaced": Case(
        (pod(0), pod(1, "Failed", exit_code=1), pod(2)),
        record=replace(running(), operations=(Operation("a", "In", "worker", NOW, indexes="1"),)),
    ),
    "pod of phase Unknown: not replaced": Case((pod(0), pod(1, "Unknown"), pod(2))),
    "pod of phase Unknown, such pods are replaced: replaced, and not counted": Case(
        (pod(0), pod(1, "Unknown"), pod(2)),
        policy=replace(POLICY, unknown=True),
        want_members=(0, 2, 3),
        want_retired=(1,),
    ),
    "pod succeeded, restart Always: replaced": Case(
        (pod(0), pod(1, "Succeeded", exit_code=0), pod(2)),
        restart=RestartPolicy.ALWAYS,
        want_members=(0, 2, 3),
        want_retired=(1,),
    ),
    "budget used up: not replaced": Case(
        (pod(0), pod(1, "Failed", exit_code=1), pod(2)),
        record=running(replacements_in_a_row=3),
        want_retired=(1,),
        want_in_a_row=3,
    ),
    "budget used up, pod evicted: replaced": Case(
        (pod(0), pod(1, "Failed", disrupted=True, reason="Evicted"), pod(2)),
        record=running(replacements_in_a_row=3),
        want_members=(0, 2, 3),
        want_retired=(1,),
        want_in_a_row=3,
    ),
    "budget used up, failed pod had run for long: replaced, and counted from 1": Case(
        (pod(0), pod(1, "Failed", exit_code=1, created=later(-3600)), pod(2)),
        record=running(replacements_in_a_row=3),
        want_members=(0, 2, 3),
        want_retired=(1,),
        want_in_a_row=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_lost_pods_get_the_next_index(case: Case) -> None:
    wanted = job(case.policy, case.restart)
    observed = observation(*case.pods, confirmed_absent=case.absent)
    plan = plan_restarts(wanted, sync_record(wanted, case.record, observed, later(5)), observed, later(5))
    last = plan.record.role("worker")
    assert tuple(last.members) == case.want_members
    assert tuple(last.retired) == case.want_retired
    assert last.replacements_in_a_row == case.want_in_a_row
    assert plan.record.restarts == 0, "the job's restarts are not used"
    assert plan.result is None, "the job's limit of restarts does not apply"
    again = plan_restarts(wanted, plan.record, observed, later(6)).record
    assert again == plan.record, "a loss that is observed again changes nothing"


def test_the_failed_pod_is_kept_and_its_replacement_created() -> None:
    observed = observation(pod(0), pod(1, "Failed", exit_code=1), pod(2))
    record = plan_restarts(job(), running(), observed, later(5)).record
    assert not stale_pods(record, observed)
    created = pods.plan_creation(job(), record, observed, later(5)).create
    assert [action.index for action in created] == [3]


def test_an_active_pod_of_a_retired_index_is_deleted() -> None:
    record = running(members=IndexSet.of({0, 2, 3}), retired=IndexSet.of({1}))
    observed = observation(pod(0), pod(1), pod(2), pod(3))
    assert [pod.index for pod in stale_pods(record, observed)] == [1]


def test_replacements_in_a_row_are_delayed_more_and_more() -> None:
    record, delays = running(), []
    for number in range(3):
        lost = record.role("worker").members.highest
        observed = observation(pod(lost, "Failed", exit_code=1, created=later(number)))
        record = plan_restarts(job(), record, observed, later(number)).record
        retry_at = record.role("worker").retry_at
        delays.append((retry_at - later(number)).total_seconds() if retry_at else 0.0)
    assert delays == [0.0, 10.0, 20.0]
    held = pods.plan_creation(job(), record, observation(pod(0), pod(1)), later(3))
    assert held.create == ()
    assert held.retry_at == later(2 + 20)
    assert [action.index for action in pods.plan_creation(job(), record, observation(), later(30)).create]


def test_pods_of_a_scale_out_are_neither_delayed_nor_confirmed() -> None:
    record = running(joining=IndexSet.of({3, 4}), created=IndexSet.of({0, 1, 2, 3}), retry_at=later(60))
    creation = pods.plan_creation(job(), record, observation(pod(0), pod(1), pod(2)), later(5))
    assert [action.index for action in creation.create] == [3, 4]
    assert creation.confirm == ()


def test_the_pod_of_a_replica_that_is_scaled_in_is_deleted_also_if_it_failed() -> None:
    record = running(members=IndexSet.of({0, 2}), retired=IndexSet.of({1}))
    observed = observation(pod(0), pod(1, "Failed", exit_code=1), pod(2))
    assert not stale_pods(record, observed)
    removing = replace(record, operations=(Operation("a", "In", "worker", NOW, indexes="1"),))
    assert [pod.index for pod in stale_pods(removing, observed)] == [1]


def test_the_end_of_the_budget_is_recorded_once() -> None:
    observed = observation(pod(0), pod(1, "Failed", exit_code=1), pod(2))
    record = running(replacements_in_a_row=3)
    for seconds in (5, 6):
        record = plan_restarts(job(), record, observed, later(seconds)).record
    entries = [entry for entry in record.history if entry.reason == reasons.REPLACEMENT_LIMIT_REACHED]
    assert len(entries) == 1
    assert "3 times in a row" in entries[0].message


def test_a_lost_record_is_restored_from_pods_with_gaps() -> None:
    observed = observation(pod(0), pod(1, "Failed", exit_code=1), pod(3), pod(5, terminating=True))
    last = sync_record(job(), None, observed, later(5)).role("worker")
    assert tuple(last.members) == (0, 2, 3)
    assert tuple(last.retired) == (1, 5)


def test_the_cost_of_many_losses_at_once_grows_with_their_number_only() -> None:
    def steps(size: int) -> int:
        members = IndexSet.first(size)
        record = running(members=members, created=members, declared=size)
        evicted = [pod(index, "Failed", disrupted=True, reason="Evicted") for index in range(size)]
        return count_steps(lambda: plan_restarts(job(), record, observation(*evicted), later(5)))

    assert steps(400) < 3 * steps(200)
