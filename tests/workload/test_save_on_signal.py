"""Tests that programs which save when they get SIGTERM get it in time, and that no save is claimed for them.

Nobody answers for such a program: what counts is when its pods are deleted and with which grace period, and
what the checkpoints that are seen afterwards allow to say.
"""

from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.trainingrun.conditions import conditions
from argosy.workload import checkpoint_messages
from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import Elastic, Limits, Phase, ResizeMode, RestartPolicy, RestartScope, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.plan import CreatePod
from argosy.workload.record import Record
from argosy.workload.usage_record import Activity, Usage
from tests.support import checkpointed_jobs
from tests.support.checkpointed_jobs import POLICY, SPOT, WORKERS, Life, deleted, running, steps, workers
from tests.support.workloads import NOW, later, pod, role, role_record

ON_SIGNAL = replace(POLICY, saves_on_signal=True)
PATIENT = replace(
    WORKERS,
    template={"spec": {"containers": [{"name": "main"}], "terminationGracePeriodSeconds": 300}},
)
EVICTED = {"terminating": True, "disrupted": True, "deletion_time": later(30)}
MOVED = (("SignalAndMove", "Signalled"),)
WAITS = (("Restart", ""),)

JOB = checkpointed_jobs.job(policy=ON_SIGNAL)
WHOLE = checkpointed_jobs.job(scope=RestartScope.JOB, policy=ON_SIGNAL)


class Case(Struct):
    want_deleted: Sequence[tuple[str, int | None]]
    want_steps: Sequence[tuple[str, str]] = MOVED
    announced: Sequence[Announcement] = (SPOT,)
    pods: Sequence[ObservedPod] = workers()
    record: Record = running()
    job: Workload = JOB


NOTICES = {
    "notice: its pod ends 5 s before the deadline": Case([("job-worker-1", 25)]),
    "long grace period: cut to what is left": Case(
        [("job-worker-1", 25)], job=checkpointed_jobs.job(PATIENT, policy=ON_SIGNAL)
    ),
    "deadline after the pod's own grace period: that": Case(
        [("job-worker-1", None)], announced=[replace(SPOT, deadline=later(90))]
    ),
    "no time for a checkpoint by order: it may do in what is left": Case(
        [("job-worker-1", 3)], announced=[replace(SPOT, deadline=later(8))]
    ),
    "three seconds left: the shortest grace period": Case(
        [("job-worker-1", 1)], announced=[replace(SPOT, deadline=later(3))]
    ),
    "deadline that has passed: its own grace period, as nobody knows how long the node stays": Case(
        [("job-worker-1", None)], announced=[replace(SPOT, deadline=later(-60))]
    ),
    "framework that restarts as a whole: all pods get it": Case(
        [("job-worker-0", None), ("job-worker-1", 25), ("job-worker-2", None)], job=WHOLE
    ),
    "two nodes end, restart as a whole: each pod ends before its own deadline": Case(
        [("job-worker-0", None), ("job-worker-1", 25), ("job-worker-2", 10)],
        MOVED * 2,
        [SPOT, replace(SPOT, node="n2", uid="u2", deadline=later(15))],
        job=WHOLE,
    ),
    "job that is not complete yet: its running pods get it": Case(
        [("job-worker-1", 25)], record=running(phase=Phase.RESTARTING), pods=workers()[:2]
    ),
    "pod that has not started: nothing to save": Case([], WAITS, pods=workers(phase="Pending")),
    "hint: nothing": Case([], [("None", "")], [replace(SPOT, cause=NoticeCause.CANDIDATE, deadline=None)]),
    "node that is off: nothing gets there": Case(
        [], WAITS, [replace(SPOT, cause=NoticeCause.OUT_OF_SERVICE, deadline=None)]
    ),
    "pods that are not replaced: left, because the job would fail at once": Case(
        [], WAITS, job=checkpointed_jobs.job(replace(WORKERS, restart=RestartPolicy.NEVER), policy=ON_SIGNAL)
    ),
    "pod that is evicted: it has got SIGTERM": Case([], announced=[], pods=workers(None, **EVICTED)),
    "pod that is evicted, restart as a whole: the others get SIGTERM too": Case(
        [("job-worker-0", None), ("job-worker-2", None)],
        announced=[],
        pods=workers(None, **EVICTED),
        job=WHOLE,
    ),
    "elastic role that can spare the pod: it leaves at once": Case(
        [("job-worker-1", 25)],
        [("ScaleIn", "Signalled")],
        job=checkpointed_jobs.job(replace(WORKERS, elastic=Elastic(2, 6)), policy=ON_SIGNAL),
    ),
}


