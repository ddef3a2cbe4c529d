import pytest
from msgspec import Struct

from argosy.workload.current_pods import is_current
from argosy.workload.model import Phase, RestartPolicy
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord
from argosy.workload.record_sync import sync_record
from tests.support.workloads import NOW, later, pod, role, seen, workload

JOB = workload(role(restart=RestartPolicy.ON_FAILURE), generation=4)


def known(attempt: int = 1) -> Record:
    roles = {"worker": RoleRecord(size=3, phase_since=NOW)}
    return Record(phase_since=NOW, attempt_started_at=NOW, attempt=attempt, roles=roles)


class Case(Struct):
    record: Record | None
    pods: tuple[ObservedPod, ...]
    want_attempt: int = 1
    want_restarts: int = 0
    want_replaced: dict[int, int] = {}
    want_created: int = 0
    want_done: dict[int, int] = {}


CASES = {
    "a new job": Case(None, ()),
    "a wiped status: attempt and replacements stand on the pods": Case(
        None,
        (pod(0, attempt=3), pod(1, attempt=3, replacement=2), pod(2, attempt=2)),
        want_attempt=3,
        want_restarts=4,
        want_replaced={1: 2},
        want_created=2,
    ),
    "a record that was set back believes the pods": Case(
        known(attempt=1), (pod(0, attempt=2),), want_attempt=2, want_restarts=1, want_created=1
    ),
    "pods of an older attempt tell nothing": Case(known(attempt=2), (pod(0), pod(1, replacement=9)), 2),
    "created grows over an unbroken row only": Case(known(), (pod(0), pod(2)), want_created=1),
    "success is remembered": Case(known(), (pod(0, "Succeeded"),), want_created=1, want_done={0: 1}),
    "containers that restarted in place are restarts": Case(
        known(), (pod(0, container_restarts=2),), want_restarts=2, want_created=1
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_remember(case: Case) -> None:
    after = sync_record(JOB, case.record, seen(*case.pods), later(1))
    worker = after.role("worker")
    assert (after.attempt, after.restarts) == (case.want_attempt, case.want_restarts)
    assert (worker.replacements, worker.created_below, worker.succeeded_indexes) == (
        case.want_replaced,
        case.want_created,
        case.want_done,
    )
    assert after.generation == 4
    assert sync_record(JOB, after, seen(*case.pods), later(2)) == after, "what is known is not learnt again"


def test_a_container_that_restarted_in_place_is_told_with_its_cause() -> None:
    after = sync_record(JOB, known(), seen(pod(0), pod(1, container_restarts=2, last_exit_code=9)), later(1))
    told = [(one.index, one.cause, one.scope, one.exit_code) for one in after.restart_history]
    assert told == [(1, "NonZeroExit", "Container", 9)]


def test_the_generation_never_goes_back() -> None:
    assert sync_record(JOB, Record(phase_since=NOW, generation=9), Observed(), NOW).generation == 9


def test_a_finished_job_learns_nothing() -> None:
    record = Record(phase_since=NOW, finished_at=NOW, phase=Phase.SUCCEEDED)
    assert sync_record(JOB, record, seen(pod(0, attempt=5)), NOW) is record


CURRENT = {
    "as recorded": (pod(1, attempt=2, replacement=1), True),
    "of an older attempt": (pod(1, attempt=1, replacement=1), False),
    "replaced": (pod(1, attempt=2, replacement=0), False),
    "one too many": (pod(3, attempt=2), False),
    "of a role that is not there": (pod(0, attempt=2, role="chief"), False),
}


@pytest.mark.parametrize(("one", "want"), CURRENT.values(), ids=CURRENT.keys())
def test_current(one: ObservedPod, want: bool) -> None:
    record = Record(attempt=2, roles={"worker": RoleRecord(size=3, replacements={1: 1})})
    assert is_current(record, one) is want
