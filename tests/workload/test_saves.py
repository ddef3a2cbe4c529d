"""Tests when a job is ordered to save a checkpoint, and what its pods' acknowledgements change."""

from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.checkpoint_spec import CheckpointSpec
from argosy.workload.checkpoint_policy import CheckpointPolicy, checkpoint_policy
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.decide import decide
from argosy.workload.model import Limits, Phase, ResizeMode, RestartPolicy, Rules, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import CreatePod, DeletePod, Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode
from tests.support import checkpointed_jobs
from tests.support.checkpointed_jobs import EPOCH
from tests.support.workloads import NOW, later, pod, role, workload

POLICY = CheckpointPolicy("file:///store/ns/job-uid", interval=600.0, suspend_grace=60.0)


def job(policy: CheckpointPolicy | None = POLICY, replicas: int = 2, **fields: object) -> Workload:
    made = workload(role(replicas=replicas, restart=RestartPolicy.ON_FAILURE), rules=Rules())
    return replace(made, checkpoint=policy, **fields)


def running(**changes: object) -> Record:
    """Return the Record of a job with two workers that runs since NOW."""
    return checkpointed_jobs.running(2, **changes)


def saved(step: int, at: float, epoch: int = 0) -> SavedCheckpoint:
    return checkpointed_jobs.saved(step, at, epoch)


def pods(*acknowledged: SavedCheckpoint | None) -> tuple[ObservedPod, ...]:
    """Return two running pods, of which the first ones have acknowledged these checkpoints."""
    acks = [*acknowledged, None, None]
    return tuple(replace(pod(index), saved=acks[index]) for index in range(2))


def order(epoch: int = EPOCH) -> SaveOrder:
    return SaveOrder(epoch, "interval", "Interval", NOW, later(600))


def moved(acknowledged: SavedCheckpoint) -> tuple[ObservedPod, ...]:
    """Return two running pods of which the first was created at second 600."""
    first, second = pods(acknowledged)
    return replace(first, created=later(600)), second


def decided_at(at: float, acknowledged: SavedCheckpoint) -> Record:
    """Return the Record after a pod has acknowledged a checkpoint at this second."""
    return decide(job(), running(), Observed(pods=pods(acknowledged)), later(at)).record


class Case(Struct):
    at: float
    record: Record = running()
    pods: tuple[ObservedPod, ...] = pods()
    job: Workload = job()
    want_reason: str = ""
    """Of the order in force; empty: there is none."""
    want_epoch: int | None = None
    want_step: int | None = None


