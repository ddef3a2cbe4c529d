"""Tests that a job with checkpoints saves one when losses are announced, and is then moved exactly once."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import Apply
from argosy.workload.announcements import Announcement, NoticeCause, NoticeRules, find_announcement
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.model import Elastic, Phase, RestartPolicy, RestartScope, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.plan import CreatePod, Plan
from argosy.workload.record import Record
from argosy.workload.saves import INTERVAL_ID
from tests.support.checkpointed_jobs import (
    EPOCH,
    POLICY,
    SPOT,
    WORKERS,
    Life,
    deleted,
    job,
    running,
    saved,
    steps,
    workers,
)
from tests.support.workloads import NOW, later, pod


def test_notice_orders_a_checkpoint_and_nothing_else_happens_before_it_is_saved() -> None:
    life = Life(job())
    plan = life.decide(0, workers(), SPOT)
    order = life.record.order_in_force
    assert order
    assert (order.epoch, order.reason, order.by) == (EPOCH, "Preempted", later(25))
    assert order.stop == {"worker": "1"}
    assert steps(life.record) == [("SaveAndMove", "Saving")]
    assert not plan.actions
    assert plan.requeue_at == later(25)
    assert [event.reason for event in plan.events] == ["DisruptionNotice"]
    assert "saving a checkpoint before worker-1 is replaced" in plan.events[0].message
    assert not life.decide(1, workers(), SPOT).events


def test_saved_checkpoint_moves_the_noticed_pod_once() -> None:
    life = Life(job())
    life.decide(0, workers(), SPOT)
    plan = life.decide(5, workers(saved()), SPOT)
    assert deleted(plan) == [("job-worker-1", 20)], "it ends before the deadline"
    assert steps(life.record) == [("SaveAndMove", "Saved")]
    assert (life.record.attempt, life.record.replacement("worker", 1)) == (1, 1)
    assert (life.record.restarts, life.record.disruptions) == (0, 1)
    gone = [existing for existing in workers(saved()) if existing.index != 1]
    created = life.decide(6, gone, SPOT)
    assert [action for action in created.actions if isinstance(action, CreatePod)] == [
        CreatePod("worker", 1, 1, 1)
    ]
    moved = replace(pod(1, replacement=1, node="n1"), created=later(6))
    again = life.decide(8, [*gone, moved], SPOT)
    assert not again.actions, "a new pod on the same node is not moved again"
    assert life.record.replacement("worker", 1) == 1


def test_framework_that_restarts_as_a_whole_is_moved_as_a_whole() -> None:
    life = Life(job(scope=RestartScope.JOB))
    life.decide(0, workers(), SPOT)
    order = life.record.order
    assert order
    assert order.stop == {"worker": "0-2"}
    plan = life.decide(5, workers(saved()), SPOT)
    assert life.record.attempt == 2
    assert deleted(plan) == [("job-worker-0", None), ("job-worker-1", 20), ("job-worker-2", None)]
    assert life.record.order_in_force is None, "new pods are not ordered to save"
    assert life.decide(6, workers(saved()), SPOT).record.attempt == 2


def test_program_that_ends_after_it_has_saved_is_replaced_and_has_not_succeeded() -> None:
    life = Life(job(scope=RestartScope.JOB))
    life.decide(0, workers(), SPOT)
    ended = [replace(existing, phase="Succeeded", exit_code=0) for existing in workers(saved())]
    life.decide(5, ended, SPOT)
    assert life.record.finished_at is None
    assert life.record.attempt == 2


class Case(Struct):
    announced: Announcement = SPOT
    pods: tuple[ObservedPod, ...] = workers()
    record: Record = running()
    job: Workload = job()
    want: tuple[str, str] = ("Restart", "")


NO_ORDER = {
    "deadline before a first checkpoint can be saved: replaced when lost": Case(
        replace(SPOT, deadline=later(24))
    ),
    "deadline that has passed: replaced when lost": Case(replace(SPOT, deadline=later(-3600))),
    "node that is off: replaced when lost": Case(replace(SPOT, cause=NoticeCause.OUT_OF_SERVICE)),
    "hint: nothing": Case(replace(SPOT, cause=NoticeCause.CANDIDATE, deadline=None), want=("None", "")),
    "job that does not run yet: replaced when lost": Case(record=running(phase=Phase.STARTING)),
    "job without checkpoints: replaced when lost": Case(job=replace(job(), checkpoint=None)),
}


@pytest.mark.parametrize("case", NO_ORDER.values(), ids=NO_ORDER.keys())
def test_no_checkpoint_is_ordered(case: Case) -> None:
    life = Life(case.job, case.record)
    plan = life.decide(0, case.pods, case.announced)
    assert life.record.order is None
    assert steps(life.record) == [case.want]
    assert not deleted(plan)


FAR_DEADLINES = {
    "time zero of Go, which is no deadline that can be kept": ("0001-01-01T00:00:00Z", ("Restart", "")),
    "last second of the calendar": ("9999-12-31T23:59:59Z", ("SaveAndMove", "Saving")),
}


@pytest.mark.parametrize(("deadline", "want"), FAR_DEADLINES.values(), ids=FAR_DEADLINES.keys())
def test_deadline_at_an_end_of_the_calendar_is_handled(deadline: str, want: tuple[str, str]) -> None:
    node = Node(ObjectMeta(name="n1", uid="u1", annotations={labels.TERMINATION_DEADLINE: deadline}))
    announced = find_announcement(node, NoticeRules())
    assert announced is not None
    life = Life(job())
    for at in (0, 5, 60):
        life.decide(at, workers(), announced)
    assert steps(life.record) == [want]


@pytest.mark.parametrize("written", ["soon", "1893499230", "2030-01-01T12:00:30", ""])
def test_deadline_that_cannot_be_read_is_half_a_minute_after_it_was_noticed(written: str) -> None:
    node = Node(ObjectMeta(name="n1", uid="u1", annotations={labels.TERMINATION_DEADLINE: written}))
    announced = find_announcement(node, NoticeRules())
    assert announced is not None
    life = Life(job())
    for at in (0, 5, 20):
        life.decide(at, workers(), announced)
        [notice] = life.record.notices
        assert notice.deadline == later(30), "it does not move"
    assert steps(life.record) == [("SaveAndMove", "Saving")]
    life.decide(25, workers(), announced)
    assert steps(life.record) == [("Restart", "Missed")]


def test_notice_while_a_checkpoint_is_saved_by_interval_asks_for_one_more() -> None:
    interval = SaveOrder(EPOCH - 5, "interval", "Interval", later(-5), later(595))
    life = Life(job(), running(order=interval))
    life.decide(0, workers(), SPOT)
    assert life.record.order_in_force
    assert (life.record.order_in_force.epoch, life.record.order_in_force.reason) == (EPOCH, "Preempted")
    plan = life.decide(3, workers(saved(4, at=2, epoch=EPOCH - 5)), SPOT)
    assert not deleted(plan), "that checkpoint is of before the notice"
    assert life.record.saved
    assert life.record.saved.step == 4
    assert [name for name, _ in deleted(life.decide(6, workers(saved(5, at=5)), SPOT))] == ["job-worker-1"]


def test_notice_while_a_job_starts_is_answered_by_a_checkpoint_once_it_runs() -> None:
    starting = running(phase=Phase.RESTARTING)
    pods = workers()
    life = Life(job(), starting)
    announced = replace(SPOT, cause=NoticeCause.MAINTENANCE, deadline=None)
    life.decide(0, [pods[0], pods[1], replace(pods[2], phase="Pending")], announced)
    assert steps(life.record) == [("Restart", "")]
    life.decide(200, pods, announced)
    life.decide(201, pods, announced)
    assert steps(life.record) == [("SaveAndMove", "Saving")]
    assert life.record.order_in_force
    assert life.record.order_in_force.by == later(595), "the deadline counts from the first notice"
    life.decide(595, pods, announced)
    assert steps(life.record) == [("Restart", "Missed")]
    life.decide(599, pods, announced)
    assert steps(life.record) == [("Restart", "Missed")], "it is asked once"


def test_notice_while_a_job_starts_and_ends_too_soon_is_answered_by_a_restart() -> None:
    pods = workers()
    life = Life(job(), running(phase=Phase.RESTARTING))
    life.decide(0, [pods[0], pods[1], replace(pods[2], phase="Pending")], SPOT)
    life.decide(8, pods, SPOT)
    life.decide(9, pods, SPOT)
    assert steps(life.record) == [("Restart", "")]
    assert life.record.order is None


def test_short_notice_is_enough_if_the_last_checkpoint_was_quick() -> None:
    short = replace(SPOT, deadline=later(9))
    quick = Life(job(), running(saved=saved(seconds=2.0, epoch=0)))
    quick.decide(0, workers(), short)
    assert steps(quick.record) == [("SaveAndMove", "Saving")]
    slow = Life(job(), running(saved=saved(seconds=3.0, epoch=0)))
    slow.decide(0, workers(), short)
    assert steps(slow.record) == [("Restart", "")]


def test_missed_checkpoint_leaves_the_pods_to_the_restart_policy() -> None:
    life = Life(job())
    life.decide(0, workers(), SPOT)
    plan = life.decide(25, workers(), SPOT)
    assert steps(life.record) == [("Restart", "Missed")]
    assert not deleted(plan)
    assert [event.reason for event in plan.events] == ["CheckpointTimeout"]
    late = life.decide(27, workers(saved(at=26)), SPOT)
    assert not deleted(late)
    assert life.record.saved
    assert late.requeue_at == later(30)


def test_pods_that_were_asked_to_stop_are_replaced_if_their_node_stays() -> None:
    life = Life(job())
    life.decide(0, workers(), SPOT)
    assert not deleted(life.decide(25, workers(), SPOT))
    plan = life.decide(30, workers(), SPOT)
    assert [name for name, _ in deleted(plan)] == ["job-worker-1"]
    assert steps(life.record) == [("Restart", "Stayed")]
    assert not deleted(life.decide(31, (workers()[0], workers()[2]), SPOT))
    assert life.record.restarts == 0


def test_pod_that_is_not_replaced_is_not_asked_to_stop() -> None:
    life = Life(job(replace(WORKERS, restart=RestartPolicy.NEVER), RestartScope.JOB))
    life.decide(0, workers(), SPOT)
    assert life.record.order
    assert life.record.order.stop == {}
    assert not deleted(life.decide(5, workers(saved()), SPOT))


WITHDRAWN = {
    "checkpoint saved: its pods are replaced": (5, saved()),
    "checkpoint late: its pods are replaced": (25, None),
}


@pytest.mark.parametrize(("at", "ack"), WITHDRAWN.values(), ids=WITHDRAWN.keys())
def test_pods_that_were_asked_to_stop_are_replaced_although_the_notice_is_withdrawn(
    at: float, ack: SavedCheckpoint | None
) -> None:
    life = Life(job())
    life.decide(0, workers(), SPOT)
    assert not deleted(life.decide(2, workers()))
    plan = life.decide(at, workers(ack))
    assert [name for name, _ in deleted(plan)] == ["job-worker-1"]
    assert life.record.replacement("worker", 1) == 1
    assert life.record.restarts == 0


def test_withdrawn_notice_moves_no_pod_that_was_not_asked_to_stop() -> None:
    life = Life(job(replace(WORKERS, restart=RestartPolicy.NEVER), RestartScope.JOB))
    life.decide(0, workers(), SPOT)
    life.decide(2, workers())
    assert not deleted(life.decide(5, workers(saved())))


def test_second_notice_shares_the_order_of_the_first() -> None:
    life = Life(job())
    life.decide(0, workers(), SPOT)
    life.decide(1, workers(), SPOT, replace(SPOT, node="n2", uid="u2", deadline=later(40)))
    assert life.record.order_in_force
    assert (life.record.order_in_force.epoch, life.record.order_in_force.stop) == (EPOCH, {"worker": "1-2"})
    plan = life.decide(5, workers(saved()), SPOT, replace(SPOT, node="n2", uid="u2", deadline=later(40)))
    assert [name for name, _ in deleted(plan)] == ["job-worker-1", "job-worker-2"]


def test_pod_that_takes_the_place_of_one_that_did_not_save_in_time_is_not_asked_to_stop() -> None:
    life = Life(job())
    for at in (0, 25, 30):
        life.decide(at, workers(), SPOT)
    plan = life.decide(31, (workers()[0], workers()[2]))
    assert [action for action in plan.actions if isinstance(action, CreatePod)] == [
        CreatePod("worker", 1, 1, 1)
    ]
    order = life.record.order_in_force
    assert order, "a checkpoint is still welcome"
    assert order.late
    assert order.stop == {}, "nobody would replace the new pod when it has stopped"


def test_pod_that_is_created_again_meanwhile_is_not_asked_to_stop() -> None:
    life = Life(job())
    other = replace(SPOT, node="n2", uid="u2")
    life.decide(0, workers(), SPOT, other)
    life.decide(2, (workers()[0], workers()[2]), SPOT, other)
    assert life.record.order_in_force
    assert life.record.order_in_force.stop == {"worker": "2"}
    again = replace(pod(1, node="n3"), created=later(2))
    plan = life.decide(9, (*workers(saved())[::2], again), SPOT, other)
    assert [name for name, _ in deleted(plan)] == ["job-worker-2"]


def test_pod_that_an_earlier_version_has_replaced_is_not_asked_to_stop_by_the_next_order() -> None:
    before = SaveOrder(EPOCH, "node/u1", "Preempted", NOW, later(25), {"worker": "1"})
    record = running(order=before, answered_epoch=EPOCH, saved=saved())
    life = Life(job(policy=replace(POLICY, interval=60.0)), record)
    life.decide(600, workers())
    assert life.record.order_in_force
    assert life.record.order_in_force.id == INTERVAL_ID
    assert life.record.order_in_force.stop == {}, "nobody would replace it"


def test_evicted_pod_is_asked_to_save_within_its_grace_period() -> None:
    life = Life(job())
    evicted = {"terminating": True, "disrupted": True, "deletion_time": later(40)}
    life.decide(0, workers(None, **evicted, disruption_reason="EvictionByEvictionAPI"))
    assert steps(life.record) == [("SaveAndMove", "Saving")]
    assert life.record.notices[0].cause == "Evicted"


def test_elastic_role_leaves_the_node_after_the_checkpoint() -> None:
    elastic = replace(WORKERS, elastic=Elastic(2, 6))
    life = Life(job(elastic))
    plan = life.decide(0, workers(), SPOT)
    assert steps(life.record) == [("ScaleIn", "Saving")]
    assert not plan.actions
    plan = life.decide(5, workers(saved()), SPOT)
    assert steps(life.record) == [("ScaleIn", "Saved")]
    assert list(life.record.role("worker").wanted) == [0, 2, 3]
    assert [name for name, _ in deleted(plan)] == ["job-worker-1"]


def test_preempted_pod_of_an_elastic_role_is_recorded_once_however_long_it_takes_to_end() -> None:
    life = Life(job(replace(WORKERS, elastic=Elastic(2, 6))))
    preempted = {"terminating": True, "disrupted": True, "disruption_reason": "PreemptionByScheduler"}
    for at in (0, 31, 32):
        life.decide(at, workers(None, **preempted, deletion_time=later(30)))
    assert [(entry.cause, entry.index) for entry in life.record.restart_history] == [("Preempted", 1)]


def test_elastic_role_leaves_the_node_also_without_a_checkpoint() -> None:
    life = Life(job(replace(WORKERS, elastic=Elastic(2, 6))))
    life.decide(0, workers(), SPOT)
    life.decide(25, workers(), SPOT)
    assert steps(life.record) == [("ScaleIn", "Missed")]
    assert list(life.record.role("worker").wanted) == [0, 2, 3]


DRAIN = Announcement("n1", "u1", NoticeCause.DRAINED, "cordon", None)


def budget(plan: Plan) -> list[object]:
    """Return `minAvailable` of the PodDisruptionBudget, if the plan writes it."""
    return [
        action.child.body["spec"]["minAvailable"]  # type: ignore[index]  # as it is written
        for action in plan.actions
        if isinstance(action, Apply) and action.child.name == "job-trainingrun-checkpoint"
    ]


def drained(scope: RestartScope = RestartScope.POD) -> Life:
    """Return a job that holds evictions back and has been ordered to save, because its node is drained."""
    held = replace(job(scope=scope), checkpoint=replace(POLICY, holds_evictions=True))
    life = Life(held)
    assert budget(life.decide(0, workers(), DRAIN)) == [3]
    assert life.record.order
    assert life.record.order.by == later(595)
    return life


def test_budget_opens_when_the_checkpoint_is_saved_and_the_eviction_moves_the_pod() -> None:
    life = drained()
    plan = life.decide(5, workers(saved()), DRAIN)
    assert budget(plan) == [0]
    assert steps(life.record) == [("SaveAndMove", "Released")]
    assert not deleted(plan), "a drain would evict its successor of the same name"
    evicted = {"terminating": True, "disrupted": True, "deletion_time": later(40)}
    life.decide(9, workers(saved(), **evicted, disruption_reason="EvictionByEvictionAPI"), DRAIN)
    assert steps(life.record) == [("SaveAndMove", "Saved")]
    assert life.record.order_in_force is None, "the eviction asks for no second checkpoint"
    gone = [existing for existing in workers(saved()) if existing.index != 1]
    plan = life.decide(12, gone, DRAIN)
    assert [action.index for action in plan.actions if isinstance(action, CreatePod)] == [1]


def test_pod_that_nobody_evicts_is_moved_all_the_same() -> None:
    life = drained()
    assert life.decide(5, workers(saved()), DRAIN).requeue_at == later(35)
    assert deleted(life.decide(35, workers(saved()), DRAIN)) == [("job-worker-1", None)]


def test_pod_that_waits_for_its_eviction_is_still_asked_to_stop_by_the_next_order() -> None:
    life = drained()
    life.decide(5, workers(saved()), DRAIN)
    life.decide(6, workers(saved()), DRAIN, replace(SPOT, node="n2", uid="u2", deadline=later(60)))
    assert life.record.order_in_force
    assert life.record.order_in_force.epoch > EPOCH
    assert life.record.order_in_force.stop == {"worker": "1-2"}


def test_eviction_moves_the_whole_job_if_it_restarts_as_a_whole() -> None:
    life = drained(RestartScope.JOB)
    life.decide(5, workers(saved()), DRAIN)
    evicted = {"terminating": True, "disrupted": True, "deletion_time": later(40)}
    life.decide(9, workers(saved(), **evicted, disruption_reason="EvictionByEvictionAPI"), DRAIN)
    assert life.record.attempt == 2
    assert life.record.recoveries[0].was_saved


def test_budget_opens_when_the_checkpoint_is_late() -> None:
    life = drained()
    assert budget(life.decide(595, workers(), DRAIN)) == [0]


def test_budget_is_open_while_no_checkpoint_can_be_saved() -> None:
    held = replace(job(), checkpoint=replace(POLICY, holds_evictions=True))
    assert budget(Life(held, running(phase=Phase.STARTING)).decide(0, workers()[:1])) == [0]