@pytest.mark.parametrize("case", NOTICES.values(), ids=NOTICES.keys())
def test_which_pods_are_deleted_before_an_announced_end(case: Case) -> None:
    life = Life(case.job, case.record)
    plan = life.decide(0, case.pods, *case.announced)
    assert deleted(plan) == case.want_deleted
    assert tuple(steps(life.record)) == tuple(case.want_steps)
    assert life.record.order is None, "it would not be read"
    assert (life.record.restarts, life.record.finished_at) == (0, None)
    again = life.decide(1, case.pods, *case.announced)
    assert tuple(steps(life.record)) == tuple(case.want_steps)
    assert {name for name, _ in deleted(again)} <= {name for name, _ in case.want_deleted}


def test_pod_is_replaced_once_and_its_notice_is_one_event() -> None:
    life = Life(JOB)
    plan = life.decide(0, workers(), SPOT)
    messages = [event.message for event in plan.events if event.reason == "DisruptionNotice"]
    assert messages == [
        "n1 is being preempted (spot) by 12:00:30 UTC; sending SIGTERM to worker-1 before it is replaced"
    ]
    ending = workers(terminating=True)
    assert not life.decide(2, ending, SPOT).actions
    others = [existing for existing in workers() if existing.index != 1]
    created = life.decide(9, others, SPOT)
    assert [action for action in created.actions if isinstance(action, CreatePod)] == [
        CreatePod("worker", 1, 1, 1)
    ]
    moved = replace(pod(1, replacement=1, node="n1"), created=later(9))
    assert not deleted(life.decide(12, [*others, moved], SPOT)), (
        "a new pod on the same node is not moved again"
    )


def test_pod_that_starts_on_a_node_that_ends_gets_the_signal_when_it_runs() -> None:
    announced = replace(SPOT, deadline=None)
    life = Life(JOB)
    life.decide(0, workers(phase="Pending"), announced)
    assert deleted(life.decide(12, workers(), announced)) == [("job-worker-1", 13)]


def test_withdrawn_notice_leaves_the_move() -> None:
    life = Life(JOB)
    life.decide(0, workers(), SPOT)
    life.decide(2, workers(terminating=True))
    assert life.record.replacement("worker", 1) == 1


ENDINGS = {
    "suspended: all pods get SIGTERM at once": replace(JOB, suspended=True, generation=2),
    "new size that restarts the job: all pods get SIGTERM at once": replace(
        checkpointed_jobs.job(role(replicas=4, restart=RestartPolicy.ON_FAILURE), policy=ON_SIGNAL),
        rules=replace(JOB.rules, resize=ResizeMode.RESTART),
        generation=2,
    ),
    "active deadline: all pods get SIGTERM": replace(JOB, limits=Limits(active_deadline=1.0)),
}


@pytest.mark.parametrize("ended", ENDINGS.values(), ids=ENDINGS.keys())
def test_what_ends_all_pods_does_not_wait_for_a_checkpoint(ended: Workload) -> None:
    life = Life(ended)
    assert deleted(life.decide(1, workers())) == [(f"job-worker-{index}", None) for index in range(3)]
    assert life.record.order is None


def ack(step: int, at: float) -> SavedCheckpoint:
    return checkpointed_jobs.saved(step, at=at, epoch=0)


FIRST = ack(3, -60)


class Ending(Struct):
    """A single pod that gets SIGTERM at second 0, and its successor, which runs since second 10."""

    want: tuple[str, int | None, int | None, str]
    """Outcome, steps that the new pod started from and that were lost, message."""
    before: SavedCheckpoint | None = FIRST
    """The last checkpoint before the notice."""
    saved: SavedCheckpoint | None = None
    """The one that the old pod acknowledges before it has ended."""
    reached: int | None = 9
    """The last step that the old pod reports."""
    resumed: int | None = None
    """The step from which the new pod reports to have started."""
    later: SavedCheckpoint | None = None
    """The one that the new pod acknowledges."""


