"""Counts per node the pods that an affinity term selects, and the terms that placed pods have.

Searching all pods for each pod and node takes a second for a few hundred pods with spread constraints. Here a
term is counted once, when it is first needed, and updated with every pod that is added or removed. Terms of
placed pods are kept as long as those pods; other counts are reset with each pass.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from argosy.local.scheduler.affinity_terms import PodTerms, Term


class CountedPod(Struct):
    """The fields of a pod that terms select by."""

    namespace: str
    labels: Mapping[str, str]
    alive: bool


class ExistingTerm(Struct):
    """A term that placed pods have, with their number on each node."""

    term: Term
    weight: int | None
    """How much they want the pods that it selects near them; None for a required anti-affinity."""
    nodes: Counter[str] = field(default_factory=Counter)


class TopologyCounts:
    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        """Labels of the namespaces, for terms that select them."""
        self._counted_terms: dict[bytes, tuple[Term, Counter[str]]] = {}
        self._existing_terms: dict[tuple[bytes, int | None], ExistingTerm] = {}

    def reset(self) -> None:
        """Discard the counts of terms that only pending pods have."""
        self._counted_terms.clear()

    def count_selected(self, term: Term, pods: Iterable[tuple[CountedPod, str]]) -> Counter[str]:
        """Count by node the pods that the term selects; `pods` are all placed pods with their nodes."""
        counted = self._counted_terms.get(term.key)
        if counted is None:
            counts: Counter[str] = Counter()
            for pod, node in pods:
                if self._is_counted(term, pod):
                    counts[node] += 1
            counted = self._counted_terms[term.key] = (term, counts)
        return counted[1]

    def matching_terms(self, namespace: str, labels: Mapping[str, str]) -> list[ExistingTerm]:
        """Return the terms of placed pods that select this pod."""
        if not self._existing_terms:
            return []
        return [
            holder
            for holder in self._existing_terms.values()
            if holder.term.matches(namespace, labels, self.namespaces)
        ]

    def add(self, pod: CountedPod, terms: PodTerms, node: str) -> None:
        self._change(pod, node, 1)
        for weight, term in terms.existing:
            holder = self._existing_terms.setdefault((term.key, weight), ExistingTerm(term, weight))
            holder.nodes[node] += 1

    def subtract(self, pod: CountedPod, terms: PodTerms, node: str) -> None:
        self._change(pod, node, -1)
        for weight, term in terms.existing:
            key = (term.key, weight)
            nodes = self._existing_terms[key].nodes
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._existing_terms[key]

    def _change(self, pod: CountedPod, node: str, by: int) -> None:
        for term, counts in self._counted_terms.values():
            if self._is_counted(term, pod):
                counts[node] += by
                if not counts[node]:
                    del counts[node]

    def _is_counted(self, term: Term, pod: CountedPod) -> bool:
        return (pod.alive or not term.only_alive) and term.matches(pod.namespace, pod.labels, self.namespaces)
