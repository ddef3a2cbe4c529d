"""Tests what is recorded of losses of pods of a job with checkpoints: cause, checkpoint and outcome."""

from collections.abc import Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import MAX_RECOVERIES, SavedCheckpoint
from argosy.workload.decide import decide
from argosy.workload.model import Limits, Phase, RestartPolicy, RestartScope, Rules, Workload
from argosy.workload.notice_response import find_notices
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from tests.support.workloads import NOW, later, pod, role, role_record, workload

EPOCH = int(NOW.timestamp())
SPOT = Announcement("n0", "u0", NoticeCause.PREEMPTED, "spot", later(30))
RULES = Rules(failed_when=(("worker",),), restart_scope=RestartScope.JOB)


def job(**changes: object) -> Workload:
    made = workload(
        role(replicas=1, restart=RestartPolicy.ON_FAILURE), rules=RULES, limits=Limits(restarts=1)
    )
    return replace(made, checkpoint=CheckpointPolicy("file:///store/ns/job-uid"), **changes)


def saved(step: int, at: float, epoch: int = 0) -> SavedCheckpoint:
    return SavedCheckpoint(step, f"sha256:{step:064}", later(at), seconds=1.0, epoch=epoch)


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
    record: Record = Record(
        phase=Phase.RUNNING,
        phase_since=NOW,
        started_at=NOW,
        attempt_started_at=NOW,
        first_running_at=NOW,
        roles={"worker": role_record(Phase.RUNNING, size=1, created=1, phase_since=NOW)},
    )


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
    "notice withdrawn before anything was replaced: superseded": Case(
        [NOTICED, Pass(2, worker()), Pass(40, worker())],
        [("Preempted", "Restart", None, None, "Superseded")],
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
