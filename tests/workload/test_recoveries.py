"""Tests what is recorded of losses of pods of a job with checkpoints: cause, checkpoint and outcome."""

from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import MAX_RECOVERIES, SavedCheckpoint
from argosy.workload.decide import decide
from argosy.workload.model import Limits, RestartPolicy, RestartScope, Rules, Workload
from argosy.workload.notice_response import find_notices
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from tests.support import checkpointed_jobs
from tests.support.checkpointed_jobs import EPOCH, running
from tests.support.workloads import later, pod, role, workload

SPOT = Announcement("n0", "u0", NoticeCause.PREEMPTED, "spot", later(30))
RULES = Rules(failed_when=(("worker",),), restart_scope=RestartScope.JOB)


def job(**changes: object) -> Workload:
    made = workload(
        role(replicas=1, restart=RestartPolicy.ON_FAILURE), rules=RULES, limits=Limits(restarts=1)
    )
    return replace(made, checkpoint=CheckpointPolicy("file:///store/ns/job-uid"), **changes)


def saved(step: int, at: float, epoch: int = 0) -> SavedCheckpoint:
    return checkpointed_jobs.saved(step, at, epoch, seconds=1.0)


def worker(attempt: int = 1, **changes: object) -> tuple[ObservedPod, ...]:
    existing = pod(0, attempt=attempt, node="n0" if attempt == 1 else "n1")
    return (replace(existing, **changes),)


def began(step: int | None, attempt: int = 2, at: float = 7) -> tuple[ObservedPod, ...]:
    """Return the pod of a later attempt, which has started from the checkpoint of this step."""
    return worker(attempt, created=later(at), resumed_step=step)


class Pass(Struct):
    at: float
    pods: tuple[ObservedPod, ...]
    announced: Sequence[Announcement] = ()
    job: Workload = job()


class Case(Struct):
    passes: Sequence[Pass]
    want: Sequence[tuple[str, str, int | None, int | None, str]]
    """Cause, action, step of the last checkpoint, step from which the new pods started, outcome."""
    record: Record = running(1)


