"""Saves what can be saved of a pod whose node is about to be lost, and notes whether that was done in time.

Containers are checkpointed if the last checkpoint took less time than is left. A training that writes its
own checkpoints (level App) is ordered to save, if its pods get orders; otherwise, and if it does not answer,
it gets SIGTERM: its Job is deleted, so that it has its grace period to save, and every further step would be
lost anyway.
"""

from datetime import timedelta

from msgspec.structs import replace

from argosy.dialects.spot import app_saves, reasons
from argosy.dialects.spot.backups import good_images, is_terminal
from argosy.dialects.spot.checkpoints import order_backup
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.record import Incarnation, Recovery, Replica, SpotJobRecord
from argosy.kinds.kubernetes import Job
from argosy.plan.diff import remove

NONE, CHECKPOINT, SIGNAL = "None", "Checkpoint", "Signal"
CHECKPOINT_MADE, CHECKPOINT_MISSED = "CheckpointMade", "CheckpointMissed"
SIGNAL_ANSWERED, SIGNAL_MISSED = "SignalAnswered", "SignalMissed"


def begin_save(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, recovery: Recovery, steps: Steps
) -> tuple[SpotJobRecord, Recovery]:
    """Record how the pod of the lost incarnation is saved."""
    pod = observed.running_pod(replica.current)
    assert recovery.deadline is not None
    left = (recovery.deadline - observed.now).total_seconds() - observed.settings.notice_margin
    if pod is None or left <= 0:
        return record, replace(recovery, action=NONE)
    if observed.job.saves_by_order and app_saves.may_answer(record, observed):
        record, recovery = app_saves.begin_save(record, observed, replica, recovery, left, steps)
        return record, replace(recovery, action=CHECKPOINT)
    if observed.job.level == "App":
        steps.normal(
            reasons.CHECKPOINT_REQUESTED,
            f"replica {replica.index}: pod {pod.metadata.name} gets SIGTERM, to save before it is lost",
        )
        return record, replace(recovery, action=SIGNAL)
    checkpoint = record.checkpoint
    if checkpoint is None or not observed.backups_served or not 0 < checkpoint.seconds <= left:
        return record, replace(recovery, action=NONE)
    if any(backup.pod_uid == pod.metadata.uid for backup in record.backups):
        return record, replace(recovery, action=NONE)
    record, backup = order_backup(record, observed, replica, pod, steps)
    return record, replace(recovery, action=CHECKPOINT, last_save=backup.name)


def follow_save(replica: Replica, observed: ObservedJob, steps: Steps) -> Replica:
    """Signal the pod of the lost incarnation, and record whether it was saved before its node went."""
    recovery = replica.recovery
    if recovery is None or recovery.action not in (CHECKPOINT, SIGNAL) or not replica.old:
        return replica
    lost, signal = replica.old[-1], recovery.action == SIGNAL
    if signal:
        remove_job(observed.job_of(lost), lost, steps)
    assert recovery.deadline is not None
    is_late = observed.now > recovery.deadline
    if _is_made(replica, recovery, observed):
        action = CHECKPOINT_MADE
    elif not signal and not is_late and _should_signal(recovery, observed.job_of(lost), observed):
        action = SIGNAL
        remove_job(observed.job_of(lost), lost, steps)
        steps.wake(recovery.deadline + timedelta(seconds=1))
    elif signal and not is_late and _has_ended(lost, observed):
        action = SIGNAL_ANSWERED
    elif is_late:
        action = SIGNAL_MISSED if signal else CHECKPOINT_MISSED
    else:
        if recovery.save_by is not None and not signal:
            steps.wake(recovery.save_by)
        steps.wake(recovery.deadline + timedelta(seconds=1))
        return replica
    return replace(replica, recovery=replace(recovery, action=action))


def _should_signal(recovery: Recovery, job: Job | None, observed: ObservedJob) -> bool:
    """Return True if a pod that was given an order has had its time, or is ended for its successor."""
    if recovery.save_by is None:
        return False
    return observed.now >= recovery.save_by or job is None or job.metadata.deletion_timestamp is not None


def remove_job(job: Job | None, incarnation: Incarnation, steps: Steps) -> None:
    """Delete the Job of a lost incarnation, and so its pods."""
    if job is not None and job.metadata.deletion_timestamp is None:
        steps.actions.append(remove(job))
        steps.normal(reasons.JOB_DELETED, f"Job {incarnation.job} of a lost replica deleted")


def _has_ended(lost: Incarnation, observed: ObservedJob) -> bool:
    """Return True if nothing of the incarnation runs any more."""
    running = any(not pod.has_ended for pod in observed.pods_of(lost))
    return not running and observed.job_of(lost) is None


def _is_made(replica: Replica, recovery: Recovery, observed: ObservedJob) -> bool:
    if observed.job.saves_by_order:
        return app_saves.is_saved(replica, recovery)
    backup = observed.backups.get(recovery.last_save)
    if backup is None or not is_terminal(backup):
        return False
    return bool(good_images(backup, observed.job.containers, observed.job.repository))
