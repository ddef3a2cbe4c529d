import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload import pods
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Rules
from argosy.workload.observed import ObservedPod, RecentLoss
from argosy.workload.plan import CreatePod, DeletePod
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload

RUNNING = role_record(phase=Phase.RUNNING, size=3, created=3)
STARTING = role_record(phase=Phase.STARTING, size=3, created=3)


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
    return role_record(**{"phase": Phase.RUNNING, "size": 3, "created": 3, **fields})  # type: ignore[arg-type]  # tests name fields freely


CASES = {
    "no pods: all are created": Case(create=(0, 1, 2)),
    "one pod missing: created": Case((pod(0), pod(2)), create=(1,)),
    "pod terminating: not created yet": Case((pod(0), pod(1, terminating=True), pod(2)), stopping=(1,)),
    "replaced pod still exists: not created yet": Case(
        (pod(0), pod(1, "Failed"), pod(2)), last(replacements={1: 1}), stopping=(1,)
    ),
    "index succeeded: not created": Case((pod(0),), last(succeeded_indexes={1: 1}), create=(2,)),
    "index lost for good: not created": Case((pod(0),), last(lost_indexes={1: 1}), create=(2,)),
    "role succeeded: nothing is created": Case((), last(phase=Phase.SUCCEEDED)),
    "restart Never, starting: created": Case((pod(0),), restart=RestartPolicy.NEVER, create=(1, 2)),
    "restart Never, running: confirmed first": Case((pod(0),), RUNNING, RestartPolicy.NEVER, confirm=(1, 2)),
    "restart Never, running, index never created: created": Case(
        (pod(0), pod(1)), last(created=2), RestartPolicy.NEVER, create=(2,)
    ),
    "new attempt while old pods exist: nothing is created": Case(
        (pod(0),), scope=RestartScope.JOB, attempt=2, begun=False, stopping=(0,)
    ),
    "resumed while old pods exist: nothing is created": Case(
        (pod(0, terminating=True),), attempt=2, begun=False, stopping=(0,)
    ),
    "restart scope Job, running: confirmed first": Case(
        (pod(0), pod(1)), RUNNING, scope=RestartScope.JOB, confirm=(2,)
    ),
    "role restart while its old pods exist: none of it is created": Case(
        (pod(0), pod(1)),
        last(phase=Phase.PENDING, replacements={0: 1, 1: 1, 2: 1}),
        scope=RestartScope.ROLE,
        stopping=(0, 1),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pods_are_created_once_their_replica_has_none(case: Case) -> None:
    job = workload(role(restart=case.restart), rules=Rules(restart_scope=case.scope))
    record = Record(
        attempt=case.attempt, attempt_started_at=NOW if case.begun else None, roles={"worker": case.last}
    )
    creation = pods.plan_creation(job, record, observation(*case.pods), NOW)
    assert tuple(action.index for action in creation.create) == case.create
    assert tuple(action.index for action in creation.confirm) == case.confirm
    assert creation.blocked_by == tuple(f"job-worker-{index}" for index in case.stopping)


def test_a_created_pod_has_its_attempt_and_replacement_number() -> None:
    record = Record(attempt=4, attempt_started_at=NOW, roles={"worker": last(replacements={1: 2})})
    creation = pods.plan_creation(
        workload(role(restart=RestartPolicy.ON_FAILURE)), record, observation(pod(0, attempt=4)), NOW
    )
    assert creation.create == (CreatePod("worker", 1, 4, 2), CreatePod("worker", 2, 4, 0))


def test_the_backoff_applies_to_replicas_that_failed_repeatedly() -> None:
    record = Record(
        attempt_started_at=NOW, roles={"worker": last(replacements={1: 2, 2: 1}, retry_at=later(10))}
    )
    job = workload(role(restart=RestartPolicy.ON_FAILURE))
    creation = pods.plan_creation(job, record, observation(pod(0)), later(5))
    assert [action.index for action in creation.create] == [2]
    assert creation.retry_at == later(10)
    assert [
        action.index for action in pods.plan_creation(job, record, observation(pod(0)), later(10)).create
    ] == [
        1,
        2,
    ]


STALE = {
    "current pods: kept": ((pod(0), pod(1)), ()),
    "pod of an earlier attempt: deleted": ((pod(0, attempt=0),), (0,)),
    "replaced pod: deleted": ((pod(2, replacement=0),), (2,)),
    "pod beyond the size: deleted": ((pod(7),), (7,)),
    "pod of a removed role: deleted": ((pod(0, role="chief"),), (0,)),
    "stale pod that is terminating: not deleted again": ((pod(7, terminating=True),), ()),
}


@pytest.mark.parametrize(("existing", "want"), STALE.values(), ids=STALE.keys())
def test_stale_pods_are_deleted(existing: tuple[ObservedPod, ...], want: tuple[int, ...]) -> None:
    record = Record(roles={"worker": last(replacements={2: 1})})
    deletions = pods.stale_deletions(workload(), record, observation(*existing), NOW)
    assert tuple(int(deletion.name.rsplit("-", 1)[1]) for deletion in deletions) == want


def test_of_two_pods_of_a_replica_the_older_is_kept() -> None:
    older, newer = (
        pod(0, created=NOW),
        ObservedPod("other", "z", "worker", 0, phase="Running", created=later(1)),
    )
    record = Record(roles={"worker": RUNNING})
    assert [
        deletion.uid for deletion in pods.stale_deletions(workload(), record, observation(newer, older), NOW)
    ] == ["z"]


ASKED = (CreatePod("worker", 1, 1, 0), CreatePod("worker", 2, 1, 0))


def test_planned_pods_count_as_pending() -> None:
    observed = pods.with_planned_pods(observation(pod(0)), ASKED)
    assert [(planned.index, planned.phase) for planned in observed.pods] == [
        (0, "Running"),
        (1, "Pending"),
        (2, "Pending"),
    ]
    assert sorted(observed.by_replica) == [("worker", 0), ("worker", 1), ("worker", 2)]


def test_planned_pods_do_not_count_after_a_failed_action() -> None:
    refused = replace(
        observation(pod(0)), failed_actions=(ActionResult("Service", "s", ActionStatus.FORBIDDEN),)
    )
    assert pods.with_planned_pods(refused, ASKED) == refused


DELAYS = {
    "first loss: no delay": (1, 0.0),
    "second consecutive loss: 1 s": (2, 1.0),
    "third consecutive loss: 2 s": (3, 2.0),
    "eighth consecutive loss: a minute": (8, 60.0),
    "thousandth consecutive loss: still a minute": (1000, 60.0),
}


@pytest.mark.parametrize(("count", "want"), DELAYS.values(), ids=DELAYS.keys())
def test_consecutive_losses_double_the_delay(count: int, want: float) -> None:
    assert pods.loss_delay(count) == want


class HoldCase(Struct):
    losses: dict[int, RecentLoss]
    create: tuple[int, ...]
    retry_in: float | None = None
    begun: bool = True
    restart: RestartPolicy = RestartPolicy.ON_FAILURE


HELD = {
    "no repeated loss: all missing pods are created": HoldCase({}, (0, 1)),
    "second loss just now: delayed, the other replica is not": HoldCase({0: RecentLoss(2, 0.0)}, (1,), 1.0),
    "part of the delay has passed: delayed by the rest": HoldCase({0: RecentLoss(4, 1.5)}, (1,), 2.5),
    "the delay has passed: created": HoldCase({0: RecentLoss(4, 4.0)}, (0, 1)),
    "two delayed replicas: requeued for the earlier": HoldCase(
        {0: RecentLoss(5, 0.0), 1: RecentLoss(3, 0.0)}, (), 2.0
    ),
    "new attempt: all pods wait for the longest delay": HoldCase(
        {0: RecentLoss(5, 0.0), 1: RecentLoss(3, 0.0)}, (), 8.0, begun=False
    ),
    "restart Never, starting: delayed too": HoldCase(
        {0: RecentLoss(2, 0.0)}, (1,), 1.0, restart=RestartPolicy.NEVER
    ),
}


@pytest.mark.parametrize("case", HELD.values(), ids=HELD.keys())
def test_pods_that_are_lost_repeatedly_are_created_with_a_delay(case: HoldCase) -> None:
    job = workload(role("worker", 2, case.restart))
    record = Record(
        attempt_started_at=NOW if case.begun else None,
        roles={"worker": role_record(phase=Phase.STARTING, size=2)},
    )
    observed = replace(
        observation(), recent_losses={("worker", index): loss for index, loss in case.losses.items()}
    )
    creation = pods.plan_creation(job, record, observed, NOW)
    assert tuple(action.index for action in creation.create) == case.create
    assert creation.retry_at == (None if case.retry_in is None else later(case.retry_in))


class StuckCase(Struct):
    want: float | None
    """Seconds after the end of its grace period at which the pod is deleted by force."""
    down: bool = True
    released: bool = False
    unconfirmed: bool = False
    limits: Limits = Limits()
    terminating: bool = True


STUCK = {
    "unreachable node: never force-deleted": StuckCase(None),
    "node deleted or out of service: force-deleted after half a minute": StuckCase(30, released=True),
    "unreachable node with forceDeleteAfter: force-deleted after that time": StuckCase(
        120, limits=Limits(force_delete_after=120)
    ),
    "forceDeleteAfter beyond the calendar: never": StuckCase(None, limits=Limits(force_delete_after=1e15)),
    "unconfirmed node with forceDeleteAfter: never force-deleted": StuckCase(
        None, down=False, unconfirmed=True, limits=Limits(force_delete_after=0)
    ),
    "reachable node: never force-deleted": StuckCase(None, down=False, limits=Limits(force_delete_after=0)),
    "pod not terminating: never force-deleted": StuckCase(None, released=True, terminating=False),
}


@pytest.mark.parametrize("case", STUCK.values(), ids=STUCK.keys())
def test_terminating_pods_on_nodes_that_are_down_are_force_deleted(case: StuckCase) -> None:
    stuck = pod(0, terminating=case.terminating, node="a", deletion_time=NOW if case.terminating else None)
    observed = replace(
        observation(stuck, nodes_down=["a"] if case.down else []),
        nodes_released=frozenset({"a"} if case.released else ()),
        nodes_unconfirmed={"a": "no answer yet"} if case.unconfirmed else {},
    )
    if case.want is None:
        assert pods.forced_deletions(case.limits, observed, later(10**6)) == ([], None)
        return
    assert pods.forced_deletions(case.limits, observed, later(case.want - 1)) == ([], later(case.want))
    (forced,), again = pods.forced_deletions(case.limits, observed, later(case.want))
    assert isinstance(forced, DeletePod)
    assert (forced.name, forced.uid, forced.grace_period_seconds, again) == (stuck.name, stuck.uid, 0, None)