NOTICED = Pass(0, worker(), [SPOT])
MOVED = Pass(5, worker(saved=saved(9, 4, EPOCH)), [SPOT])
FAILED = Pass(5, worker(saved=saved(7, 2), phase="Failed", exit_code=1))
CASES = {
    "notice: under way until the checkpoint is saved": Case(
        [NOTICED], [("Preempted", "SaveAndMove", None, None, "")]
    ),
    "new pod started from that checkpoint: recovered": Case(
        [NOTICED, MOVED, Pass(6, ()), Pass(8, began(9)), Pass(9, began(9))],
        [("Preempted", "SaveAndMove", 9, 9, "Recovered")],
    ),
    "new pod does not say yet: under way": Case(
        [NOTICED, MOVED, Pass(6, ()), Pass(8, began(None)), Pass(9, began(None))],
        [("Preempted", "SaveAndMove", 9, None, "")],
    ),
    "new pod never says: recovered, since the checkpoint was saved": Case(
        [NOTICED, MOVED, Pass(6, ()), Pass(8, began(None)), Pass(60, began(None))],
        [("Preempted", "SaveAndMove", 9, None, "Recovered")],
    ),
    "new pod started from an older checkpoint: progress is lost": Case(
        [NOTICED, MOVED, Pass(6, ()), Pass(8, began(4)), Pass(9, began(4))],
        [("Preempted", "SaveAndMove", 9, 4, "ProgressLost")],
    ),
    "checkpoint missed, and the pod is lost: progress is lost": Case(
        [
            NOTICED,
            Pass(25, worker(saved=saved(3, 1)), [SPOT]),
            Pass(30, worker(saved=saved(3, 1), phase="Failed", disrupted=True), [SPOT]),
            Pass(31, ()),
            Pass(33, began(3, at=32)),
            Pass(34, began(3, at=32)),
        ],
        [("Preempted", "Restart", 3, 3, "ProgressLost")],
    ),
    "notice withdrawn while the checkpoint is saved: the pod is replaced, and progress is lost": Case(
        [
            NOTICED,
            Pass(2, worker(saved=saved(3, 1))),
            Pass(40, worker(saved=saved(3, 1))),
            Pass(41, ()),
            Pass(43, began(3, at=42)),
            Pass(44, began(3, at=42)),
        ],
        [("Preempted", "SaveAndMove", 3, 3, "ProgressLost")],
    ),
    "failure without notice: progress since the last checkpoint is lost": Case(
        [FAILED, Pass(6, ()), Pass(8, began(7)), Pass(9, began(7))],
        [("NonZeroExit", "Restart", 7, 7, "ProgressLost")],
    ),
    "second failure before the job runs again: the first is superseded": Case(
        [
            Pass(5, worker(phase="Failed", disrupted=True)),
            Pass(6, ()),
            Pass(8, worker(2, phase="Failed", disrupted=True)),
        ],
        [("Disrupted", "Restart", None, None, "Superseded"), ("Disrupted", "Restart", None, None, "")],
    ),
    "failure without restarts left: failed": Case(
        [FAILED, Pass(6, ()), Pass(8, began(None)), Pass(9, worker(2, phase="Failed", exit_code=1))],
        [("NonZeroExit", "Restart", 7, None, "Failed")],
    ),
    "suspension: recovered when it runs again": Case(
        [
            Pass(0, worker(), job=job(suspended=True)),
            Pass(5, worker(saved=saved(9, 4, EPOCH)), job=job(suspended=True)),
            Pass(6, (), job=job(suspended=True)),
            Pass(100, ()),
            Pass(102, began(9, at=101)),
            Pass(103, began(9, at=101)),
        ],
        [("Suspended", "Suspend", 9, 9, "Recovered")],
    ),
    "hint: nothing": Case([Pass(0, worker(), [replace(SPOT, cause=NoticeCause.CANDIDATE)])], []),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_recoveries(case: Case) -> None:
    record = case.record
    for step in case.passes:
        notices = find_notices(step.pods, {end.node: end for end in step.announced})
        observed = Observed(pods=step.pods, notices=notices)
        record = decide(step.job, record, observed, later(step.at)).record
        again = decide(step.job, record, observed, later(step.at)).record
        assert again.recoveries == record.recoveries, "a loss is recorded once"
    shown = [
        (recovery.cause, recovery.action, recovery.saved_step, recovery.restored_step, recovery.outcome)
        for recovery in record.recoveries
    ]
    assert shown == case.want


def test_only_the_last_recoveries_are_kept() -> None:
    record, wanted = CASES["hint: nothing"].record, job(limits=Limits())
    for attempt in range(1, 15):
        at = attempt * 100.0
        lost = (replace(pod(0, attempt=attempt), phase="Failed", disrupted=True),)
        for seconds, pods in ((0, lost), (1, ())):
            record = decide(wanted, record, Observed(pods=pods), later(at + seconds)).record
    assert len(record.recoveries) == MAX_RECOVERIES


def lost(*passes: Pass) -> tuple[list[int | None], int | None]:
    """Return the steps lost by recovery, and in total."""
    record = CASES["hint: nothing"].record
    for step in passes:
        notices = find_notices(step.pods, {end.node: end for end in step.announced})
        observed = Observed(pods=step.pods, notices=notices)
        for _ in range(2):  # an operator that is killed decides again
            record = decide(step.job, record, observed, later(step.at)).record
    return [recovery.steps_lost for recovery in record.recoveries], record.steps_lost


SAVED_7 = saved(7, 2)
SAVED_9 = saved(9, 4, EPOCH)
LOST_STEPS = {
    "step of the last report and of the checkpoint differ: those between are lost": (
        [
            Pass(5, worker(saved=SAVED_7, phase="Failed", exit_code=1, training_step=12)),
            Pass(6, ()),
            Pass(8, began(7)),
            Pass(9, began(7)),
        ],
        ([5], 5),
    ),
    "pod reports its last step when it ends, after its replacement was recorded: counts": (
        [
            NOTICED,
            Pass(5, worker(saved=SAVED_9, training_step=3), [SPOT]),
            Pass(6, worker(saved=SAVED_9, training_step=11, terminating=True), [SPOT]),
            Pass(7, ()),
            Pass(8, began(9)),
            Pass(9, began(9)),
        ],
        ([2], 2),
    ),
    "checkpoint is newer than the last report: nothing is lost": (
        [
            NOTICED,
            Pass(5, worker(saved=SAVED_9, training_step=3), [SPOT]),
            Pass(7, ()),
            Pass(8, began(9)),
            Pass(9, began(9)),
        ],
        ([0], 0),
    ),
    "checkpoint could not be used: steps since the older one are lost": (
        [
            Pass(5, worker(saved=SAVED_7, phase="Failed", exit_code=1, training_step=5)),
            Pass(6, ()),
            Pass(8, began(4)),
            Pass(9, began(4)),
        ],
        ([3], 3),
    ),
    "no checkpoint at all: all steps are lost": (
        [
            Pass(5, worker(phase="Failed", exit_code=1, training_step=12)),
            Pass(6, ()),
            Pass(8, began(None)),
            Pass(60, began(None)),
        ],
        ([12], 12),
    ),
    "program reports no steps: not known": (
        [FAILED, Pass(6, ()), Pass(8, began(7)), Pass(9, began(7))],
        ([None], None),
    ),
    "new pod does not say where it started: not known": (
        [
            Pass(5, worker(saved=SAVED_7, phase="Failed", exit_code=1, training_step=12)),
            Pass(6, ()),
            Pass(8, began(None)),
            Pass(60, began(None)),
        ],
        ([None], None),
    ),
    "second loss before the pods run again: the steps count once": (
        [
            Pass(5, worker(saved=SAVED_7, phase="Failed", disrupted=True, training_step=12)),
            Pass(6, ()),
            Pass(8, worker(2, created=later(7), phase="Failed", disrupted=True)),
            Pass(9, ()),
            Pass(10, began(7, 3, at=9)),
            Pass(11, began(7, 3, at=9)),
        ],
        ([None, 5], 5),
    ),
    "two notices answered by one restart: the steps count once": (
        [
            Pass(0, worker(training_step=4), [SPOT]),
            Pass(1, worker(training_step=4), [replace(SPOT, uid="u1")]),
            Pass(5, worker(saved=saved(2, 4, EPOCH), training_step=4), [replace(SPOT, uid="u1")]),
            Pass(6, ()),
            Pass(8, began(2)),
            Pass(9, began(2)),
        ],
        ([2, 2], 2),
    ),
}


@pytest.mark.parametrize(("passes", "want"), LOST_STEPS.values(), ids=LOST_STEPS.keys())
def test_steps_lost(passes: Sequence[Pass], want: tuple[list[int | None], int | None]) -> None:
    assert lost(*passes) == want
