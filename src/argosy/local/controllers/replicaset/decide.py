"""Decides how many pods a ReplicaSet creates, which it deletes, and its status. Pure."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.kinds.labels import POD_DELETION_COST
from argosy.local.controllers.api_types import Pod, StatusCondition
from argosy.local.controllers.podutil import is_ready, ready_since, seconds_until_available
from argosy.local.controllers.workloads import ReplicaSet, ReplicaSetStatus

BURST_REPLICAS = 500
REPLICA_FAILURE = "ReplicaFailure"


class Plan(Struct):
    status: ReplicaSetStatus
    create: int = 0
    delete: list[Pod] = field(default_factory=list)
    requeue_after: float | None = None
    """When a pod will have been ready for long enough."""


def decide(
    owner: ReplicaSet, pods: Sequence[Pod], related: Iterable[Pod], leaving: Collection[str], now: datetime
) -> Plan:
    """Decide with its own `pods`, the `related` pods of its Deployment, and uids of deleted pods."""
    active = [pod for pod in pods if _is_active(pod) and pod.metadata.uid not in leaving]
    plan = Plan(status=_status(owner, pods, active, now))
    if owner.metadata.deletion_timestamp is not None:
        return plan
    surplus = len(active) - owner.spec.replicas
    if surplus < 0:
        plan.create = min(-surplus, BURST_REPLICAS)
    elif surplus > 0:
        plan.delete = deletion_order(active, related, now)[: min(surplus, BURST_REPLICAS)]
    if seconds := owner.spec.min_ready_seconds:
        waits = [wait for pod in active if (wait := seconds_until_available(pod, seconds, now))]
        plan.requeue_after = min(waits) if waits else None
    return plan


def _is_active(pod: Pod) -> bool:
    return not pod.finished and pod.metadata.deletion_timestamp is None


def _status(owner: ReplicaSet, pods: Sequence[Pod], active: Sequence[Pod], now: datetime) -> ReplicaSetStatus:
    wanted = _template_labels(owner)
    seconds = owner.spec.min_ready_seconds
    return replace(
        owner.status,
        replicas=len(active),
        fully_labeled_replicas=sum(wanted <= pod.metadata.labels.items() for pod in active),
        ready_replicas=sum(is_ready(pod) for pod in active),
        available_replicas=sum(seconds_until_available(pod, seconds, now) == 0.0 for pod in active),
        terminating_replicas=sum(
            pod.metadata.deletion_timestamp is not None and not pod.finished for pod in pods
        ),
        observed_generation=owner.metadata.generation,
    )


def _template_labels(owner: ReplicaSet) -> set[tuple[str, str]]:
    metadata = owner.spec.template.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return {(str(key), str(value)) for key, value in labels.items()} if isinstance(labels, dict) else set()


def with_replica_failure(
    status: ReplicaSetStatus, reason: str, message: str | None, now: datetime
) -> ReplicaSetStatus:
    """Return the status with the ReplicaFailure condition set or removed."""
    failure = next((c for c in status.conditions if c.type == REPLICA_FAILURE), None)
    if (failure is None) == (message is None):
        return status
    others = [c for c in status.conditions if c.type != REPLICA_FAILURE]
    if message is None:
        return replace(status, conditions=others)
    return replace(
        status, conditions=[*others, StatusCondition(REPLICA_FAILURE, "True", reason, message, now)]
    )


def deletion_order(active: Sequence[Pod], related: Iterable[Pod], now: datetime) -> list[Pod]:
    """Sort pods by which to delete first, as Kubernetes does."""
    pods_per_node = Counter(pod.spec.node_name for pod in related if _is_active(pod))
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}

    def worth(pod: Pod) -> tuple[bool, int, bool, int, int, int, int, int, str]:
        since = ready_since(pod)
        return (
            bool(pod.spec.node_name),
            phases.get(pod.status.phase, 0),
            since is not None,
            _deletion_cost(pod),
            -pods_per_node[pod.spec.node_name],
            _log_age(since, now),
            -max((status.restart_count for status in pod.status.container_statuses), default=0),
            _log_age(pod.metadata.creation_timestamp, now),
            pod.metadata.uid,
        )

    return sorted(active, key=worth)


def _deletion_cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(POD_DELETION_COST, "0"))
    except ValueError:
        return 0


def _log_age(since: datetime | None, now: datetime) -> int:
    """Return the order of magnitude of an age: pods of similar age are equal."""
    seconds = (now - since).total_seconds() if since is not None else 0.0
    return int(math.log2(seconds * 1e9)) if seconds > 0 else -1
