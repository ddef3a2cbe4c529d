"""Computes a Deployment's status: counts, and the Available, Progressing and ReplicaFailure conditions. Pure.

Progressing has the time of the last progress. A rollout without progress for `progressDeadlineSeconds` is
reported as failed, but continues.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.local.controllers.api_types import StatusCondition
from argosy.local.controllers.deployment.rollout_state import RolloutState, max_unavailable
from argosy.local.controllers.replicaset.decide import REPLICA_FAILURE
from argosy.local.controllers.workloads import Deployment, DeploymentStatus

PROGRESSING, AVAILABLE = "Progressing", "Available"
DONE, TIMED_OUT, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"
_NO_DEADLINE = 2147483647


def has_deadline(deployment: Deployment) -> bool:
    return deployment.spec.progress_deadline_seconds not in (None, _NO_DEADLINE)


def find_condition(status: DeploymentStatus, type: str) -> StatusCondition | None:
    return next((condition for condition in status.conditions if condition.type == type), None)


def set_condition(status: DeploymentStatus, condition: StatusCondition) -> None:
    """Set a condition unless it is unchanged; the transition time changes only with the status."""
    existing = find_condition(status, condition.type)
    if existing is not None and (existing.status, existing.reason) == (condition.status, condition.reason):
        return
    if existing is not None and existing.status == condition.status:
        condition = replace(condition, last_transition_time=existing.last_transition_time)
    remove_condition(status, condition.type)
    status.conditions.append(condition)


def remove_condition(status: DeploymentStatus, type: str) -> None:
    status.conditions = [condition for condition in status.conditions if condition.type != type]


def new_condition(type: str, status: str, reason: str, message: str, now: datetime) -> StatusCondition:
    return StatusCondition(type, status, reason, message, last_update_time=now, last_transition_time=now)


def record_pause(deployment: Deployment, status: DeploymentStatus, now: datetime) -> None:
    """Record pause and resume: neither counts as a lack of progress, and resuming restarts the deadline."""
    existing = find_condition(status, PROGRESSING)
    if not has_deadline(deployment) or (existing is not None and existing.reason == TIMED_OUT):
        return
    was_paused = existing is not None and existing.reason == PAUSED
    if deployment.spec.paused and not was_paused:
        set_condition(status, new_condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now))
    elif not deployment.spec.paused and was_paused:
        set_condition(
            status, new_condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed", now)
        )


def with_counts(rollout: RolloutState, previous: DeploymentStatus, now: datetime) -> DeploymentStatus:
    """Return the status with current counts and the Available condition."""
    deployment, replica_sets = (
        rollout.deployment,
        [set_state.replica_set for set_state in rollout.all if not set_state.is_new],
    )
    available = sum(replica_set.status.available_replicas for replica_set in replica_sets)
    wanted = sum(replica_set.spec.replicas for replica_set in replica_sets)
    wanted += rollout.new.replicas if rollout.new is not None and rollout.new.is_new else 0
    terminating = [replica_set.status.terminating_replicas for replica_set in replica_sets]
    status = replace(
        previous,
        observed_generation=deployment.metadata.generation,
        replicas=sum(replica_set.status.replicas for replica_set in replica_sets),
        updated_replicas=rollout.new.replica_set.status.replicas if rollout.new is not None else 0,
        ready_replicas=sum(replica_set.status.ready_replicas for replica_set in replica_sets),
        available_replicas=available,
        unavailable_replicas=max(wanted - available, 0),
        terminating_replicas=None if None in terminating else sum(filter(None, terminating)),
        conditions=list(previous.conditions),
    )
    if available >= deployment.spec.replicas - max_unavailable(deployment):
        message = "Deployment has minimum availability."
        set_condition(status, new_condition(AVAILABLE, "True", "MinimumReplicasAvailable", message, now))
    else:
        message = "Deployment does not have minimum availability."
        set_condition(status, new_condition(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now))
    return status


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = deployment.spec.replicas
    return (
        status.updated_replicas == status.replicas == status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def rollout_status(rollout: RolloutState, previous: DeploymentStatus, now: datetime) -> DeploymentStatus:
    """Return the status during a rollout: counts, progress and failures."""
    deployment = rollout.deployment
    status = with_counts(rollout, previous, now)
    if not has_deadline(deployment):
        remove_condition(status, PROGRESSING)
    else:
        _record_progress(rollout, previous, status, now)
    failure = _replica_failure(rollout)
    if failure is not None:
        set_condition(status, failure)
    else:
        remove_condition(status, REPLICA_FAILURE)
    return status


def _record_progress(
    rollout: RolloutState, previous: DeploymentStatus, status: DeploymentStatus, now: datetime
) -> None:
    deployment, existing = rollout.deployment, find_condition(previous, PROGRESSING)
    if status.replicas == status.updated_replicas and existing is not None and existing.reason == DONE:
        return
    subject = (
        f'ReplicaSet "{rollout.new.name}"' if rollout.new else f'Deployment "{deployment.metadata.name}"'
    )
    if is_complete(deployment, status):
        message = f"{subject} has successfully progressed."
        set_condition(status, new_condition(PROGRESSING, "True", DONE, message, now))
    elif _has_progressed(previous, status):
        message = f"{subject} is progressing."
        fresh = new_condition(PROGRESSING, "True", "ReplicaSetUpdated", message, now)
        if existing is not None and existing.status == "True":
            fresh = replace(fresh, last_transition_time=existing.last_transition_time)
        remove_condition(status, PROGRESSING)
        set_condition(status, fresh)
    elif _is_overdue(deployment, status, now):
        message = f"{subject} has timed out progressing."
        set_condition(status, new_condition(PROGRESSING, "False", TIMED_OUT, message, now))


def _has_progressed(previous: DeploymentStatus, status: DeploymentStatus) -> bool:
    return (
        status.updated_replicas > previous.updated_replicas
        or status.replicas - status.updated_replicas < previous.replicas - previous.updated_replicas
        or status.ready_replicas > previous.ready_replicas
        or status.available_replicas > previous.available_replicas
    )


def _is_overdue(deployment: Deployment, status: DeploymentStatus, now: datetime) -> bool:
    existing = find_condition(status, PROGRESSING)
    if existing is None or existing.reason == DONE:
        return False
    return existing.reason == TIMED_OUT or seconds_to_deadline(deployment, status, now) < 0


def seconds_to_deadline(deployment: Deployment, status: DeploymentStatus, now: datetime) -> float:
    """Return the seconds until a rollout without progress exceeds its deadline."""
    existing = find_condition(status, PROGRESSING)
    since = existing.last_update_time if existing is not None and existing.last_update_time else now
    seconds = deployment.spec.progress_deadline_seconds or 0
    return (since + timedelta(seconds=seconds) - now).total_seconds()


def _replica_failure(rollout: RolloutState) -> StatusCondition | None:
    """Return the ReplicaFailure condition of the new ReplicaSet, else of any old one."""
    for set_state in [*([rollout.new] if rollout.new else []), *rollout.old]:
        for condition in set_state.replica_set.status.conditions:
            if condition.type == REPLICA_FAILURE:
                return replace(condition, last_update_time=condition.last_transition_time)
    return None
