"""Why a pod cannot go to a node, in Kubernetes' order and words.

The first rule that refuses ends the search, because that is what the counts in a FailedScheduling message
mean; only the resource rule names everything that is short.
"""

from collections import Counter

from argosy.local.controllers.kinds import PodAffinityTerm, Taint
from argosy.local.scheduler.matching import node_wanted, ports_clash, selects, untolerated
from argosy.local.scheduler.resources import missing
from argosy.local.scheduler.world import PodFacts, Room, World

UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def refusals(facts: PodFacts, room: Room, world: World) -> list[str]:
    """Nothing if the pod fits."""
    spec = facts.pod.spec
    if room.node.spec.unschedulable and untolerated([UNSCHEDULABLE_TAINT], spec.tolerations, "NoSchedule"):
        return ["node(s) were unschedulable"]
    if untolerated(room.node.spec.taints, spec.tolerations, "NoSchedule", "NoExecute"):
        return ["node(s) had untolerated taint(s)"]
    if not node_wanted(facts.pod, room.name, room.labels):
        return ["node(s) didn't match Pod's node affinity/selector"]
    if facts.ports and ports_clash(facts.ports, room.ports):
        return ["node(s) didn't have free ports for the requested pod ports"]
    short = [f"Insufficient {name}" for name in missing(facts.requests, room.used, room.allocatable)]
    if len(room.pods) >= room.allocatable.get("pods", 110):
        short.insert(0, "Too many pods")
    if short:
        return short
    return _between_pods(facts, room, world)


def describe(facts: PodFacts, world: World) -> str:
    """The message of an unschedulable pod: how many nodes refused it, and why."""
    if not world.rooms:
        return "no nodes available to schedule pods"
    counts = Counter(reason for room in world.rooms.values() for reason in refusals(facts, room, world))
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"0/{len(world)} nodes are available: {reasons}."


def depends_on_pods(facts: PodFacts, world: World) -> bool:
    """Whether other pods' places, and not only free room, decide where this pod can go."""
    return bool(facts.affinity or facts.anti_affinity or facts.spread or world.repelling)


def _between_pods(facts: PodFacts, room: Room, world: World) -> list[str]:
    if not depends_on_pods(facts, world):
        return []
    if facts.spread:
        uneven = _uneven(facts, room, world)
        if uneven:
            return [uneven]
    if not all(_near(term, facts, room, world) for term in facts.affinity):
        return ["node(s) didn't match pod affinity rules"]
    if any(_found(term, facts, room, world) for term in facts.anti_affinity):
        return ["node(s) didn't match pod anti-affinity rules"]
    if world.repelling and _repelled(facts, room, world):
        return ["node(s) didn't satisfy existing pods anti-affinity rules"]
    return []


def _uneven(facts: PodFacts, room: Room, world: World) -> str:
    """Why the pod would make its spread too uneven here, by the nodes that it could go to at all."""
    for constraint in facts.spread:
        key = constraint.topology_key
        if key not in room.labels:
            return "node(s) didn't match pod topology spread constraints (missing required label)"
        counts: dict[str, int] = {}
        for each in world.rooms.values():
            if key in each.labels and node_wanted(facts.pod, each.name, each.labels):
                found = sum(
                    other.namespace == facts.namespace
                    and other.pod.metadata.deletion_timestamp is None
                    and selects(constraint.label_selector, other.pod.metadata.labels)
                    for other in each.pods.values()
                )
                counts[each.labels[key]] = counts.get(each.labels[key], 0) + found
        least = 0 if len(counts) < (constraint.min_domains or 1) else min(counts.values(), default=0)
        itself = selects(constraint.label_selector, facts.pod.metadata.labels)
        if counts.get(room.labels[key], 0) + itself - least > constraint.max_skew:
            return "node(s) didn't match pod topology spread constraints"
    return ""


def _near(term: PodAffinityTerm, facts: PodFacts, room: Room, world: World) -> bool:
    """A pod that no other matches may be the first of its kind, if it would match itself."""
    if term.topology_key not in room.labels:
        return False
    if _found(term, facts, room, world):
        return True
    return _term_covers(term, facts, facts, world) and not any(
        _term_covers(term, facts, other, world)
        for each in world.rooms.values()
        for other in each.pods.values()
    )


def _found(term: PodAffinityTerm, owner: PodFacts, room: Room, world: World) -> bool:
    """Whether a pod that the term selects runs in the node's domain."""
    domain = room.labels.get(term.topology_key)
    if domain is None:
        return False
    return any(
        _term_covers(term, owner, other, world)
        for each in world.rooms.values()
        if each.labels.get(term.topology_key) == domain
        for other in each.pods.values()
    )


def _repelled(facts: PodFacts, room: Room, world: World) -> bool:
    """Whether a pod already placed in one of the node's domains wants no such pod near it."""
    return any(
        term.topology_key in room.labels
        and each.labels.get(term.topology_key) == room.labels[term.topology_key]
        and _term_covers(term, other, facts, world)
        for each in world.rooms.values()
        for other in each.pods.values()
        for term in other.anti_affinity
    )


def _term_covers(term: PodAffinityTerm, owner: PodFacts, other: PodFacts, world: World) -> bool:
    if not selects(term.label_selector, other.pod.metadata.labels):
        return False
    if other.namespace in term.namespaces:
        return True
    if term.namespace_selector is not None:
        return selects(term.namespace_selector, world.namespaces.get(other.namespace, {}))
    return not term.namespaces and other.namespace == owner.namespace
