import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.current_pods import is_current
from argosy.workload.decide import decide
from argosy.workload.model import Phase, RestartPolicy, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.record_sync import is_recoverable_from_pods, sync_record
from tests.support.scale_simulator import ScaleSimulator, elastic_job
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload

JOB = workload(role(restart=RestartPolicy.ON_FAILURE), generation=4)


def recorded(attempt: int = 1) -> Record:
    roles = {"worker": role_record(size=3, phase_since=NOW)}
    return Record(phase_since=NOW, attempt_started_at=NOW, attempt=attempt, roles=roles)


class Case(Struct):
    record: Record | None
    pods: tuple[ObservedPod, ...]
    want_attempt: int = 1
    want_restarts: int = 0
    want_replaced: dict[int, int] = {}
    want_created: tuple[int, ...] = ()
    want_done: dict[int, int] = {}


CASES = {
    "new job: empty": Case(None, ()),
    "Record lost: attempt and replacements from pod labels": Case(
        None,
        (pod(0, attempt=3), pod(1, attempt=3, replacement=2), pod(2, attempt=2)),
        want_attempt=3,
        want_restarts=4,
        want_replaced={1: 2},
        want_created=(0, 1),
    ),
    "Record older than the pods: attempt and replacements from pod labels": Case(
        recorded(attempt=1), (pod(0, attempt=2),), want_attempt=2, want_restarts=1, want_created=(0,)
    ),
    "pods of an earlier attempt: ignored": Case(recorded(attempt=2), (pod(0), pod(1, replacement=9)), 2),
    "pods 0 and 2 exist: both were created": Case(recorded(), (pod(0), pod(2)), want_created=(0, 2)),
    "succeeded pod: recorded": Case(recorded(), (pod(0, "Succeeded"),), want_created=(0,), want_done={0: 1}),
    "container restarts: counted as restarts": Case(
        recorded(), (pod(0, container_restarts=2),), want_restarts=2, want_created=(0,)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_record_is_updated_from_pods(case: Case) -> None:
    after = sync_record(JOB, case.record, observation(*case.pods), later(1))
    worker = after.role("worker")
    assert (after.attempt, after.restarts) == (case.want_attempt, case.want_restarts)
    assert (worker.replacements, tuple(worker.created), worker.succeeded_indexes) == (
        case.want_replaced,
        case.want_created,
        case.want_done,
    )
    assert after.generation == 4
    assert sync_record(JOB, after, observation(*case.pods), later(2)) == after, (
        "what is known is not learnt again"
    )


def test_a_container_restart_is_recorded_with_its_cause() -> None:
    after = sync_record(
        JOB, recorded(), observation(pod(0), pod(1, container_restarts=2, last_exit_code=9)), later(1)
    )
    entries = [(entry.index, entry.cause, entry.scope, entry.exit_code) for entry in after.restart_history]
    assert entries == [(1, "NonZeroExit", "Container", 9)]


def test_the_generation_never_decreases() -> None:
    assert sync_record(JOB, Record(phase_since=NOW, generation=9), Observed(), NOW).generation == 9


def test_the_record_of_a_finished_job_is_unchanged() -> None:
    record = Record(phase_since=NOW, finished_at=NOW, phase=Phase.SUCCEEDED)
    assert sync_record(JOB, record, observation(pod(0, attempt=5)), NOW) is record


CURRENT = {
    "attempt and replacement as recorded: current": (pod(1, attempt=2, replacement=1), True),
    "earlier attempt: stale": (pod(1, attempt=1, replacement=1), False),
    "earlier replacement: stale": (pod(1, attempt=2, replacement=0), False),
    "index beyond the size: stale": (pod(3, attempt=2), False),
    "unknown role: stale": (pod(0, attempt=2, role="chief"), False),
}


@pytest.mark.parametrize(("observed_pod", "want"), CURRENT.values(), ids=CURRENT.keys())
def test_current_pods_match_the_record(observed_pod: ObservedPod, want: bool) -> None:
    record = Record(attempt=2, roles={"worker": role_record(size=3, replacements={1: 1})})
    assert is_current(record, observed_pod) is want


def test_a_new_host_list_is_written_at_once_even_before_the_job_has_run() -> None:
    """Launchers read what is written, by every replica; and no pod shows which hosts were listed."""
    job = ScaleSimulator(without_attach_check(elastic_job()))
    while not job.host_lists or not job.host_lists[-1]:
        before, observed = decode(job.stored), Observed(pods=tuple(job.pods.values()))
        plan = decide(job.job, before, observed, job.now)
        job.run(1)
    assert plan.record.role("worker").listed
    assert before is not None
    assert before.first_running_at is None
    assert not is_recoverable_from_pods(job.job, before, plan, observed)
    unlisted = plan.record.with_role("worker", before.role("worker"))
    assert is_recoverable_from_pods(job.job, before, Plan(unlisted), observed), "nothing else keeps it"


def without_attach_check(job: Workload) -> Workload:
    rule = job.rules.host_list
    assert rule is not None
    return replace(job, rules=replace(job.rules, host_list=replace(rule, attach_check=())))
