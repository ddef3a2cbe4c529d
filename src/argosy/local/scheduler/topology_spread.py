"""Evaluates topology spread constraints: how evenly pods are distributed over the domains of a key.

Computed once per pod, for all nodes. Only nodes that are eligible for the pod and have the keys of all its
constraints are counted as domains.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from argosy.kinds.node_matching import untolerated
from argosy.local.controllers.api_types import Pod, SpreadConstraint
from argosy.local.scheduler.affinity_terms import SpreadTerm
from argosy.local.scheduler.node_affinity import matches_node
from argosy.local.scheduler.scheduler_cache import NodeInfo, PodInfo, SchedulerCache

SPREAD_UNMET = "node(s) didn't match pod topology spread constraints"
LABEL_MISSING = f"{SPREAD_UNMET} (missing required label)"


class SpreadDomains(Struct):
    """A constraint, and the number of pods in each of its domains."""

    constraint: SpreadConstraint
    counts: Mapping[str, int]
    counts_itself: bool
    """Whether the constraint counts the pod itself."""

    @property
    def global_minimum(self) -> int:
        enough = len(self.counts) >= (self.constraint.min_domains or 1)
        return min(self.counts.values(), default=0) if enough else 0


def spread_domains(
    spreads: Sequence[SpreadTerm], info: PodInfo, cache: SchedulerCache
) -> list[SpreadDomains]:
    nodes = [node for node in cache.nodes.values() if _has_keys(node, spreads)]
    return [_count_domains(spread, info, nodes, cache) for spread in spreads]


def skew_violation(parts: Sequence[SpreadDomains], node: NodeInfo) -> str:
    """Return why the pod would violate the maximum skew on this node; empty if it would not."""
    for part in parts:
        domain = node.labels.get(part.constraint.topology_key)
        if domain is None:
            return LABEL_MISSING
        if part.counts.get(domain, 0) + part.counts_itself - part.global_minimum > part.constraint.max_skew:
            return SPREAD_UNMET
    return ""


def spread_scores(parts: Sequence[SpreadDomains], nodes: Sequence[NodeInfo]) -> list[float]:
    """Score each node from 0 to 100 by how much a pod there evens out the spread, as kube-scheduler does."""
    raw_scores = [_raw_score(parts, node) for node in nodes]
    eligible = [value for value in raw_scores if value is not None]
    least, most = min(eligible, default=0.0), max(eligible, default=0.0)
    return [
        0.0 if value is None else 100.0 * (most + least - value) / most if most else 100.0
        for value in raw_scores
    ]


def _raw_score(parts: Sequence[SpreadDomains], node: NodeInfo) -> float | None:
    total = 0.0
    for part in parts:
        domain = node.labels.get(part.constraint.topology_key)
        if domain is None:
            return None
        # The weight makes differences comparable between keys with many domains and keys with few.
        weight = math.log(len(part.counts) + 2)
        total += part.counts.get(domain, 0) * weight + part.constraint.max_skew - 1
    return total


def _count_domains(
    spread: SpreadTerm, info: PodInfo, nodes: Sequence[NodeInfo], cache: SchedulerCache
) -> SpreadDomains:
    constraint, meta = spread.constraint, info.pod.metadata
    pods_by_node = cache.count_selected(spread.term)
    counts: dict[str, int] = {}
    for node in nodes:
        if _is_eligible(constraint, info.pod, node):
            domain = node.labels[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + pods_by_node.get(node.name, 0)
    itself = spread.term.matches(meta.namespace, meta.labels, cache.topology.namespaces)
    return SpreadDomains(constraint, counts, itself)


def _has_keys(node: NodeInfo, spreads: Sequence[SpreadTerm]) -> bool:
    return all(spread.constraint.topology_key in node.labels for spread in spreads)


def _is_eligible(constraint: SpreadConstraint, pod: Pod, node: NodeInfo) -> bool:
    if constraint.node_affinity_policy != "Ignore" and not matches_node(pod, node.name, node.labels):
        return False
    if constraint.node_taints_policy != "Honor":
        return True
    return not untolerated(node.node.spec.taints, pod.spec.tolerations, "NoSchedule", "NoExecute")
