"""What a Deployment's status says: counts, and whether it is Available, Progressing or failing. Pure.

Progressing carries the time of the last progress; a rollout that shows none for `progressDeadlineSeconds` is
told as failed, and goes on trying.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.local.controllers.deployment.rollout_state import Parts, max_unavailable
from argosy.local.controllers.replicaset.decide import FAILURE
from argosy.local.controllers.workloads import Deployment, DeploymentCondition, DeploymentStatus

PROGRESSING, AVAILABLE = "Progressing", "Available"
DONE, TIMED_OUT, PAUSED = "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"
_NEVER = 2147483647


def has_deadline(deployment: Deployment) -> bool:
    return deployment.spec.progress_deadline_seconds not in (None, _NEVER)


def find(status: DeploymentStatus, type: str) -> DeploymentCondition | None:
    return next((condition for condition in status.conditions if condition.type == type), None)


def put(status: DeploymentStatus, condition: DeploymentCondition) -> None:
    """Set a condition, unless it says the same already; its transition is when its status changed."""
    known = find(status, condition.type)
    if known is not None and (known.status, known.reason) == (condition.status, condition.reason):
        return
    if known is not None and known.status == condition.status:
        condition = replace(condition, last_transition_time=known.last_transition_time)
    remove(status, condition.type)
    status.conditions.append(condition)


def remove(status: DeploymentStatus, type: str) -> None:
    status.conditions = [condition for condition in status.conditions if condition.type != type]


def condition(type: str, status: str, reason: str, message: str, now: datetime) -> DeploymentCondition:
    return DeploymentCondition(type, status, now, now, reason, message)


def note_pause(deployment: Deployment, status: DeploymentStatus, now: datetime) -> None:
    """A paused Deployment makes no progress and cannot be late; one that is resumed starts its clock anew."""
    known = find(status, PROGRESSING)
    if not has_deadline(deployment) or (known is not None and known.reason == TIMED_OUT):
        return
    was_paused = known is not None and known.reason == PAUSED
    if deployment.spec.paused and not was_paused:
        put(status, condition(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now))
    elif not deployment.spec.paused and was_paused:
        put(status, condition(PROGRESSING, "Unknown", "DeploymentResumed", "Deployment is resumed", now))


def counted(parts: Parts, before: DeploymentStatus, now: datetime) -> DeploymentStatus:
    """The counts as they are now, and whether enough pods are available."""
    deployment, sets = parts.deployment, [part.set for part in parts.all if not part.new]
    available = sum(each.status.available_replicas for each in sets)
    wanted = sum(each.spec.replicas for each in sets)
    wanted += parts.new.replicas if parts.new is not None and parts.new.new else 0
    terminating = [each.status.terminating_replicas for each in sets]
    status = replace(
        before,
        observed_generation=deployment.metadata.generation,
        replicas=sum(each.status.replicas for each in sets),
        updated_replicas=parts.new.set.status.replicas if parts.new is not None else 0,
        ready_replicas=sum(each.status.ready_replicas for each in sets),
        available_replicas=available,
        unavailable_replicas=max(wanted - available, 0),
        terminating_replicas=None if None in terminating else sum(filter(None, terminating)),
        conditions=list(before.conditions),
    )
    if available >= deployment.spec.replicas - max_unavailable(deployment):
        told = "Deployment has minimum availability."
        put(status, condition(AVAILABLE, "True", "MinimumReplicasAvailable", told, now))
    else:
        told = "Deployment does not have minimum availability."
        put(status, condition(AVAILABLE, "False", "MinimumReplicasUnavailable", told, now))
    return status


def complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    wanted = deployment.spec.replicas
    return (
        status.updated_replicas == status.replicas == status.available_replicas == wanted
        and status.observed_generation >= deployment.metadata.generation
    )


def rollout_status(parts: Parts, before: DeploymentStatus, now: datetime) -> DeploymentStatus:
    """The status during a rollout: the counts, and how it goes."""
    deployment = parts.deployment
    status = counted(parts, before, now)
    if not has_deadline(deployment):
        remove(status, PROGRESSING)
    else:
        _note_progress(parts, before, status, now)
    failure = _failure(parts)
    if failure is not None:
        put(status, failure)
    else:
        remove(status, FAILURE)
    return status


def _note_progress(parts: Parts, before: DeploymentStatus, status: DeploymentStatus, now: datetime) -> None:
    deployment, known = parts.deployment, find(before, PROGRESSING)
    if status.replicas == status.updated_replicas and known is not None and known.reason == DONE:
        return
    what = f'ReplicaSet "{parts.new.name}"' if parts.new else f'Deployment "{deployment.metadata.name}"'
    if complete(deployment, status):
        told = f"{what} has successfully progressed."
        put(status, condition(PROGRESSING, "True", DONE, told, now))
    elif _moved(before, status):
        told = f"{what} is progressing."
        fresh = condition(PROGRESSING, "True", "ReplicaSetUpdated", told, now)
        if known is not None and known.status == "True":
            fresh = replace(fresh, last_transition_time=known.last_transition_time)
        remove(status, PROGRESSING)
        put(status, fresh)
    elif _late(deployment, status, now):
        told = f"{what} has timed out progressing."
        put(status, condition(PROGRESSING, "False", TIMED_OUT, told, now))


def _moved(before: DeploymentStatus, status: DeploymentStatus) -> bool:
    return (
        status.updated_replicas > before.updated_replicas
        or status.replicas - status.updated_replicas < before.replicas - before.updated_replicas
        or status.ready_replicas > before.ready_replicas
        or status.available_replicas > before.available_replicas
    )


def _late(deployment: Deployment, status: DeploymentStatus, now: datetime) -> bool:
    known = find(status, PROGRESSING)
    if known is None or known.reason == DONE:
        return False
    return known.reason == TIMED_OUT or deadline_in(deployment, status, now) < 0


def deadline_in(deployment: Deployment, status: DeploymentStatus, now: datetime) -> float:
    """Seconds until a rollout without progress is late."""
    known = find(status, PROGRESSING)
    since = known.last_update_time if known is not None and known.last_update_time else now
    seconds = deployment.spec.progress_deadline_seconds or 0
    return (since + timedelta(seconds=seconds) - now).total_seconds()


def _failure(parts: Parts) -> DeploymentCondition | None:
    """Pods that could not be made: of the newest set, else of any."""
    for part in [*([parts.new] if parts.new else []), *parts.old]:
        for each in part.set.status.conditions:
            if each.type == FAILURE:
                at = each.last_transition_time
                return DeploymentCondition(FAILURE, each.status, at, at, each.reason, each.message)
    return None
