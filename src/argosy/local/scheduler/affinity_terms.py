"""Represents a pod's affinity, anti-affinity and spread constraints as terms that pods can share.

Pods of one job have identical terms. A term's key is its content, so that what is counted for one pod's term
is used for all pods with that term.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from argosy.kinds.node_matching import Expression
from argosy.local.controllers.api_types import (
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    SpreadConstraint,
)
from argosy.local.scheduler.node_affinity import selects


class Term(Struct, frozen=True):
    """Selects the pods that match all of its rules, relative to the namespace of the pod that has it."""

    key: bytes
    namespace: str
    rules: tuple[PodAffinityTerm, ...]
    only_alive: bool = False
    """Terminating pods are not counted."""

    @classmethod
    def of(cls, namespace: str, *rules: PodAffinityTerm, living: bool = False) -> "Term":
        return cls(msgspec.json.encode((namespace, rules, living)), namespace, rules, living)

    def matches(
        self, namespace: str, labels: Mapping[str, str], namespaces: Mapping[str, Mapping[str, str]]
    ) -> bool:
        """Return True if it selects such a pod; `namespaces` has the labels of all namespaces."""
        return all(self._rule_matches(rule, namespace, labels, namespaces) for rule in self.rules)

    def _rule_matches(
        self,
        rule: PodAffinityTerm,
        namespace: str,
        labels: Mapping[str, str],
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> bool:
        if not selects(rule.label_selector, labels):
            return False
        if namespace in rule.namespaces:
            return True
        if rule.namespace_selector is not None:
            return selects(rule.namespace_selector, namespaces.get(namespace, {}))
        return not rule.namespaces and namespace == self.namespace


class SpreadTerm(Struct, frozen=True):
    """A spread constraint, and the term that selects the pods it counts."""

    constraint: SpreadConstraint
    term: Term


class PodTerms(Struct, frozen=True):
    """All terms of a pod about other pods."""

    affinity: Term | None = None
    """Required affinity: pods that match all its rules, one per topology key."""
    anti_affinity: tuple[Term, ...] = ()
    preferred: tuple[tuple[int, Term], ...] = ()
    """With its weight, which is negative for anti-affinity."""
    required_spread: tuple[SpreadTerm, ...] = ()
    preferred_spread: tuple[SpreadTerm, ...] = ()
    """Spread constraints with ScheduleAnyway."""
    existing: tuple[tuple[int | None, Term], ...] = ()
    """Terms that apply to later pods once this one is placed: weights, None for anti-affinity."""

    def __bool__(self) -> bool:
        return bool(
            self.affinity
            or self.anti_affinity
            or self.preferred
            or self.required_spread
            or self.preferred_spread
        )


NO_TERMS = PodTerms()
HARD_AFFINITY_WEIGHT = 1
"""What the required affinity of a placed pod adds to the score of a pod that it selects, as in Kubernetes."""


def pod_terms(pod: Pod) -> PodTerms:
    spec, namespace = pod.spec, pod.metadata.namespace
    affinity = spec.affinity
    near = affinity.pod_affinity if affinity else None
    away = affinity.pod_anti_affinity if affinity else None
    if near is None and away is None and not spec.topology_spread_constraints:
        return NO_TERMS
    anti_affinity = tuple(Term.of(namespace, rule) for rule in away.required) if away else ()
    preferred = (*_preferred_terms(near, namespace, 1), *_preferred_terms(away, namespace, -1))
    # Each rule by itself: a later pod that one of them selects is welcome near this one.
    attracted = [(HARD_AFFINITY_WEIGHT, Term.of(namespace, rule)) for rule in near.required] if near else []
    spreads = [
        SpreadTerm(constraint, _spread_term(constraint, pod))
        for constraint in spec.topology_spread_constraints
    ]
    return PodTerms(
        affinity=Term.of(namespace, *near.required) if near and near.required else None,
        anti_affinity=anti_affinity,
        preferred=preferred,
        required_spread=tuple(
            spread for spread in spreads if spread.constraint.when_unsatisfiable == "DoNotSchedule"
        ),
        preferred_spread=tuple(
            spread for spread in spreads if spread.constraint.when_unsatisfiable != "DoNotSchedule"
        ),
        existing=(*((None, term) for term in anti_affinity), *attracted, *preferred),
    )


def _preferred_terms(affinity: PodAffinity | None, namespace: str, sign: int) -> list[tuple[int, Term]]:
    terms = affinity.preferred if affinity else []
    return [(sign * item.weight, Term.of(namespace, item.pod_affinity_term)) for item in terms]


def _spread_term(constraint: SpreadConstraint, pod: Pod) -> Term:
    """Return the term of the pods that a constraint counts; matchLabelKeys add the pod's own labels."""
    selector = constraint.label_selector
    own = pod.metadata.labels
    same = [Expression(key, "In", [own[key]]) for key in constraint.match_label_keys if key in own]
    if selector is not None and same:
        selector = LabelSelector(selector.match_labels, [*selector.match_expressions, *same])
    return Term.of(pod.metadata.namespace, PodAffinityTerm(constraint.topology_key, selector), living=True)
