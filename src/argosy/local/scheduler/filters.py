"""Explains why a pod does not fit on a node, in Kubernetes' order and words.

The first filter that fails ends the search, because the counts in a FailedScheduling message mean that; only
the resource filter names everything that is insufficient.
"""

from collections import Counter

from argosy.kinds.node_matching import untolerated
from argosy.kinds.resources import insufficient
from argosy.local.controllers.api_types import Taint
from argosy.local.scheduler.interpod_affinity import TopologyConstraints, topology_constraints
from argosy.local.scheduler.node_affinity import matches_node, ports_conflict
from argosy.local.scheduler.scheduler_cache import NodeInfo, PodInfo, SchedulerCache

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def unfit_reasons(info: PodInfo, node: NodeInfo, constraints: TopologyConstraints | None) -> list[str]:
    """Return why the pod does not fit, empty if it does; `around` are constraints by other pods."""
    spec = info.pod.spec
    if node.node.spec.unschedulable and untolerated([UNSCHEDULABLE_TAINT], spec.tolerations, "NoSchedule"):
        return ["node(s) were unschedulable"]
    if untolerated(node.node.spec.taints, spec.tolerations, "NoSchedule", "NoExecute"):
        return ["node(s) had untolerated taint(s)"]
    if not matches_node(info.pod, node.name, node.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if info.ports and ports_conflict(info.ports, node.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = [f"Insufficient {name}" for name in insufficient(info.requests, node.requested, node.allocatable)]
    if len(node.pods) >= node.allocatable.get("pods", 110):
        short.insert(0, "Too many pods")
    if short:
        return short
    reason = constraints.unfit_reason(node) if constraints is not None else ""
    return [reason] if reason else []


def unschedulable_message(info: PodInfo, cache: SchedulerCache) -> str:
    """Return the message of an unschedulable pod: how many nodes do not fit, and why."""
    if not cache.nodes:
        return "no nodes available to schedule pods"
    constraints = topology_constraints(info, cache)
    counts = Counter(
        reason for node in cache.nodes.values() for reason in unfit_reasons(info, node, constraints)
    )
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(cache)} nodes are available: {reasons}."
