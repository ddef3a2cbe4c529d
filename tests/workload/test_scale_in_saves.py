"""Tests that a checkpoint is saved once before replicas leave a role that is resized while it runs."""

from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import Elastic, Phase, Quantifier, RestartPolicy, RolePolicy, Rules, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from tests.support import checkpointed_jobs
from tests.support.checkpointed_jobs import EPOCH, Life
from tests.support.workloads import NOW, later, pod, role, role_record, workload

POLICY = CheckpointPolicy("file:///store/ns/job-uid", suspend_grace=60.0)
RULES = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),))
BOUNDS = Elastic(1, 8)
SIZE = 5
VICTIMS = {"worker": "3-4"}


def job(
    replicas: int = 3,
    bounds: Elastic | None = BOUNDS,
    policy: CheckpointPolicy | None = POLICY,
    generation: int = 2,
    coordinator: bool = False,
    **changes: object,
) -> Workload:
    workers = role(replicas=replicas, restart=RestartPolicy.ON_FAILURE, elastic=bounds)
    rules = replace(RULES, coordinators=("worker",) if coordinator else ())
    made = workload(workers, rules=rules, generation=generation)
    return replace(made, checkpoint=policy, **changes)


def running(**changes: object) -> Record:
    return checkpointed_jobs.running(SIZE, **changes)


def saved(at: float = 8, epoch: int = EPOCH, step: int = 40) -> SavedCheckpoint:
    return checkpointed_jobs.saved(step, at, epoch)


def pods(ack: SavedCheckpoint | None = None, **phases: str) -> list[ObservedPod]:
    """Return five pods, each on a node of its own; `worker_4="Failed"` is the phase of one."""
    existing = [
        pod(index, phases.get(f"worker_{index}", "Running"), node=f"n{index}") for index in range(SIZE)
    ]
    return [replace(existing[0], saved=ack), *existing[1:]]


def running_life(wanted: Workload | None = None, record: Record | None = None) -> Life:
    return Life(wanted or job(), record or running())


def members(life: Life) -> list[int]:
    return list(life.record.role("worker").members)


def replaced(life: Life) -> list[int]:
    return sorted(life.record.role("worker").replacements)


def outcomes(life: Life) -> list[tuple[str, str, bool, str, int | None]]:
    found = life.record.recoveries
    return [(it.cause, it.action, it.was_saved, it.outcome, it.steps_lost) for it in found]


def deleted(plan: Plan) -> list[str]:
    return [name for name, _ in checkpointed_jobs.deleted(plan)]


def asked() -> Life:
    """Return a job of five workers that is scaled to three, and was ordered to save at NOW."""
    life = running_life()
    assert not deleted(life.decide(0, pods()))
    return life


def test_smaller_size_orders_a_checkpoint_and_nothing_leaves_before_it_is_saved() -> None:
    life = running_life()
    plan = life.decide(0, pods())
    order = life.record.order_in_force
    assert order
    assert (order.id, order.reason, order.by, order.stop) == ("resize/2", "Resized", later(60), VICTIMS)
    assert not plan.actions
    assert plan.requeue_at == later(60)
    assert life.record.waiting
    assert life.record.waiting.reason == "SavingCheckpoint"
    assert members(life) == [0, 1, 2, 3, 4]
    again = life.decide(5, pods())
    assert (again.actions, again.events) == ((), ())
    assert life.record.order_in_force == order, "one order"


def test_replicas_leave_when_the_checkpoint_is_saved() -> None:
    life = asked()
    plan = life.decide(9, pods(saved()))
    assert deleted(plan) == ["job-worker-3", "job-worker-4"]
    assert members(life) == [0, 1, 2]
    assert [event.reason for event in plan.events] == ["CheckpointCompleted", "Resized"]
    assert (life.record.waiting, life.record.order_in_force, life.record.scale_in) == (None, None, None)
    assert (life.record.restarts, life.record.disruptions, life.record.attempt) == (0, 0, 1)
    life.decide(10, pods(saved())[:3])
    assert outcomes(life) == [("Resized", "ScaleIn", True, "Recovered", None)]
    assert not deleted(life.decide(11, pods(saved())[:3]))


def test_checkpoint_that_is_late_is_not_waited_for() -> None:
    life = asked()
    assert not deleted(life.decide(59, pods()))
    plan = life.decide(60, pods())
    assert deleted(plan) == ["job-worker-3", "job-worker-4"]
    assert "CheckpointTimeout" in [event.reason for event in plan.events]
    life.decide(61, pods()[:3])
    assert outcomes(life) == [("Resized", "ScaleIn", False, "ProgressLost", None)]


def test_steps_since_the_checkpoint_are_lost_if_no_other_one_is_saved() -> None:
    life = running_life(record=running(saved=saved(-50, 0, step=40)))
    reported = [replace(item, training_step=70 if item.index == 0 else None) for item in pods()]
    life.decide(0, reported)
    life.decide(60, reported)
    life.decide(61, reported[:3])
    assert outcomes(life) == [("Resized", "ScaleIn", False, "ProgressLost", 30)]
    assert life.record.steps_lost == 30


