"""On which nodes the pods are that a term selects, and those that have a term: counted, not searched.

Searching all pods for each pod and node costs a second for a few hundred pods that want to be spread. Here a
term is counted once, when it is first asked for, and then kept up with every pod that comes and goes. The
terms that placed pods have are kept by those pods; terms that are asked for are forgotten with each pass, or
they would gather.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from argosy.local.scheduler.affinity_terms import Term, Wishes


class Counted(Struct):
    """A pod as far as terms are concerned."""

    namespace: str
    labels: Mapping[str, str]
    living: bool


class Holder(Struct):
    """A term that placed pods have, and how many of them are on which node."""

    term: Term
    weight: int | None
    """How much they want the pods that it selects near them; None if they refuse them."""
    nodes: Counter[str] = field(default_factory=Counter)


class Census:
    def __init__(self) -> None:
        self.namespaces: dict[str, dict[str, str]] = {}
        """Labels of the namespaces, for terms that select them."""
        self._asked: dict[bytes, tuple[Term, Counter[str]]] = {}
        self._holders: dict[tuple[bytes, int | None], Holder] = {}

    def forget(self) -> None:
        """Begin to count anew what is asked for."""
        self._asked.clear()

    def selected(self, term: Term, pods: Iterable[tuple[Counted, str]]) -> Counter[str]:
        """How many pods that the term selects are on which node; `pods` are all, with their nodes."""
        known = self._asked.get(term.key)
        if known is None:
            counts: Counter[str] = Counter()
            for pod, node in pods:
                if self._counts(term, pod):
                    counts[node] += 1
            known = self._asked[term.key] = (term, counts)
        return known[1]

    def holders(self, namespace: str, labels: Mapping[str, str]) -> list[Holder]:
        """The terms of placed pods that select a pod like this."""
        if not self._holders:
            return []
        return [
            holder
            for holder in self._holders.values()
            if holder.term.covers(namespace, labels, self.namespaces)
        ]

    def add(self, pod: Counted, wishes: Wishes, node: str) -> None:
        self._change(pod, node, 1)
        for weight, term in wishes.held:
            holder = self._holders.setdefault((term.key, weight), Holder(term, weight))
            holder.nodes[node] += 1

    def subtract(self, pod: Counted, wishes: Wishes, node: str) -> None:
        self._change(pod, node, -1)
        for weight, term in wishes.held:
            key = (term.key, weight)
            nodes = self._holders[key].nodes
            nodes[node] -= 1
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._holders[key]

    def _change(self, pod: Counted, node: str, by: int) -> None:
        for term, counts in self._asked.values():
            if self._counts(term, pod):
                counts[node] += by
                if not counts[node]:
                    del counts[node]

    def _counts(self, term: Term, pod: Counted) -> bool:
        return (pod.living or not term.living) and term.covers(pod.namespace, pod.labels, self.namespaces)
