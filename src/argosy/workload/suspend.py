"""Suspends a job by deleting its pods, and resumes it as a new attempt.

Services of roles and service accounts stay, those of single pods go with them. The restarts used stay used;
the active deadline starts again.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.plan.diff import remove
from argosy.workload import children, gang, messages, reasons
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Action, DeletePod, Plan
from argosy.workload.pods import forced_deletions
from argosy.workload.record import Record, WaitReason
from argosy.workload.restarts.replacement import with_next_attempt


def plan(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    if record.phase is not Phase.SUSPENDED:
        record = _suspend(record, observed, now)
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


def _suspend(record: Record, observed: Observed, now: datetime) -> Record:
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
