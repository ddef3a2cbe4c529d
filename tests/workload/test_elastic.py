import pytest
from msgspec import Struct

from argosy.workload import elastic
from argosy.workload.decide import decide
from argosy.workload.model import Elastic, Limits, Phase, ResizeMode, RestartPolicy, Rules
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.plan import CreatePod, DeletePod
from argosy.workload.record import Record
from tests.support.workloads import NOW, later, observation, pods, role, role_record, workload

PROBLEMS = {
    "not elastic: valid": (4, None, []),
    "within bounds: valid": (4, Elastic(2, 8, 2), []),
    "max is not a multiple: invalid": (
        4,
        Elastic(2, 7, 2),
        ["spec.roles.worker.elastic: max 7 is not a multiple of 2; write 6 or 8"],
    ),
    "min is below the first multiple: invalid": (
        4,
        Elastic(1, 8, 4),
        ["spec.roles.worker.elastic: min 1 is not a multiple of 4; write 4"],
    ),
    "min above max: invalid": (4, Elastic(8, 2), ["spec.roles.worker.elastic: min 8 is greater than max 2"]),
    "replicas above max: invalid": (
        9,
        Elastic(2, 8),
        ["spec.roles.worker.replicas: 9 is not between elastic.min 2 and elastic.max 8"],
    ),
    "replicas are not a multiple: invalid": (
        5,
        Elastic(2, 8, 2),
        ["spec.roles.worker.replicas: replicas 5 is not a multiple of 2; write 4 or 6"],
    ),
}


@pytest.mark.parametrize(("replicas", "bounds", "want"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_replicas_must_be_within_their_bounds(replicas: int, bounds: Elastic | None, want: list[str]) -> None:
    assert [str(problem) for problem in elastic.problems("spec.roles.worker", replicas, bounds)] == want


class Case(Struct):
    size: int
    replicas: int
    resize: ResizeMode = ResizeMode.LIVE
    begun: bool = True
    want_created: tuple[int, ...] = ()
    want_deleted: tuple[str, ...] = ()
    want_attempt: int = 1


RESIZES = {
    "same size: unchanged": Case(3, 3),
    "larger: the next indexes are added": Case(3, 5, want_created=(3, 4)),
    "smaller: the highest indexes are removed": Case(3, 1, want_deleted=("job-worker-1", "job-worker-2")),
    "framework without live resize: a new attempt": Case(
        3,
        4,
        ResizeMode.RESTART,
        want_deleted=("job-worker-0", "job-worker-1", "job-worker-2"),
        want_attempt=2,
    ),
}


@pytest.mark.parametrize("case", RESIZES.values(), ids=RESIZES.keys())
def test_a_role_is_resized_to_its_spec(case: Case) -> None:
    job = workload(role(replicas=case.replicas), rules=Rules(resize=case.resize))
    last = role_record(phase=Phase.RUNNING, size=case.size, created=case.size, phase_since=NOW)
    record = Record(
        phase_since=NOW, phase=Phase.RUNNING, started_at=NOW, attempt_started_at=NOW, roles={"worker": last}
    )
    plan = decide(job, record, observation(*pods("R" * case.size)), later(1))
    assert tuple(a.index for a in plan.actions if isinstance(a, CreatePod)) == case.want_created
    assert tuple(a.name for a in plan.actions if isinstance(a, DeletePod)) == case.want_deleted
    assert plan.record.attempt == case.want_attempt
    assert plan.record.role("worker").size == case.replicas
    assert plan.record.restarts == 0


def test_a_role_below_its_minimum_waits_until_the_timeout() -> None:
    job = workload(
        role(replicas=4, restart=RestartPolicy.ON_FAILURE, elastic=Elastic(3, 8)),
        limits=Limits(below_min_timeout=60),
    )
    last = role_record(phase=Phase.RUNNING, size=4, created=4, phase_since=NOW)
    record = Record(phase_since=NOW, phase=Phase.RUNNING, attempt_started_at=NOW, roles={"worker": last})
    few = observation(*pods("RRPP"))
    since = elastic.track_below_min(job, record, few, later(5))
    assert since.role("worker").below_min_since == later(5)
    assert elastic.below_min_limit(job, since, later(30)) == later(65)
    over = elastic.below_min_limit(job, since, later(65))
    assert isinstance(over, PhaseResult)
    assert (over.reason, over.message) == (
        "BelowMinReplicas",
        "worker had fewer than 3 running pods for 1 m (limits.belowMinTimeout)",
    )
    assert (
        elastic.track_below_min(job, since, observation(*pods("RRRP")), later(40))
        .role("worker")
        .below_min_since
        is None
    )


def test_a_starting_role_is_not_below_its_minimum() -> None:
    job = workload(role(replicas=4, elastic=Elastic(3, 8)))
    record = Record(roles={"worker": role_record(phase=Phase.STARTING, size=4)})
    assert elastic.track_below_min(job, record, Observed(), NOW) == record
