"""Finishes jobs, and deletes what finished jobs leave: pods and children by policy, the job by its TTL.

A terminal phase is final, so nothing is created here. Pods that still wait in an init container or were only
being added to their role, and all running pods of a job that a limit stopped, are deleted whatever the
cleanup policy.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.kinds.quantity import format_duration
from argosy.kinds.text import pluralize
from argosy.plan.actions import Remove
from argosy.plan.diff import remove
from argosy.workload import children, messages, reasons
from argosy.workload.clock_skew import deadline
from argosy.workload.limits import STOP_REASONS
from argosy.workload.model import CleanupPolicy, Phase, Ttl, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import PhaseResult
from argosy.workload.plan import Action, DeleteJob, DeletePod, Plan
from argosy.workload.pods import forced_deletions
from argosy.workload.record import Record


def finish(
    workload: Workload, record: Record, observed: Observed, result: PhaseResult, now: datetime
) -> Plan:
    """Return the plan that records the end of the job, and the first deletions."""
    message = _success_message(record, now) if result.phase is Phase.SUCCEEDED else result.message
    record = replace(
        record.with_history(now, result.phase.value, message),
        phase=result.phase,
        phase_since=now,
        reason=result.reason,
        message=message,
        waiting=None,
        finished_at=now,
        retry_at=None,
        notices=(),
    )
    return clean_up(workload, record, observed, now)


def clean_up(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    """Return the deletions that are due for a finished job, and when the next ones will be."""
    job_expires_at = _expiry(workload.limits.ttl, record)
    children_expire_at = _expiry(workload.limits.children_ttl, record)
    if job_expires_at and now >= job_expires_at:
        return Plan(record, (DeleteJob(messages.ttl_expired(record.phase)),))
    expired = bool(children_expire_at and now >= children_expire_at)
    every_pod = expired or workload.cleanup is CleanupPolicy.ALL
    actions: list[Action] = [
        DeletePod(
            pod.name,
            pod.uid,
            reason=messages.JOB_FINISHED,
            resource_version="" if every_pod else pod.resource_version,
        )
        for pod in observed.pods
        if not pod.terminating
        and not _is_kept(workload, pod)
        and (every_pod or _is_deleted(workload, pod, record))
    ]
    forced, recheck_at = forced_deletions(workload.limits, observed, now)
    actions += forced
    if workload.cleanup is not CleanupPolicy.NONE or expired:
        actions += map(remove, children.pod_services(workload, observed))
    if every_pod and not workload.semantics.keep_children:
        removed = {action.uid for action in actions if isinstance(action, Remove)}
        actions += [remove(child) for child in observed.children if child.metadata.uid not in removed]
    times = (time for time in (job_expires_at, children_expire_at) if time and time > now)
    return Plan(record, tuple(actions)).with_requeue_at(*times, recheck_at)


def _is_kept(workload: Workload, pod: ObservedPod) -> bool:
    role = workload.roles.get(pod.role)
    return role is not None and role.keep_ended_pods and pod.ended


def _is_deleted(workload: Workload, pod: ObservedPod, record: Record) -> bool:
    if pod.ended:
        return False
    if pod.waits_for_dependency or pod.index in record.role(pod.role).joining:
        return True
    kept = workload.semantics.keep_pods_without_restarts and record.reason == reasons.RESTARTS_EXHAUSTED
    stopped = record.reason in STOP_REASONS and not kept
    return workload.cleanup is CleanupPolicy.RUNNING or stopped


def _expiry(ttl: Ttl, record: Record) -> datetime | None:
    seconds = ttl.succeeded if record.phase is Phase.SUCCEEDED else ttl.failed
    if seconds is None or record.finished_at is None:
        return None
    return deadline(record.finished_at, seconds)


def _success_message(record: Record, now: datetime) -> str:
    parts = [f"in {format_duration((now - record.started_at).total_seconds())}"] if record.started_at else []
    if record.restarts:
        parts.append(pluralize(record.restarts, "restart"))
    return " · ".join(parts)
