"""Summarizes SpotInstanceJobs for the CLI."""

from typing import Final

from argosy.dialects.spot import reasons
from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.spot import JOB_LABEL, REPLICA_LABEL, ReplicaStatus, SpotInstanceJob, SpotInstanceJobStatus
from argosy.kinds.spot import RecoveryStatus as SpotRecovery
from argosy.kinds.status_condition import StatusCondition
from argosy.operator.apis.summary import JobSummary, PodLabels, ReplicaSummary, RoleSummary

REPLICA: Final = "replica"
PODS: Final = PodLabels(job=JOB_LABEL, index=REPLICA_LABEL, role="", only_role=REPLICA)

_PROBLEMS: Final = (
    (reasons.FAILED, "True"),
    (reasons.ACCEPTED, "False"),
    (reasons.INSTANCES_READY, "False"),
)
"""Conditions that say why a job does not run, the most important first."""


def summarize(job: SpotInstanceJob) -> JobSummary:
    """Return what the CLI shows of a SpotInstanceJob."""
    status = job.status
    problem = _problem(status)
    restarts = sum(replica.restarts for replica in status.job_statuses)
    phase = status.phase or "Pending"
    return JobSummary(
        kind=job.resource.kind,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        created=job.metadata.creation_timestamp,
        framework="",
        phase=phase,
        reason=problem.reason if problem else "",
        message=problem.message if problem else "",
        attempt=1,
        restarts=restarts,
        started=any(replica.node_name for replica in status.job_statuses),
        roles=[RoleSummary(REPLICA, phase, status.active_replicas, job.spec.replicas, restarts, "")],
        conditions=[(c.type, c.status, c.reason, c.message) for c in status.conditions],
        checkpoint=_checkpoint(status),
        recoveries=[_recovery(entry) for entry in status.recoveries],
        replicas=[_replica(replica) for replica in status.job_statuses],
        price=_price(status),
        usage=status.usage,
    )


def _problem(status: SpotInstanceJobStatus) -> StatusCondition | None:
    by_state = {(c.type, c.status): c for c in status.conditions}
    return next((by_state[state] for state in _PROBLEMS if state in by_state), None)


def _checkpoint(status: SpotInstanceJobStatus) -> CheckpointStatus:
    images = {REPLICA: status.last_checkpoint_image} if status.last_checkpoint_image else {}
    return CheckpointStatus(
        last_step=status.last_checkpoint_step, last_time=status.last_checkpoint_time, images=images
    )


def _recovery(entry: SpotRecovery) -> RecoveryStatus:
    source = f" from {entry.restored_from}" if entry.restored_from else ""
    time = entry.notice_time or entry.start_time or entry.completion_time
    assert time is not None
    return RecoveryStatus(
        cause=entry.cause,
        action=entry.action,
        time=time,
        source=", ".join(entry.sources),
        deadline=entry.deadline,
        outcome=entry.outcome,
        message=f"replica {entry.index}: incarnation {entry.incarnation}{source}",
    )


def _replica(replica: ReplicaStatus) -> ReplicaSummary:
    role = f" ({replica.role})" if replica.role else ""
    return ReplicaSummary(
        name=f"{REPLICA}-{replica.index}{role}",
        phase=replica.phase,
        incarnation=replica.incarnation,
        start=replica.start_mode,
        node=replica.node_name,
        machine=replica.instance_name,
        zone=replica.zone,
        price=replica.price_per_hour,
        restarts=replica.restarts,
        preemptions=replica.preemptions,
    )


def _price(status: SpotInstanceJobStatus) -> str:
    if not status.cost_per_hour:
        return ""
    saved = f" ({status.saved_per_hour} less than on demand)" if status.saved_per_hour else ""
    return f"{status.cost_per_hour} per hour{saved}"
