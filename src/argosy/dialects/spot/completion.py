"""Decides what the end of a replica's Job means: for the replica, and for the job.

The first replica that succeeds ends the job. A replica that fails by an error of its own is restarted at the
same place, a limited number of times. A pod that the cluster has removed never counts as a failure.
"""

from typing import Final

from msgspec.structs import replace

from argosy.dialects.spot import reasons
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import CHECKPOINT_IMAGE, Replica, SpotJobRecord
from argosy.dialects.spot.recovery import restart_failed, resume_by_application
from argosy.kinds.kubernetes import Job
from argosy.kinds.spot import RESTORE_CAPABILITY

QUICK_EXIT_SECONDS: Final = 10.0
QUICK_EXITS: Final = 2
"""So many exits within seconds say that a node cannot restore the containers of a checkpoint."""

_NOT_CREATED: Final = frozenset({"CreateContainerError", "RunContainerError"})
_DISRUPTIONS: Final = frozenset(
    {"Evicted", "NodeLost", "Terminated", "NodeShutdown", "Shutdown", "Preempting"}
)
"""Reasons in the status of pods that the cluster removed; older API servers have no DisruptionTarget."""


def is_complete(job: Job | None) -> bool:
    return _has_condition(job, "Complete")


def is_failed(job: Job | None) -> bool:
    return _has_condition(job, "Failed")


def end_job(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """End the job with the first replica that has succeeded, or when all have failed."""
    for replica in record.replicas:
        if is_complete(observed.job_of(replica.current)):
            steps.normal(reasons.SUCCEEDED, f"replica {replica.index} has succeeded")
            return replace(record, ended="Succeeded", ended_at=observed.now, winner=replica.index)
    if record.replicas and all(replica.failure_message for replica in record.replicas):
        steps.warning(reasons.FAILED, "all replicas have failed")
        return replace(record, ended="Failed", ended_at=observed.now)
    return record


def handle_ended_job(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, steps: Steps
) -> tuple[SpotJobRecord, Replica]:
    """Restart a replica whose Job has failed or was deleted, or give it up."""
    current = replica.current
    if not current.job or replica.failure_message:
        return record, replica
    job = observed.job_of(current)
    replica = _note_quick_exits(replica, observed)
    if _cannot_restore(replica, observed):
        steps.warning(
            reasons.RESTORE_UNSUPPORTED,
            f"replica {replica.index}: node {current.node} cannot restore checkpoint images;"
            " the training resumes from its own checkpoint",
        )
        return resume_by_application(record, observed, replica)
    if job is None and current.uid:
        return _restart_uncounted(record, observed, replica, "its Job was deleted", steps)
    if not is_failed(job):
        return record, replica
    pods = observed.pods_of(current)
    if any(_was_disrupted(pod) for pod in pods):
        return _restart_uncounted(record, observed, replica, "its pod was removed by the cluster", steps)
    return _own_failure(record, observed, replica, pods, steps)


def exit_code(pods: tuple[ClusterPod, ...]) -> int | None:
    """Return the exit code of the container that failed last."""
    ended = [state for pod in pods for state in pod.ended_containers() if state.exit_code]
    ended.sort(key=lambda state: state.finished_at.timestamp() if state.finished_at else 0.0)
    return ended[-1].exit_code if ended else None


def _own_failure(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, pods: tuple[ClusterPod, ...], steps: Steps
) -> tuple[SpotJobRecord, Replica]:
    code, rules = exit_code(pods), observed.job.recovery
    why = f"exit code {code}" if code is not None else "its Job has failed"
    if rules.recover_on_exit_codes and code not in rules.recover_on_exit_codes:
        problem = f"{why} is not in recoverOnExitCodes"
    elif replica.restarts >= rules.max_restarts:
        problem = f"{why}; restarted {replica.restarts} times, the limit is {rules.max_restarts}"
    else:
        steps.warning(reasons.RECOVERY_STARTED, f"replica {replica.index} is restarted: {why}")
        return restart_failed(record, observed, replica, why)
    steps.warning(reasons.REPLICA_FAILED, f"replica {replica.index} has failed: {problem}")
    return record, replace(replica, failure_message=problem, recovery=None)


def _restart_uncounted(
    record: SpotJobRecord, observed: ObservedJob, replica: Replica, why: str, steps: Steps
) -> tuple[SpotJobRecord, Replica]:
    restarts = replica.restarts
    steps.warning(reasons.RECOVERY_STARTED, f"replica {replica.index} is restarted: {why}")
    record, replica = restart_failed(record, observed, replica, why)
    assert replica.recovery is not None
    return record, replace(replica, restarts=restarts, recovery=replace(replica.recovery, not_before=None))


def _note_quick_exits(replica: Replica, observed: ObservedJob) -> Replica:
    """Remember pods of restored containers that ended within seconds."""
    if replica.current.mode != CHECKPOINT_IMAGE:
        return replica
    quick = dict.fromkeys(replica.quick_exits)
    for pod in observed.pods_of(replica.current):
        for state in pod.ended_containers():
            if not (state.exit_code and state.started_at and state.finished_at):
                continue
            if (state.finished_at - state.started_at).total_seconds() < QUICK_EXIT_SECONDS:
                quick[f"{pod.metadata.uid}/{state.finished_at.isoformat()}"] = None
    return replace(replica, quick_exits=tuple(quick)[:QUICK_EXITS])


def _cannot_restore(replica: Replica, observed: ObservedJob) -> bool:
    """Return True if a restored container cannot run on a node without the capability label."""
    node = observed.node_of(replica.current)
    if replica.current.mode != CHECKPOINT_IMAGE or observed.job.level not in ("auto", "Process"):
        return False
    if node is not None and RESTORE_CAPABILITY in node.metadata.labels:
        return False
    refused = any(
        status.state.waiting is not None and status.state.waiting.reason in _NOT_CREATED
        for pod in observed.pods_of(replica.current)
        for status in pod.status.container_statuses
    )
    return refused or len(replica.quick_exits) >= QUICK_EXITS


def _was_disrupted(pod: ClusterPod) -> bool:
    return bool(pod.disruption) or pod.status.reason in _DISRUPTIONS


def _has_condition(job: Job | None, kind: str) -> bool:
    return job is not None and any(c.type == kind and c.status == "True" for c in job.status.conditions)
