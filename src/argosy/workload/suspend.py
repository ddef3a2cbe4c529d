"""Suspends a job by deleting its pods, and resumes it as a new attempt.

A job with checkpoints saves one first, for which it has `suspendGrace`. Once its pods were asked to stop, the
suspension is carried out, even if it is withdrawn meanwhile: their programs do not train on. Services of
roles and service accounts stay, those of single pods go with them. The restarts used stay used; the active
deadline starts again.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.plan.diff import remove
from argosy.workload import checkpoint_messages, children, gang, messages, reasons, saves
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Action, DeletePod, Plan
from argosy.workload.pods import forced_deletions
from argosy.workload.record import Record, WaitReason
from argosy.workload.recoveries import with_planned
from argosy.workload.restarts.replacement import with_next_attempt

_ORDER_PREFIX = "suspend/"


def should_suspend(workload: Workload, record: Record) -> bool:
    """Return True if the job is to be suspended, or a suspension that was withdrawn has begun."""
    return workload.suspended or saves.has_begun(record, _ORDER_PREFIX)


def plan(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    if record.phase is not Phase.SUSPENDED:
        if saving := _save_first(workload, record, observed, now):
            return Plan(saving, requeue_at=saving.order.by if saving.order else None)
        record = saves.mark_late(record, now)
        record = _suspend(workload, record, observed, now)
    # All pods, not only those of earlier attempts: after the Record was lost there is no current attempt.
    actions: list[Action] = [
        DeletePod(pod.name, pod.uid, reason=messages.JOB_SUSPENDED)
        for pod in observed.pods
        if not pod.terminating
    ]
    forced, recheck_at = forced_deletions(workload.limits, observed, now)
    actions += forced
    actions += gang.delete_group(observed)
    actions += map(remove, children.pod_services(workload, observed))
    return Plan(record, tuple(actions)).with_requeue_at(recheck_at)


def resume(record: Record, now: datetime) -> Record:
    """Return the record of a job that is resumed; unchanged if it was not suspended."""
    if record.phase is not Phase.SUSPENDED:
        return record
    record = replace(record, phase=Phase.PENDING, phase_since=now, reason="", message="", waiting=None)
    return record.with_history(now, reasons.RESUMED, messages.RESUMED)


def _save_first(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record | None:
    """Return the record of a job that saves a checkpoint before it is suspended; None if it need not."""
    identity = saves.order_id(record, _ORDER_PREFIX, workload.generation)
    saving = saves.save_first(workload, record, observed, now, identity, reasons.SUSPENDED)
    if saving is None or saving.order is None:
        return None
    message = checkpoint_messages.waiting(reasons.SUSPENDED)
    return replace(saving, waiting=WaitReason(reasons.SAVING_CHECKPOINT, message, saving.order.since))


def _suspend(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    if record.attempt_started_at:
        identity = saves.order_id(record, _ORDER_PREFIX, workload.generation)
        what = (identity, reasons.SUSPENDED, "Suspend", "spec.suspend")
        record = saves.with_stops_done(with_planned(workload.checkpoint, record, *what, now))
    if record.attempt_started_at or observed.pods:
        record = with_next_attempt(record)
    return replace(
        record.with_history(now, reasons.SUSPENDED, messages.suspending(len(observed.pods))),
        phase=Phase.SUSPENDED,
        phase_since=now,
        reason=reasons.SUSPENDED,
        message=messages.SUSPENDED,
        waiting=WaitReason(reasons.SUSPENDED, messages.WAITING_FOR_RESUME, now),
        started_at=None,
        attempt_started_at=None,
        gang_scheduled_at=None,
        retry_at=None,
    )