def test_no_step_is_lost_if_it_was_saved() -> None:
    life = asked()
    reported = [replace(item, training_step=38) for item in pods(saved(step=40))]
    life.decide(9, reported)
    life.decide(10, reported[:3])
    assert outcomes(life) == [("Resized", "ScaleIn", True, "Recovered", 0)]


class Now(Struct):
    """A new size that is followed at once."""

    job: Workload = job()
    record: Record = running()
    pods: Sequence[ObservedPod] = tuple(pods())
    want: Sequence[int] = (0, 1, 2)


AT_ONCE = {
    "job without checkpoints: at once": Now(job(policy=None)),
    "job that does not run: at once": Now(record=running(phase=Phase.RESTARTING)),
    "replicas whose pods do not run: at once": Now(pods=pods(worker_3="Pending", worker_4="Pending")),
    "more replicas: at once": Now(job(6), want=(0, 1, 2, 3, 4, 5)),
    "fewer than the role has for lack of capacity, but not fewer than it runs with: at once": Now(
        record=running(
            roles={"worker": replace(running().role("worker"), members=role_record(size=3).members)}
        ),
        pods=pods()[:3],
    ),
}


@pytest.mark.parametrize("case", AT_ONCE.values(), ids=AT_ONCE.keys())
def test_no_checkpoint_is_ordered(case: Now) -> None:
    life = running_life(case.job, case.record)
    life.decide(0, case.pods)
    assert life.record.order is None
    assert members(life) == list(case.want)


def test_role_that_is_not_elastic_saves_too() -> None:
    life = running_life(job(bounds=None))
    life.decide(0, pods())
    assert life.record.order_in_force
    assert life.record.order_in_force.stop == VICTIMS
    assert deleted(life.decide(9, pods(saved()))) == ["job-worker-3", "job-worker-4"]


def test_replicas_that_were_asked_leave_although_others_would_cost_less_by_now() -> None:
    life = asked()
    cheap = [replace(item, deletion_cost=-5 if item.index == 1 else 0) for item in pods(saved())]
    life.decide(9, cheap)
    assert members(life) == [0, 1, 2]


class Edit(Struct):
    """Another size while the checkpoint is saved."""

    replicas: int
    want_members: Sequence[int]
    want_replaced: Sequence[int] = ()
    want_deleted: Sequence[str] = ("job-worker-3", "job-worker-4")


EDITS = {
    "even smaller: one more leaves": Edit(
        2, [0, 1], want_deleted=["job-worker-2", "job-worker-3", "job-worker-4"]
    ),
    "less small: one leaves, and one that stopped is replaced": Edit(4, [0, 1, 2, 3], [3]),
    "size of before: those that stopped are replaced": Edit(5, [0, 1, 2, 3, 4], [3, 4]),
    "larger than before: those that stopped are replaced, and one is added": Edit(
        6, [0, 1, 2, 3, 4, 5], [3, 4]
    ),
}


@pytest.mark.parametrize("case", EDITS.values(), ids=EDITS.keys())
def test_another_size_while_the_checkpoint_is_saved(case: Edit) -> None:
    life = asked()
    life.wanted = job(case.replicas, generation=3)
    assert not deleted(life.decide(5, pods()))
    assert life.record.order_in_force
    assert (life.record.order_in_force.epoch, life.record.order_in_force.by) == (EPOCH, later(60))
    plan = life.decide(9, pods(saved()))
    assert members(life) == list(case.want_members)
    assert replaced(life) == list(case.want_replaced), "a program that was asked to stop does not train on"
    assert deleted(plan) == list(case.want_deleted)
    assert (life.record.restarts, life.record.disruptions) == (0, len(case.want_replaced))
    assert life.record.scale_in is None


def test_replicas_that_end_by_themselves_after_they_were_asked_have_not_succeeded() -> None:
    life = asked()
    life.decide(9, pods(saved(), worker_3="Succeeded", worker_4="Succeeded"))
    assert members(life) == [0, 1, 2]
    assert not life.record.role("worker").succeeded_indexes
    assert life.record.restarts == 0


class Ended(Struct):
    """How a replica ends that was asked to save and leave, while the other one still saves."""

    job: Workload
    phase: str
    exit_code: int | None = None


def with_workers(
    restart: RestartPolicy, policy: RolePolicy | None = None, *, elastic: bool = True
) -> Workload:
    workers = role(restart=restart, policy=policy, elastic=BOUNDS if elastic else None)
    return replace(job(), roles={"worker": workers})


ENDED = {
    "killed by SIGTERM: no restart is used": Ended(job(), "Failed", 143),
    "killed by SIGTERM, in a role that needs all its pods: still waited for": Ended(
        with_workers(RestartPolicy.ON_FAILURE, elastic=False), "Failed", 143
    ),
    "fails, in a role without restarts: the role has not failed": Ended(
        with_workers(RestartPolicy.NEVER, RolePolicy(failed=Quantifier.ANY)), "Failed", 1
    ),
    "succeeds, in a role that succeeds with one pod: the role has not succeeded": Ended(
        with_workers(RestartPolicy.ON_FAILURE, RolePolicy(succeeded=Quantifier.ANY)), "Succeeded", 0
    ),
}