CASES = {
    "interval not over yet: no order": Case(599),
    "interval over, with its jitter: an order": Case(640, want_reason="Interval", want_epoch=EPOCH + 640),
    "many intervals missed: one order": Case(9000, want_reason="Interval", want_epoch=EPOCH + 9000),
    "job without an interval: no order": Case(9000, job=job(replace(POLICY, interval=None))),
    "job without checkpoints: no order": Case(9000, job=job(None)),
    "job whose pods are not all there: no order": Case(
        9000, record=running(phase=Phase.RESTARTING), pods=pods()[:1]
    ),
    "order in force: no second one": Case(
        599, record=running(order=order()), want_reason="Interval", want_epoch=EPOCH
    ),
    "late order: another one when the next interval is over": Case(
        1300, record=running(order=order()), want_reason="Interval", want_epoch=EPOCH + 1300
    ),
    "clock set back: the number of an order still grows": Case(
        640,
        record=running(order=order(EPOCH + 5000), answered_epoch=EPOCH + 5000),
        want_reason="Interval",
        want_epoch=EPOCH + 5001,
    ),
    "checkpoint that nobody ordered: the interval starts again": Case(
        1000, pods=pods(saved(7, 500)), want_step=7
    ),
    "checkpoint that answers the order: no order is in force": Case(
        700, record=running(order=order()), pods=pods(saved(7, 650, EPOCH)), want_step=7
    ),
    "checkpoint that answers an earlier order: the order stays": Case(
        700,
        record=running(order=order()),
        pods=pods(saved(7, 650, EPOCH - 1)),
        want_reason="Interval",
        want_step=7,
    ),
    "two pods acknowledged different checkpoints: the later one counts": Case(
        100, pods=pods(saved(9, 90), saved(8, 50)), want_step=9
    ),
    "acknowledgement of an older checkpoint than the last: ignored": Case(
        100, record=running(saved=saved(9, 90)), pods=pods(saved(8, 50)), want_step=9
    ),
    "answer by a pod whose clock is behind: counts all the same": Case(
        100,
        record=running(order=order(), saved=saved(9, 90)),
        pods=pods(saved(10, 80, EPOCH)),
        want_step=10,
    ),
    "clock of the node an hour ahead: the next order is due an interval after it was acknowledged": Case(
        1300, record=decided_at(600, saved(7, 4200)), want_reason="Interval", want_step=7
    ),
    "clock of the node an hour ahead: not before": Case(
        1190, record=decided_at(600, saved(7, 4200)), want_step=7
    ),
    "recorded by an earlier version with a time to come: the interval starts now": Case(
        100, record=running(saved=saved(7, 4200)), want_step=7
    ),
    "after a node whose clock is ahead, one that is right: its checkpoint is newer": Case(
        700,
        record=decided_at(600, saved(7, 4200)),
        pods=pods(saved(8, 690), saved(7, 4200)),
        want_step=8,
    ),
    "acknowledgement of before from a clock that is ahead is still there: ignored": Case(
        710,
        record=running(saved=saved(8, 690)),
        pods=pods(saved(8, 690), saved(7, 4200)),
        want_step=8,
    ),
    "moved to a node whose clock is behind: its first checkpoint is newer": Case(
        700, record=running(saved=saved(7, 590)), pods=moved(saved(8, 90)), want_step=8
    ),
    "moved to a node whose clock is behind: its next checkpoint is newer": Case(
        720, record=running(saved=saved(8, 90)), pods=moved(saved(9, 110)), want_step=9
    ),
    "new pod finds an older checkpoint in the folder: ignored": Case(
        700, record=running(saved=saved(7, 590)), pods=moved(saved(6, 580)), want_step=7
    ),
    "pods of an earlier attempt with a clock that is ahead: those of this one count": Case(
        700,
        record=running(attempt=2, saved=saved(7, 590)),
        pods=(
            replace(pod(0, attempt=2, created=later(600)), saved=saved(5, 650)),
            replace(pod(1, attempt=1, terminating=True), saved=saved(8, 4200)),
        ),
        want_step=5,
    ),
    "active deadline is near: a last checkpoint is ordered": Case(
        1980,
        job=job(replace(POLICY, interval=None), limits=Limits(active_deadline=2000.0)),
        want_reason="DeadlineExceeded",
    ),
    "active deadline is near and the last checkpoint was quick: there is time left": Case(
        1980,
        job=job(replace(POLICY, interval=None), limits=Limits(active_deadline=2000.0)),
        record=running(saved=saved(5, 0)),
        want_step=5,
    ),
    "adaptive interval after losses: an order comes sooner": Case(
        200,
        job=job(replace(POLICY, adaptive=True)),
        record=running(saved=saved(5, 0), disruptions=4),
        want_reason="Interval",
        want_step=5,
    ),
    "adaptive interval without losses: the interval as it is": Case(
        200, job=job(replace(POLICY, adaptive=True)), record=running(saved=saved(5, 0)), want_step=5
    ),
}


def decided(case: Case) -> Plan:
    return decide(case.job, case.record, Observed(pods=case.pods), later(case.at))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_orders_and_the_last_good_checkpoint(case: Case) -> None:
    record = decided(case).record
    in_force = record.order_in_force
    assert (in_force.reason if in_force else "") == case.want_reason
    assert case.want_epoch is None or (in_force and in_force.epoch == case.want_epoch)
    assert (record.saved.step if record.saved else None) == case.want_step
    assert decode(encode(record)) == record


def test_checkpoint_of_a_clock_that_is_ahead_is_recorded_once_and_not_later_than_now() -> None:
    ahead = pods(saved(7, 4200))
    first = decided(Case(600, pods=ahead))
    assert first.record.saved
    assert first.record.saved.at == later(600)
    again = decided(Case(601, record=first.record, pods=ahead))
    assert (again.record, again.events) == (first.record, ())
    back = decided(Case(300, record=first.record, pods=ahead))
    assert back.record.saved
    assert back.record.saved.at == later(300), "the operator's clock was set back"
    assert not back.events


def test_late_order_is_reported_once_and_training_goes_on() -> None:
    plan = decided(Case(600, record=running(order=order())))
    assert [event.reason for event in plan.events] == ["CheckpointTimeout"]
    assert plan.events[0].message == "no checkpoint within 10 m after it was ordered (Interval)"
    assert not plan.actions
    again = decided(Case(601, record=plan.record))
    assert not again.events
    assert not again.actions


