"""Evaluates how placed pods constrain one more pod: affinity, anti-affinity and topology spread.

Computed once per pod from maintained counts (`topology_counts`); checking a node is then a few set lookups. A
pod without such terms, to which no term of a placed pod applies, has no constraints.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from argosy.local.controllers.api_types import PodAffinityTerm
from argosy.local.scheduler.affinity_terms import Term
from argosy.local.scheduler.scheduler_cache import NodeInfo, PodInfo, SchedulerCache
from argosy.local.scheduler.topology_counts import ExistingTerm
from argosy.local.scheduler.topology_spread import (
    SpreadDomains,
    skew_violation,
    spread_domains,
    spread_scores,
)

AFFINITY_UNMET = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_UNMET = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY_UNMET = "node(s) didn't satisfy existing pods anti-affinity rules"
POD_PREFERENCE_WEIGHT = 2
"""Weight of pod affinity preferences relative to a node's free share; equals that of node preferences."""


class DomainSet(Struct, frozen=True):
    """Some domains of a topology key."""

    key: str
    values: frozenset[str]

    def contains(self, node: NodeInfo) -> bool:
        return node.labels.get(self.key) in self.values


class TopologyConstraints(Struct, frozen=True):
    required_spread: list[SpreadDomains]
    affinity: list[DomainSet]
    may_be_first: bool
    """No pod is there that it wants to be near, and it is of that kind itself: it may be the first."""
    anti_affinity: list[DomainSet]
    existing_anti_affinity: list[DomainSet]
    preferred_spread: list[SpreadDomains]
    domain_weights: dict[str, dict[str, int]]
    """By topology key and domain: how much the pod is wanted there, or not."""

    def unfit_reason(self, node: NodeInfo) -> str:
        """Return why the pod does not fit on this node, in Kubernetes' order; empty if it does."""
        if self.required_spread and (reason := skew_violation(self.required_spread, node)):
            return reason
        for place in self.affinity:
            if place.key not in node.labels or not (self.may_be_first or place.contains(node)):
                return AFFINITY_UNMET
        if any(place.contains(node) for place in self.anti_affinity):
            return ANTI_AFFINITY_UNMET
        if any(place.contains(node) for place in self.existing_anti_affinity):
            return EXISTING_ANTI_AFFINITY_UNMET
        return ""

    def scores(self, nodes: Sequence[NodeInfo]) -> list[float]:
        """Return what to add to the score of each of these nodes."""
        totals = [0.0] * len(nodes)
        if self.preferred_spread:
            totals = [POD_PREFERENCE_WEIGHT * value for value in spread_scores(self.preferred_spread, nodes)]
        if self.domain_weights:
            pulls = [self._weight(node) for node in nodes]
            least, most = min(pulls, default=0), max(pulls, default=0)
            if most > least:
                totals = [
                    total + POD_PREFERENCE_WEIGHT * 100.0 * (pull - least) / (most - least)
                    for total, pull in zip(totals, pulls, strict=True)
                ]
        return totals

    def _weight(self, node: NodeInfo) -> int:
        return sum(values.get(node.labels.get(key, ""), 0) for key, values in self.domain_weights.items())


def topology_constraints(info: PodInfo, cache: SchedulerCache) -> TopologyConstraints | None:
    """Return the constraints that other pods put on this one; None if there are none."""
    holders = cache.matching_terms(info)
    if not info.terms and not holders:
        return None
    terms, near = info.terms, info.terms.affinity
    counts = cache.count_selected(near) if near else None
    meta = info.pod.metadata
    return TopologyConstraints(
        required_spread=spread_domains(terms.required_spread, info, cache) if terms.required_spread else [],
        affinity=[_domain_set(rule, counts, cache) for rule in near.rules]
        if near and counts is not None
        else [],
        may_be_first=near is not None
        and not any((counts or {}).values())
        and near.matches(meta.namespace, meta.labels, cache.topology.namespaces),
        anti_affinity=[
            _domain_set(term.rules[0], cache.count_selected(term), cache) for term in terms.anti_affinity
        ],
        existing_anti_affinity=[
            _domain_set(holder.term.rules[0], holder.nodes, cache)
            for holder in holders
            if holder.weight is None
        ],
        preferred_spread=spread_domains(terms.preferred_spread, info, cache)
        if terms.preferred_spread
        else [],
        domain_weights=_domain_weights(info.terms.preferred, holders, cache),
    )


def depends_on_pods(info: PodInfo, cache: SchedulerCache) -> bool:
    """Return True if the placement of other pods decides where this pod fits, not only free resources."""
    return bool(info.terms) or bool(cache.matching_terms(info))


def _domain_set(rule: PodAffinityTerm, nodes: Iterable[str] | None, cache: SchedulerCache) -> DomainSet:
    key = rule.topology_key
    values = {
        node.labels[key]
        for name in nodes or ()
        if (node := cache.nodes.get(name)) is not None and key in node.labels
    }
    return DomainSet(key, frozenset(values))


def _domain_weights(
    preferred: Sequence[tuple[int, Term]], holders: Sequence[ExistingTerm], cache: SchedulerCache
) -> dict[str, dict[str, int]]:
    pulls: dict[str, dict[str, int]] = {}
    sources = [(weight, term, cache.count_selected(term)) for weight, term in preferred]
    sources += [(holder.weight, holder.term, holder.nodes) for holder in holders if holder.weight is not None]
    for weight, term, nodes in sources:
        key = term.rules[0].topology_key
        values = pulls.setdefault(key, {})
        for node, count in nodes.items():
            domain = cache.nodes[node].labels.get(key) if node in cache.nodes else None
            if domain is not None:
                values[domain] = values.get(domain, 0) + weight * count
    return pulls
