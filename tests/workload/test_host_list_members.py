"""Tests which replicas are in the host list that a launcher reads."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import Apply, ExecResult, ExecStatus
from argosy.workload import children
from argosy.workload.hosts import SETTLE_SECONDS, update_host_list
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Phase
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from tests.support.scale_simulator import elastic_job, indexes
from tests.support.workloads import NOW, existing_child, later, pod, role_record

LONG_AGO = later(-600)


def record(listed: IndexSet = EMPTY, launcher: Phase = Phase.RUNNING, **fields: object) -> Record:
    worker = role_record(Phase.RUNNING, size=3, created=3, listed=listed, listed_since=LONG_AGO)
    roles = {"worker": replace(worker, **fields), "launcher": role_record(launcher, size=1)}
    return Record(phase=Phase.RUNNING, attempt_started_at=LONG_AGO, roles=roles)


def answers(*attachable: int, failed: tuple[int, ...] = ()) -> dict[str, ExecResult]:
    """Answers of the checks in these workers."""
    codes = {**dict.fromkeys(attachable, 0), **dict.fromkeys(failed, 1)}
    keys = {index: f"attach/{pod(index).uid}" for index in codes}
    return {keys[index]: ExecResult(keys[index], ExecStatus.DONE, code) for index, code in codes.items()}


class Case(Struct):
    record: Record
    pods: tuple[ObservedPod, ...]
    want: tuple[int, ...]
    results: dict[str, ExecResult] = {}
    want_checks: tuple[int, ...] = ()


ALL = (pod(0), pod(1), pod(2))
CASES = {
    "running and attachable: listed": Case(record(indexes(0, 1)), ALL, (0, 1, 2), answers(2)),
    "running and not checked yet: not listed, and checked": Case(
        record(indexes(0, 1)), ALL, (0, 1), want_checks=(2,)
    ),
    "check failed: not listed, and left out once to be repeated": Case(
        record(indexes(0, 1)), ALL, (0, 1), answers(failed=(2,))
    ),
    "pending: not listed": Case(record(indexes(0, 1)), (*ALL[:2], pod(2, "Pending")), (0, 1)),
    "listed and failed: not listed any more": Case(
        record(indexes(0, 1, 2)), (*ALL[:2], pod(2, "Failed")), (0, 1)
    ),
    "listed and terminating: not listed any more": Case(
        record(indexes(0, 1, 2)), (*ALL[:2], pod(2, terminating=True)), (0, 1)
    ),
    "listed and drained: not listed any more, and not checked": Case(
        record(indexes(0, 1, 2), draining=indexes(2)), ALL, (0, 1)
    ),
    "joining: not listed before it is a member": Case(
        record(indexes(0, 1), members=indexes(0, 1), joining=indexes(2)),
        ALL,
        (0, 1),
        answers(2),
    ),
    "changed a moment ago: nothing is added": Case(
        record(indexes(0, 1), listed_since=NOW), ALL, (0, 1), answers(2)
    ),
    "changed a moment ago, and another one is lost: changed at once": Case(
        record(indexes(0, 1), listed_since=NOW),
        (pod(0), pod(1, "Failed"), pod(2)),
        (0, 2),
        answers(2),
    ),
    "all lost: the last list is kept": Case(
        record(indexes(0, 1)), (pod(0, "Failed"), pod(1, "Failed"), pod(2, "Failed")), (0, 1)
    ),
    "all lost before there is a launcher: empty": Case(
        record(indexes(0, 1), Phase.PENDING), (pod(0, "Failed"), pod(1, "Failed")), ()
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_host_list(case: Case) -> None:
    observed = Observed(pods=case.pods, exec_results=case.results)
    plan = update_host_list(elastic_job(3), case.record, observed, later(1))
    assert tuple(plan.record.role("worker").listed) == case.want
    checks = [call.uid for call in plan.calls if call.key.startswith("attach/")]
    assert checks == [pod(index).uid for index in case.want_checks]


def test_an_addition_is_made_when_the_last_change_was_taken_up() -> None:
    observed = Observed(pods=ALL, exec_results=answers(2))
    changed = record(indexes(0, 1), listed_since=NOW)
    held = update_host_list(elastic_job(3), changed, observed, later(SETTLE_SECONDS - 1))
    assert held.requeue_at == later(SETTLE_SECONDS)
    added = update_host_list(elastic_job(3), changed, observed, later(SETTLE_SECONDS))
    assert tuple(added.record.role("worker").listed) == (0, 1, 2)


def test_an_addition_waits_until_the_role_of_the_launcher_names_it() -> None:
    job = elastic_job(3)
    job = replace(job, rules=replace(job.rules, exec_from=("launcher",), exec_into=("worker",)))
    before = record(indexes(0, 1))
    observed = Observed(pods=ALL, exec_results=answers(2))
    old, new = (
        tuple(
            existing_child(change.child)
            for change in children.sync_children(job, before, Observed(pods=pods))
            if isinstance(change, Apply)
        )
        for pods in (ALL[:2], ALL)
    )
    for existing, want in ((old, (0, 1)), (new, (0, 1, 2))):
        plan = update_host_list(job, before, replace(observed, children=existing), later(1))
        assert tuple(plan.record.role("worker").listed) == want
