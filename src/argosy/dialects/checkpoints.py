"""Builds `checkpoint` and `recoveries` of a job's status, which are the same for every job API."""

from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.workload import checkpoint_messages
from argosy.workload.model import Workload
from argosy.workload.record import Record


def checkpoint_status(workload: Workload | None, record: Record) -> CheckpointStatus | None:
    """Return the last good checkpoint; None for a job that keeps none."""
    if workload is None or workload.checkpoint is None:
        return None
    saved, order = record.saved, record.order_in_force
    message = checkpoint_messages.ordered(order) if order and not record.finished_at else ""
    if saved is None:
        return CheckpointStatus(uri=workload.checkpoint.uri, steps_lost=record.steps_lost, message=message)
    return CheckpointStatus(
        last_step=None if saved.level else saved.step,
        last_time=saved.at,
        digest=saved.digest,
        uri=workload.checkpoint.uri,
        size=saved.size,
        steps_lost=record.steps_lost,
        level=saved.level,
        images=dict(saved.images),
        message=message,
    )


def recoveries(record: Record) -> list[RecoveryStatus]:
    """Return the last losses of pods, the oldest first."""
    return [
        RecoveryStatus(
            cause=recovery.cause,
            action=recovery.action,
            time=recovery.since,
            source=recovery.source,
            deadline=recovery.deadline,
            saved_step=None if recovery.saved_level else recovery.saved_step,
            restored_from=None if recovery.saved_level else recovery.restored_step,
            reached_step=recovery.reached_step,
            steps_lost=recovery.steps_lost,
            outcome=recovery.outcome,
            message=checkpoint_messages.recovery(recovery),
        )
        for recovery in record.recoveries
    ]
