"""Tests that incremental topology counts equal a full recount."""

import random
from collections import Counter

import pytest

from argosy.local.scheduler.affinity_terms import Term
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache
from tests.support.scheduler_objects import Json, node, pod

APPS, NAMESPACES, NODES = ("a", "b", "c"), ("default", "other"), ("n1", "n2", "n3")


@pytest.mark.parametrize("seed", range(20))
def test_updated_counts_equal_a_new_count(seed: int) -> None:
    chance = random.Random(seed)
    world = SchedulerCache([node(name) for name in NODES[:2]])  # the third is not there yet
    pods = [_pod(f"p{number}", chance) for number in range(30)]
    terms = [
        term
        for facts in pods
        for term in (*facts.terms.anti_affinity, *(s.term for s in facts.terms.required_spread))
    ]
    for _ in range(200):
        facts = chance.choice(pods)
        if chance.random() < 0.6:
            world.place(facts, chance.choice(NODES))
        else:
            world.remove(facts.uid)
        term = chance.choice(terms)
        assert world.count_selected(term) == _searched(world, term)
        refusing = {
            (holder.term.key, tuple(sorted(holder.nodes.items())))
            for holder in world.matching_terms(facts)
            if holder.weight is None
        }
        assert refusing == _refusing(world, facts)
    for facts in pods:
        world.remove(facts.uid)
    assert not any(world.count_selected(term) for term in terms)
    assert not any(world.matching_terms(facts) for facts in pods)
    assert not world.priorities


def _pod(name: str, chance: random.Random) -> PodInfo:
    rule: Json = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": chance.choice(APPS)}}}
    if chance.random() < 0.3:
        rule["namespaces"] = ["other"]
    away = {"requiredDuringSchedulingIgnoredDuringExecution": [rule]} if chance.random() < 0.5 else {}
    spread = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": chance.choice(APPS)}}}
    spec: Json = {"affinity": {"podAntiAffinity": away}, "topologySpreadConstraints": [spread]}
    labels = {"app": chance.choice(APPS)}
    return PodInfo.of(pod(name, namespace=chance.choice(NAMESPACES), labels=labels, spec=spec))


def _searched(world: SchedulerCache, term: Term) -> Counter[str]:
    return Counter(
        where
        for facts, where in world.placed_pods()
        if term.matches(facts.namespace, facts.pod.metadata.labels, {})
    )


def _refusing(world: SchedulerCache, about: PodInfo) -> set[tuple[bytes, tuple[tuple[str, int], ...]]]:
    counts: dict[bytes, Counter[str]] = {}
    for facts, where in world.placed_pods():
        for term in facts.terms.anti_affinity:
            if term.matches(about.namespace, about.pod.metadata.labels, {}):
                counts.setdefault(term.key, Counter())[where] += 1
    return {(key, tuple(sorted(nodes.items()))) for key, nodes in counts.items()}