@pytest.mark.parametrize("case", ENDED.values(), ids=ENDED.keys())
def test_one_of_two_replicas_that_were_asked_ends_before_the_other_one(case: Ended) -> None:
    life = running_life(case.job)
    life.decide(0, pods())
    ended = [pod(4, case.phase, exit_code=case.exit_code, node="n4")]
    for at in (5, 6):
        plan = life.decide(at, [*pods()[:4], *ended])
        assert not plan.actions
        assert members(life) == [0, 1, 2, 3, 4]
        assert (life.record.phase, life.record.role("worker").phase) == (Phase.RUNNING, Phase.RUNNING)
    assert life.record.order_in_force, "the other one still saves"
    life.decide(9, [*pods(saved())[:4], *ended])
    assert members(life) == [0, 1, 2]
    assert (life.record.restarts, life.record.attempt, replaced(life)) == (0, 1, [])


def test_job_that_stops_running_does_not_wait() -> None:
    life = running_life(job(bounds=Elastic(3, 8)))
    life.decide(0, pods())
    assert life.record.order_in_force
    few = pods(worker_0="Failed", worker_1="Failed", worker_2="Failed")
    life.decide(5, few)
    assert members(life) == [0, 1, 2, 3, 4]
    life.decide(6, few)
    assert life.record.phase is Phase.RESTARTING
    assert members(life) == [0, 1, 2]
    assert life.record.scale_in is None


def test_suspension_while_the_checkpoint_is_saved_ends_all_pods_once() -> None:
    life = asked()
    life.wanted = job(suspended=True, generation=3)
    assert not deleted(life.decide(5, pods()))
    assert life.record.order_in_force
    assert life.record.order_in_force.id == "suspend/3"
    epoch = life.record.order_in_force.epoch
    assert len(deleted(life.decide(9, pods(saved(epoch=epoch))))) == SIZE
    assert life.record.scale_in is None
    life.wanted = job(generation=4)
    life.decide(20, ())
    assert members(life) == [0, 1, 2]


SPOT = Announcement("n4", "u4", NoticeCause.PREEMPTED, "spot", later(30))


def test_notice_while_the_checkpoint_is_saved_shares_the_order_and_its_earlier_deadline() -> None:
    life = asked()
    life.decide(1, pods(), SPOT)
    order = life.record.order_in_force
    assert order
    assert (order.epoch, order.by) == (EPOCH, later(25))
    life.decide(9, pods(saved()), SPOT)
    assert members(life) == [0, 1, 2]
    assert not life.record.role("worker").joining, "nobody takes the place of a replica that leaves anyway"
    assert replaced(life) == []


def test_new_size_while_a_notice_saves_shares_its_order() -> None:
    life = running_life(job(SIZE, generation=1))
    life.decide(0, pods(), replace(SPOT, node="n1", uid="u1"))
    life.wanted = job(3)
    life.decide(1, pods(), replace(SPOT, node="n1", uid="u1"))
    order = life.record.order_in_force
    assert order
    assert order.epoch == EPOCH
    assert order.stop == {"worker": "1,4"}, "first the one on the node that ends"
    life.decide(9, pods(saved()), replace(SPOT, node="n1", uid="u1"))
    assert members(life) == [0, 2, 3]
    assert life.record.scale_in is None


def test_lost_replica_is_not_waited_for_and_takes_those_along_that_were_asked() -> None:
    """With multiples of two a lost pod shrinks the role at once."""
    bounds = Elastic(2, 8, 2)
    last = role_record(Phase.RUNNING, size=6, created=6, phase_since=NOW)
    life = running_life(job(4, bounds), running(roles={"worker": last}))
    six = [*pods(), pod(5, node="n5")]
    life.decide(0, six)
    assert life.record.order_in_force
    assert life.record.order_in_force.stop == {"worker": "4-5"}
    life.decide(1, [item for item in six if item.index != 1])
    assert members(life) == [0, 2, 3, 4], "at once, and first one that was asked"
    life.decide(9, [replace(six[0], saved=saved()), *six[1:5]])
    assert members(life) == [0, 2, 3, 4]
    assert replaced(life) == [4], "it was asked to stop"


def test_coordinator_is_never_asked_to_leave() -> None:
    life = running_life(job(1, coordinator=True))
    life.decide(0, pods())
    assert life.record.order_in_force
    assert life.record.order_in_force.stop == {"worker": "1-4"}


def test_pods_that_wait_for_capacity_are_given_up_when_the_role_shall_get_smaller() -> None:
    waiting = role_record(Phase.RUNNING, size=4, created=4, phase_since=NOW)
    waiting = replace(waiting, declared=5, joining=role_record(size=5).members - waiting.members)
    life = running_life(job(3), running(roles={"worker": waiting}))
    life.decide(0, pods(worker_4="Pending"))
    assert life.record.order_in_force
    assert life.record.order_in_force.stop == {"worker": "3"}
    life.decide(1, pods())
    assert members(life) == [0, 1, 2, 3], "it does not join"
    life.decide(9, pods(saved()))
    assert members(life) == [0, 1, 2]
