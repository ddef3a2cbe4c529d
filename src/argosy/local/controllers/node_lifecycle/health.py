"""Tracks the heartbeats of nodes, and derives conditions, taints and evictions from them. Pure.

A heartbeat is a change of the node's Lease or of its Ready condition's heartbeat time. Silence is measured on
our own clock from when a change was observed, never by comparing the node's times with ours.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct

from argosy.kinds.node_matching import tolerates
from argosy.local.controllers.api_types import Node, Pod, StatusCondition, Taint

READY = "Ready"
REPORTED_CONDITIONS = (READY, "MemoryPressure", "DiskPressure", "PIDPressure")
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
PRESSURE_TAINTS = {
    "MemoryPressure": "node.kubernetes.io/memory-pressure",
    "DiskPressure": "node.kubernetes.io/disk-pressure",
    "PIDPressure": "node.kubernetes.io/pid-pressure",
    "NetworkUnavailable": "node.kubernetes.io/network-unavailable",
}
MANAGED_TAINTS = {NOT_READY, UNREACHABLE, UNSCHEDULABLE, *PRESSURE_TAINTS.values()}


class NodeHealth(Struct, frozen=True):
    """The last heartbeats of a node, and when a change of them was observed."""

    lease_renewed: datetime | None
    heartbeat: datetime | None
    observed_at: float


def observe(
    previous: NodeHealth | None, renewed: datetime | None, heartbeat: datetime | None, monotonic: float
) -> NodeHealth:
    if previous is not None and (previous.lease_renewed, previous.heartbeat) == (renewed, heartbeat):
        return previous
    return NodeHealth(renewed, heartbeat, monotonic)


def last_heartbeat(node: Node) -> datetime | None:
    ready = _find_condition(node.status.conditions, READY)
    return ready.last_heartbeat_time if ready is not None and ready.status != "Unknown" else None


def ready_status(node: Node) -> str:
    ready = _find_condition(node.status.conditions, READY)
    return ready.status if ready is not None else "Unknown"


def unknown_conditions(node: Node, now: datetime) -> list[StatusCondition]:
    """Return the conditions of a silent node that must become Unknown."""
    changed = []
    for reported in REPORTED_CONDITIONS:
        condition = _find_condition(node.status.conditions, reported)
        if condition is None:
            reason, message = "NodeStatusNeverUpdated", "Kubelet never posted node status."
            changed.append(StatusCondition(reported, "Unknown", reason, message, now))
        elif condition.status != "Unknown":
            reason, message = "NodeStatusUnknown", "Kubelet stopped posting node status."
            changed.append(
                StatusCondition(reported, "Unknown", reason, message, now, condition.last_heartbeat_time)
            )
    return changed


def desired_taints(node: Node, now: datetime) -> list[Taint]:
    """Return the taints a node should have: managed ones by its conditions, others unchanged."""
    wanted: list[tuple[str, str]] = []
    ready = ready_status(node)
    if ready != "True":
        key = NOT_READY if ready == "False" else UNREACHABLE
        wanted += [(key, "NoSchedule"), (key, "NoExecute")]
    for pressure, key in PRESSURE_TAINTS.items():
        condition = _find_condition(node.status.conditions, pressure)
        if condition is not None and condition.status == "True":
            wanted.append((key, "NoSchedule"))
    if node.spec.unschedulable:
        wanted.append((UNSCHEDULABLE, "NoSchedule"))
    kept = [
        taint
        for taint in node.spec.taints
        if taint.key not in MANAGED_TAINTS or (taint.key, taint.effect) in wanted
    ]
    present = {(taint.key, taint.effect) for taint in kept}
    fresh = [
        Taint(key, effect, "", now if effect == "NoExecute" else None)
        for key, effect in wanted
        if (key, effect) not in present
    ]
    return kept + fresh


def eviction_time(pod: Pod, taints: Iterable[Taint], now: datetime, longest: float | None) -> datetime | None:
    """Return when to evict the pod, None if never; `longest` caps tolerations of lost nodes, in seconds.

    Without a matching toleration the pod is evicted at once; with tolerationSeconds, after the shortest of
    them, counted from when the taint was added; with tolerations without seconds, never.
    """
    times: list[datetime] = []
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        matching = next((item for item in pod.spec.tolerations if tolerates(item, taint)), None)
        if matching is None:
            return now
        if matching.toleration_seconds is None:
            continue
        seconds = float(max(matching.toleration_seconds, 0))
        if longest is not None and taint.key in (NOT_READY, UNREACHABLE):
            seconds = min(seconds, longest)
        times.append((taint.time_added or now) + timedelta(seconds=seconds))
    return min(times, default=None)


def _find_condition(conditions: Iterable[StatusCondition], type: str) -> StatusCondition | None:
    return next((condition for condition in conditions if condition.type == type), None)