def test_each_checkpoint_is_an_event_and_not_a_line_of_history() -> None:
    plan = decided(Case(100, pods=pods(saved(9, 90))))
    assert [(event.reason, event.message) for event in plan.events] == [
        ("CheckpointCompleted", "step 9 saved in 2 s")
    ]
    assert not plan.record.history


def test_next_look_is_when_the_interval_is_over_or_the_order_is_late() -> None:
    waiting = decided(Case(100))
    assert waiting.requeue_at is not None
    assert later(603) <= waiting.requeue_at <= later(631)
    assert decided(Case(100, record=running(order=order()))).requeue_at == later(600)


class Ending(Struct):
    """Something that ends all pods: they are deleted after a checkpoint, or after the grace period."""

    steps: Sequence[tuple[float, tuple[ObservedPod, ...]]]
    """Times at which is decided, with the pods that there are."""
    record: Record = running()
    policy: CheckpointPolicy | None = POLICY
    want_deleted: Sequence[bool] = ()


ENDINGS = {
    "no acknowledgement: pods end after the grace period": Ending(
        [(0, pods()), (30, pods()), (60, pods())], want_deleted=[False, False, True]
    ),
    "acknowledgement of the order: pods end at once": Ending(
        [(0, pods()), (9, pods(saved(5, 8, EPOCH)))], want_deleted=[False, True]
    ),
    "checkpoint that does not answer the order: pods stay": Ending(
        [(0, pods()), (9, pods(saved(5, 8)))], want_deleted=[False, False]
    ),
    "pods end by themselves: not waited for": Ending(
        [(0, pods()), (9, tuple(replace(pod, phase="Failed") for pod in pods()))], want_deleted=[False, True]
    ),
    "job that does not run yet: pods end at once": Ending(
        [(0, pods())], running(phase=Phase.STARTING), want_deleted=[True]
    ),
    "job without checkpoints: pods end at once": Ending([(0, pods())], policy=None, want_deleted=[True]),
}


@pytest.mark.parametrize("what", ["suspended", "resized"])
@pytest.mark.parametrize("case", ENDINGS.values(), ids=ENDINGS.keys())
def test_what_ends_all_pods_waits_for_a_checkpoint(case: Ending, what: str) -> None:
    wanted = job(case.policy, replicas=2, suspended=True, generation=2)
    if what == "resized":
        rules = Rules(resize=ResizeMode.RESTART)
        wanted = job(case.policy, replicas=3, generation=2, rules=rules)
    record = case.record
    deleted = []
    for at, existing in case.steps:
        plan = decide(wanted, record, Observed(pods=existing), later(at))
        record = plan.record
        deleted.append(any(isinstance(action, DeletePod) for action in plan.actions))
    assert deleted == case.want_deleted


WITHDRAWN = {
    "suspension": (job(suspended=True, generation=2), job(generation=3)),
    "new size that restarts the job": (
        job(replicas=3, generation=2, rules=Rules(resize=ResizeMode.RESTART)),
        job(generation=3, rules=Rules(resize=ResizeMode.RESTART)),
    ),
}


@pytest.mark.parametrize(("wanted", "withdrawn"), WITHDRAWN.values(), ids=WITHDRAWN.keys())
def test_pods_that_were_asked_to_stop_end_although_their_cause_is_withdrawn(
    wanted: Workload, withdrawn: Workload
) -> None:
    first = decide(wanted, running(), Observed(pods=pods()), NOW)
    assert not first.actions
    waiting = decide(withdrawn, first.record, Observed(pods=pods()), later(5))
    assert waiting.record.order == first.record.order, "the same order, not another one"
    assert not waiting.actions
    acknowledged = Observed(pods=pods(saved(5, 8, EPOCH)))
    ended = decide(withdrawn, waiting.record, acknowledged, later(9))
    assert sum(isinstance(action, DeletePod) for action in ended.actions) == 2
    assert ended.record.attempt == 2
    assert (ended.record.restarts, ended.record.saved) == (0, saved(5, 8, EPOCH))
    resumed = decide(withdrawn, ended.record, Observed(), later(10))
    assert sum(isinstance(action, CreatePod) for action in resumed.actions) == 2
    assert resumed.record.attempt == 2


def test_times_beyond_the_calendar_are_waited_for_like_long_ones() -> None:
    spec = CheckpointSpec(store="file:///store", suspend_grace="9999999999d", interval="9999999999d")
    policy = checkpoint_policy(spec, "ns", "job", "0123456789")
    plan = decide(job(policy, suspended=True, generation=2), running(), Observed(pods=pods()), NOW)
    assert plan.record.order_in_force
    assert not decide(job(policy), running(), Observed(pods=pods()), later(9000)).record.order
