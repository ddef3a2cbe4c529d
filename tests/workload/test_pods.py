import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload import pods
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Rules
from argosy.workload.observed import ObservedPod, RecentLoss
from argosy.workload.plan import CreatePod, DeletePod
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, pod, role, seen, workload

RUNNING = RoleRecord(phase=Phase.RUNNING, size=3, created_below=3)
STARTING = RoleRecord(phase=Phase.STARTING, size=3, created_below=3)


class Case(Struct):
    pods: tuple[ObservedPod, ...] = ()
    last: RoleRecord = STARTING
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    scope: RestartScope = RestartScope.POD
    attempt: int = 1
    begun: bool = True
    create: tuple[int, ...] = ()
    confirm: tuple[int, ...] = ()
    stopping: tuple[int, ...] = ()


def last(**fields: object) -> RoleRecord:
    return RoleRecord(**{"phase": Phase.RUNNING, "size": 3, "created_below": 3, **fields})  # type: ignore[arg-type]  # tests name fields freely


CASES = {
    "all are missing": Case(create=(0, 1, 2)),
    "one is missing": Case((pod(0), pod(2)), create=(1,)),
    "a place is not filled while its pod still stops": Case(
        (pod(0), pod(1, terminating=True), pod(2)), stopping=(1,)
    ),
    "nor while the pod to be replaced is there": Case(
        (pod(0), pod(1, "Failed"), pod(2)), last(replacements={1: 1}), stopping=(1,)
    ),
    "a place that succeeded stays empty": Case((pod(0),), last(succeeded_indexes={1: 1}), create=(2,)),
    "a place given up stays empty": Case((pod(0),), last(lost_indexes={1: 1}), create=(2,)),
    "nothing is created in a role that succeeded": Case((), last(phase=Phase.SUCCEEDED)),
    "a role that never restarts is filled while it starts": Case(
        (pod(0),), restart=RestartPolicy.NEVER, create=(1, 2)
    ),
    "and asked about when it ran": Case((pod(0),), RUNNING, RestartPolicy.NEVER, confirm=(1, 2)),
    "what was never there is created even then": Case(
        (pod(0), pod(1)), last(created_below=2), RestartPolicy.NEVER, create=(2,)
    ),
    "a job that starts anew waits for all of its old pods": Case(
        (pod(0),), scope=RestartScope.JOB, attempt=2, begun=False, stopping=(0,)
    ),
    "so does one that was suspended": Case(
        (pod(0, terminating=True),), attempt=2, begun=False, stopping=(0,)
    ),
    "a pod missing from a running whole is asked about": Case(
        (pod(0), pod(1)), RUNNING, scope=RestartScope.JOB, confirm=(2,)
    ),
    "a role that starts anew waits for its own old pods": Case(
        (pod(0), pod(1)),
        last(phase=Phase.PENDING, replacements={0: 1, 1: 1, 2: 1}),
        scope=RestartScope.ROLE,
        stopping=(0, 1),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_missing(case: Case) -> None:
    job = workload(role(restart=case.restart), rules=Rules(restart_scope=case.scope))
    record = Record(
        attempt=case.attempt, attempt_started_at=NOW if case.begun else None, roles={"worker": case.last}
    )
    found = pods.plan_creation(job, record, seen(*case.pods), NOW)
    assert tuple(one.index for one in found.create) == case.create
    assert tuple(one.index for one in found.confirm) == case.confirm
    assert found.blocked_by == tuple(f"job-worker-{index}" for index in case.stopping)


def test_a_pod_knows_its_attempt_and_replacement() -> None:
    record = Record(attempt=4, attempt_started_at=NOW, roles={"worker": last(replacements={1: 2})})
    found = pods.plan_creation(
        workload(role(restart=RestartPolicy.ON_FAILURE)), record, seen(pod(0, attempt=4)), NOW
    )
    assert found.create == (CreatePod("worker", 1, 4, 2), CreatePod("worker", 2, 4, 0))


def test_the_delay_is_for_places_that_keep_failing() -> None:
    record = Record(
        attempt_started_at=NOW, roles={"worker": last(replacements={1: 2, 2: 1}, retry_at=later(10))}
    )
    job = workload(role(restart=RestartPolicy.ON_FAILURE))
    found = pods.plan_creation(job, record, seen(pod(0)), later(5))
    assert [one.index for one in found.create] == [2]
    assert found.retry_at == later(10)
    assert [one.index for one in pods.plan_creation(job, record, seen(pod(0)), later(10)).create] == [1, 2]


OBSOLETE = {
    "the right ones stay": ((pod(0), pod(1)), ()),
    "an older attempt goes": ((pod(0, attempt=0),), (0,)),
    "a replaced one goes": ((pod(2, replacement=0),), (2,)),
    "one too many goes": ((pod(7),), (7,)),
    "one of a role that is gone goes": ((pod(0, role="chief"),), (0,)),
    "what is going already is left to go": ((pod(7, terminating=True),), ()),
}


@pytest.mark.parametrize(("there", "want"), OBSOLETE.values(), ids=OBSOLETE.keys())
def test_obsolete(there: tuple[ObservedPod, ...], want: tuple[int, ...]) -> None:
    record = Record(roles={"worker": last(replacements={2: 1})})
    found = pods.stale_deletions(record, seen(*there))
    assert tuple(int(one.name.rsplit("-", 1)[1]) for one in found) == want


def test_of_two_pods_in_one_place_the_older_stays() -> None:
    older, newer = (
        pod(0, created=NOW),
        ObservedPod("other", "z", "worker", 0, phase="Running", created=later(1)),
    )
    record = Record(roles={"worker": RUNNING})
    assert [one.uid for one in pods.stale_deletions(record, seen(newer, older))] == ["z"]


ASKED = (CreatePod("worker", 1, 1, 0), CreatePod("worker", 2, 1, 0))


def test_pods_of_a_plan_are_expected_to_be_pending() -> None:
    view = pods.with_planned_pods(seen(pod(0)), ASKED)
    assert [(one.index, one.phase) for one in view.pods] == [(0, "Running"), (1, "Pending"), (2, "Pending")]
    assert sorted(view.by_replica) == [("worker", 0), ("worker", 1), ("worker", 2)]


def test_after_a_refusal_no_pods_are_expected() -> None:
    refused = replace(seen(pod(0)), failed_actions=(ActionResult("Service", "s", ActionStatus.FORBIDDEN),))
    assert pods.with_planned_pods(refused, ASKED) == refused


DELAYS = {
    "the first loss of a place: replaced at once": (1, 0.0),
    "the second loss in a row: after a second": (2, 1.0),
    "the third: after two": (3, 2.0),
    "the eighth: after a minute": (8, 60.0),
    "the thousandth: after a minute still": (1000, 60.0),
}


@pytest.mark.parametrize(("count", "want"), DELAYS.values(), ids=DELAYS.keys())
def test_the_delay_of_a_replacement_whatever_took_the_pod(count: int, want: float) -> None:
    assert pods.loss_delay(count) == want


class HoldCase(Struct):
    losses: dict[int, RecentLoss]
    create: tuple[int, ...]
    retry_in: float | None = None
    begun: bool = True
    restart: RestartPolicy = RestartPolicy.ON_FAILURE


HELD = {
    "nothing was lost twice: all missing pods are created": HoldCase({}, (0, 1)),
    "a place lost its second pod just now: it waits, the other does not": HoldCase(
        {0: RecentLoss(2, 0.0)}, (1,), 1.0
    ),
    "part of the delay has passed: the rest is waited for": HoldCase({0: RecentLoss(4, 1.5)}, (1,), 2.5),
    "the delay has passed: created": HoldCase({0: RecentLoss(4, 4.0)}, (0, 1)),
    "two places wait: the earlier wakes the job": HoldCase(
        {0: RecentLoss(5, 0.0), 1: RecentLoss(3, 0.0)}, (), 2.0
    ),
    "a new attempt waits as a whole for the longest delay": HoldCase(
        {0: RecentLoss(5, 0.0), 1: RecentLoss(3, 0.0)}, (), 8.0, begun=False
    ),
    "a role that never restarts and still starts waits too": HoldCase(
        {0: RecentLoss(2, 0.0)}, (1,), 1.0, restart=RestartPolicy.NEVER
    ),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD.keys())
def test_no_place_is_filled_again_and_again_without_a_pause(case: HoldCase) -> None:
    job = workload(role("worker", 2, case.restart))
    record = Record(
        attempt_started_at=NOW if case.begun else None,
        roles={"worker": RoleRecord(phase=Phase.STARTING, size=2)},
    )
    observed = replace(seen(), recent_losses={("worker", index): loss for index, loss in case.losses.items()})
    found = pods.plan_creation(job, record, observed, NOW)
    assert tuple(action.index for action in found.create) == case.create
    assert found.retry_at == (None if case.retry_in is None else later(case.retry_in))


class StuckCase(Struct):
    want: float | None
    """Seconds after the end of its grace period at which the pod is deleted by force."""
    down: bool = True
    released: bool = False
    unconfirmed: bool = False
    limits: Limits = Limits()
    terminating: bool = True


STUCK = {
    "a node that does not answer may still run the pod: never by force": StuckCase(None),
    "a node that is gone or out of service: after half a minute": StuckCase(30, released=True),
    "a node that does not answer, and the user bears the risk: when the user says": StuckCase(
        120, limits=Limits(force_delete_after=120)
    ),
    "a time beyond the end of time: never": StuckCase(None, limits=Limits(force_delete_after=1e15)),
    "a node that is unconfirmed: never by force, whatever the user bears": StuckCase(
        None, down=False, unconfirmed=True, limits=Limits(force_delete_after=0)
    ),
    "a node that answers ends the pod itself": StuckCase(
        None, down=False, limits=Limits(force_delete_after=0)
    ),
    "a pod that nobody asked to go is not deleted by force": StuckCase(
        None, released=True, terminating=False
    ),
}


@pytest.mark.parametrize("case", STUCK.values(), ids=STUCK.keys())
def test_when_a_pod_is_deleted_by_force(case: StuckCase) -> None:
    one = pod(0, terminating=case.terminating, node="a", deletion_time=NOW if case.terminating else None)
    observed = replace(
        seen(one, nodes_down=["a"] if case.down else []),
        nodes_released=frozenset({"a"} if case.released else ()),
        nodes_unconfirmed={"a": "no answer yet"} if case.unconfirmed else {},
    )
    if case.want is None:
        assert pods.forced_deletions(case.limits, observed, later(10**6)) == ([], None)
        return
    assert pods.forced_deletions(case.limits, observed, later(case.want - 1)) == ([], later(case.want))
    (forced,), again = pods.forced_deletions(case.limits, observed, later(case.want))
    assert isinstance(forced, DeletePod)
    assert (forced.name, forced.uid, forced.grace_period_seconds, again) == (one.name, one.uid, 0, None)