SAVED = "a checkpoint was saved after SIGTERM"
UNKNOWN = "nothing shows that the program saved after SIGTERM"
OUTCOMES = {
    "old pod acknowledges a new checkpoint and the new one starts from it: recovered": Ending(
        ("Recovered", 9, 0, f"{SAVED}; resumed from step 9"), saved=ack(9, 2), resumed=9
    ),
    "old pod acknowledges a new checkpoint of the same step: recovered": Ending(
        ("Recovered", 3, 0, f"{SAVED}; resumed from step 3"),
        saved=replace(ack(3, 2), digest="sha256:b"),
        resumed=3,
        reached=3,
    ),
    "old pod acknowledges one and the new one does not report: recovered": Ending(
        ("Recovered", None, None, f"{SAVED}; the last one is of step 9"), saved=ack(9, 2)
    ),
    "old pod ends too soon to acknowledge, and the new one starts from a newer checkpoint: recovered": Ending(
        ("Recovered", 9, 0, f"{SAVED}; resumed from step 9"), resumed=9
    ),
    "new pod starts from the checkpoint before: progress is lost": Ending(
        ("ProgressLost", 3, 6, f"{UNKNOWN}; resumed from step 3; 6 steps are lost"), resumed=3
    ),
    "new checkpoint could not be used: progress is lost": Ending(
        (
            "ProgressLost",
            3,
            6,
            f"{SAVED}; the last one is of step 9, but it could not be used: back to step 3; 6 steps are lost",
        ),
        saved=ack(9, 2),
        resumed=3,
    ),
    "program leaves files of its own only: nothing is claimed": Ending(
        ("Signalled", None, None, UNKNOWN), before=None
    ),
    "new pod does not report from which checkpoint it started: nothing is claimed": Ending(
        ("Signalled", None, None, f"{UNKNOWN}; the last one is of step 3")
    ),
    "new pod saves a checkpoint of its own: shows nothing about the old one": Ending(
        ("Signalled", None, None, f"{UNKNOWN}; the last one is of step 3"), later=ack(12, 20)
    ),
}


def lived(case: Ending) -> Record:
    one = role(replicas=1, restart=RestartPolicy.ON_FAILURE)
    roles = {"worker": role_record(Phase.RUNNING, size=1, created=1, phase_since=NOW)}
    usage = Usage(Activity.TRAINING, 1, since=later(-60))
    record = running(roles=roles, saved=case.before, usage=usage)
    life = Life(checkpointed_jobs.job(one, policy=ON_SIGNAL), record)
    old = replace(pod(0, node="n1", created=later(-100)), saved=case.before)
    life.decide(0, [old], SPOT)
    assert tuple(steps(life.record)) == MOVED
    ending = replace(old, terminating=True, saved=case.saved or case.before, training_step=case.reached)
    life.decide(3, [ending], SPOT)
    life.decide(5, [], SPOT)
    new = replace(pod(0, replacement=1, node="n2", created=later(5)), phase="Pending")
    life.decide(6, [new], SPOT)
    new = replace(new, phase="Running", resumed_step=case.resumed)
    for at in (10, 11):
        life.decide(at, [new], SPOT)
    for at in (21, 40):
        life.decide(at, [replace(new, saved=case.later)])
    return life.record


@pytest.mark.parametrize("case", OUTCOMES.values(), ids=OUTCOMES.keys())
def test_outcome_claims_a_checkpoint_only_if_one_is_seen(case: Ending) -> None:
    record = lived(case)
    [recovery] = record.recoveries
    message = checkpoint_messages.recovery(recovery)
    assert (recovery.outcome, recovery.restored_step, recovery.steps_lost, message) == case.want
    assert (recovery.cause, recovery.action) == ("Preempted", "SignalAndMove")


def test_condition_is_unknown_while_nothing_shows_what_was_lost() -> None:
    def shown(name: str) -> tuple[str, str]:
        stated = conditions([], lived(OUTCOMES[name]), keeps_checkpoints=True)
        return next((item.status, item.reason) for item in stated if item.type == "ProgressLost")

    assert shown("program leaves files of its own only: nothing is claimed") == ("Unknown", "Signalled")
    assert shown("new pod starts from the checkpoint before: progress is lost") == (
        "True",
        "CheckpointOutdated",
    )


def test_training_before_the_signal_is_lost_only_if_that_shows() -> None:
    def lost(name: str) -> float:
        record = lived(OUTCOMES[name])
        assert record.usage.in_doubt == 0
        return record.usage.seconds.get(Activity.LOST, 0.0)

    assert lost("new pod starts from the checkpoint before: progress is lost") > 0
    for name in OUTCOMES:
        if not name.endswith("progress is lost"):
            assert lost(name) == 0, name


def test_pod_that_a_user_deletes_has_got_the_signal_too() -> None:
    life = Life(WHOLE)
    ended = workers(terminating=True, deletion_time=later(30))
    life.decide(0, ended)
    assert [recovery.was_signalled for recovery in life.record.recoveries] == [True]


@pytest.mark.parametrize("changes", [{"exit_code": 1}, {"disrupted": True, "reason": "Evicted"}])
def test_pod_that_failed_or_was_killed_by_its_kubelet_has_got_no_signal(changes: dict[str, object]) -> None:
    life = Life(WHOLE)
    life.decide(0, workers(None, phase="Failed", **changes))
    assert [recovery.was_signalled for recovery in life.record.recoveries] == [False]
