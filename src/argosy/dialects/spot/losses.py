"""Finds out whether the node of a replica is lost or about to be, who has reported it, and why.

All sources are read together. The first that reports a loss begins the recovery, and the others only add to
its record, because a loss belongs to one incarnation of one replica.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from argosy.capacity import reasons
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.places import is_ready, ready_condition
from argosy.dialects.spot.record import Incarnation, Replica
from argosy.kinds.labels import MACHINE_SOURCE
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.workload.announcements import NoticeCause, find_announcement

LOST_STATES: Final = frozenset({"STOPPING", "STOPPED", "TERMINATED", "DEPROVISIONING"})
"""Statuses in GCE of a VM that runs nothing any more, or soon will not. A VM in any other, also an unknown
one, holds its replica."""
STOPPED_STATES: Final = frozenset({"STOPPED", "TERMINATED"})
"""Those in which nothing runs any more."""
NOTICE_STATES: Final = LOST_STATES | {"PENDING_STOP"}

NODE_DISRUPTIONS: Final = frozenset({"TerminationByKubelet", "DeletionByPodGC"})
"""Reasons of the condition DisruptionTarget that say that the node goes or is gone."""

DEFAULT_NOTICE_SECONDS: Final = 30.0

PREEMPTED, MAINTENANCE, HOST_ERROR = reasons.PREEMPTED, reasons.MAINTENANCE, reasons.HOST_ERROR
USER_STOPPED, NOT_FOUND, UNKNOWN = reasons.USER_STOPPED, reasons.NOT_FOUND, reasons.UNKNOWN

TAKEN_CAUSES: Final = frozenset({PREEMPTED, NOT_FOUND, UNKNOWN})
"""Causes that speak against the zone of a VM: it was preempted, or nothing else explains that it is gone."""

_CAUSES: Final = {
    NoticeCause.PREEMPTED: PREEMPTED,
    NoticeCause.MAINTENANCE: MAINTENANCE,
    NoticeCause.DRAINED: MAINTENANCE,
    NoticeCause.OUT_OF_SERVICE: HOST_ERROR,
}


class Loss(Struct, frozen=True):
    """A source that says that the node of an incarnation is lost, or will be."""

    cause: str
    source: str
    deadline: datetime | None = None
    noticed: datetime | None = None
    hint: bool = False
    """It may be lost: make a checkpoint, but no replacement."""


def find_losses(
    replica: Replica, incarnation: Incarnation, observed: ObservedJob, steps: Steps
) -> list[Loss]:
    """Return what all sources say about the node of an incarnation; those with a cause come first."""
    found = [
        *_instance_losses(incarnation, observed),
        *_node_losses(incarnation, observed),
        *_pod_losses(incarnation, observed),
        *_silence(replica, incarnation, observed, steps),
    ]
    return sorted(found, key=lambda loss: (loss.hint, loss.cause == UNKNOWN))


def silent_since(replica: Replica, observed: ObservedJob) -> datetime | None:
    """Return since when the node of a replica has been missing or not reachable.

    A bought node that has not been ready yet may take its time, unless its kubelet has stopped answering.
    """
    incarnation = replica.current
    node = observed.node_of(incarnation)
    if node is None:
        is_placed = bool(incarnation.job or incarnation.node)
        return (replica.silent_since or observed.now) if is_placed else None
    ready = ready_condition(node)
    if ready is None or ready.status == "True":
        return None
    if not incarnation.node and ready.status != "Unknown":
        return None
    return replica.silent_since or ready.last_transition_time or observed.now


def is_fenced(incarnation: Incarnation, observed: ObservedJob) -> bool:
    """Return True if no pod of an incarnation can run any more."""
    if not any(not pod.has_ended for pod in observed.pods_of(incarnation)):
        return True
    if incarnation.instance:
        instance = observed.instances.get(incarnation.instance)
        if instance is None or instance.status.state in STOPPED_STATES:
            return True
    node = observed.node_of(incarnation)
    if node is None:
        return False
    announced = find_announcement(node, observed.rules)
    return announced is not None and announced.cause is NoticeCause.OUT_OF_SERVICE


def default_deadline(loss: Loss, now: datetime) -> datetime:
    """Return until when the node is there: as announced, or else half a minute from the notice on."""
    return loss.deadline or (loss.noticed or now) + timedelta(seconds=DEFAULT_NOTICE_SECONDS)


def _instance_losses(incarnation: Incarnation, observed: ObservedJob) -> Iterator[Loss]:
    if not incarnation.instance:
        return
    instance = observed.instances.get(incarnation.instance)
    if instance is None:
        if incarnation.instance_uid:
            yield Loss(NOT_FOUND, "instance")
        return
    status = instance.status
    if instance.metadata.deletion_timestamp is not None:
        yield Loss(USER_STOPPED, "instance deleted")
    elif status.preemption_notice or _is_lost(instance) or (_is_ending(instance) and incarnation.job):
        # A VM without a Job that ends without a notice did not join in time, and another one follows.
        source = status.notice_source or "gce"
        yield Loss(status.cause or UNKNOWN, source, status.deadline, status.notice_time)


def _is_ending(instance: ProvisionedInstance) -> bool:
    return instance.status.state in NOTICE_STATES


def _is_lost(instance: ProvisionedInstance) -> bool:
    return any(c.type == reasons.LOST and c.status == "True" for c in instance.status.conditions)


def _node_losses(incarnation: Incarnation, observed: ObservedJob) -> Iterator[Loss]:
    node = observed.node_of(incarnation)
    if node is None:
        return
    announced = find_announcement(node, observed.rules)
    if announced is not None and not (incarnation.instance and announced.source == MACHINE_SOURCE):
        # What the cloud reports of a VM is in its status, with the cause, and is only repeated on its Node.
        cause = _CAUSES.get(announced.cause, UNKNOWN)
        hint = announced.cause is NoticeCause.CANDIDATE
        deadline = announced.deadline.astimezone(UTC) if announced.deadline else None
        yield Loss(cause, announced.source, deadline, hint=hint)


def _pod_losses(incarnation: Incarnation, observed: ObservedJob) -> Iterator[Loss]:
    for pod in observed.pods_of(incarnation):
        if pod.disruption in NODE_DISRUPTIONS and pod.spec.node_name == observed.node_name(incarnation):
            yield Loss(PREEMPTED if incarnation.instance else UNKNOWN, f"pod {pod.disruption}")
            return


def _silence(
    replica: Replica, incarnation: Incarnation, observed: ObservedJob, steps: Steps
) -> Iterator[Loss]:
    if replica.silent_since is None or incarnation != replica.current:
        return
    if is_ready(observed.node_of(incarnation)):
        return
    limit = replica.silent_since + timedelta(seconds=observed.settings.lease_loss_timeout)
    if observed.now >= limit:
        yield Loss(UNKNOWN, "node silent", noticed=observed.now)
    else:
        steps.wake(limit)
