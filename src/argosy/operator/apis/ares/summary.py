"""Summarizes AresJobs for the CLI."""

from argosy.dialects.usage import recorded_usage
from argosy.kinds.aresjob import AresJob
from argosy.operator.apis.summary import JobSummary, RoleSummary
from argosy.workload.record_encoding import decode


def summarize(job: AresJob) -> JobSummary:
    """Return what the CLI shows of an AresJob."""
    status = job.status
    record = decode(status.argosy)
    return JobSummary(
        kind=job.resource.kind,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        created=job.metadata.creation_timestamp,
        framework=str(job.spec.get("frameworkType", "")),
        phase=status.phase or "Pending",
        reason=record.waiting.reason if record and record.waiting else "",
        message=status.message,
        attempt=record.attempt if record and status.start_time else 0,
        restarts=sum(role.restarts for role in status.role_statuses.values()),
        started=status.start_time is not None,
        roles=[_summarize_role(job, name) for name in sorted(status.role_statuses)],
        conditions=[(c.type, c.status, c.reason, c.message) for c in status.conditions],
        restart_history=status.restart_history,
        usage=recorded_usage(status.argosy),
        notices=status.notices,
        checkpoint=status.checkpoint,
        recoveries=status.recoveries,
    )


def _summarize_role(job: AresJob, name: str) -> RoleSummary:
    role, desired = job.status.role_statuses[name], _replicas(job, name)
    return RoleSummary(name, role.phase, role.active + role.succeeded, desired, role.restarts, role.message)


def _replicas(job: AresJob, name: str) -> int:
    roles = job.spec.get("roleSpecs")
    role = roles.get(name) if isinstance(roles, dict) else None
    replicas = role.get("replicas") if isinstance(role, dict) else None
    return replicas if isinstance(replicas, int) else 1
