"""Topology spread: how evenly the pods that a constraint counts lie over the domains of a key.

Worked out once per pod, for all nodes. Only nodes that the pod could go to at all, and that have the keys of
all its constraints, make up the domains.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from argosy.kinds.node_matching import untolerated
from argosy.local.controllers.kinds import Pod, SpreadConstraint
from argosy.local.scheduler.affinity_terms import Spread
from argosy.local.scheduler.node_affinity import node_wanted
from argosy.local.scheduler.scheduler_cache import PodFacts, Room, World

UNEVEN = "node(s) didn't match pod topology spread constraints"
UNLABELLED = f"{UNEVEN} (missing required label)"


class Domains(Struct):
    """One constraint and what is in each of its domains."""

    constraint: SpreadConstraint
    counts: Mapping[str, int]
    itself: bool
    """Whether the constraint counts the pod itself."""

    @property
    def least(self) -> int:
        enough = len(self.counts) >= (self.constraint.min_domains or 1)
        return min(self.counts.values(), default=0) if enough else 0


def domains(spreads: Sequence[Spread], facts: PodFacts, world: World) -> list[Domains]:
    rooms = [room for room in world.rooms.values() if _has_keys(room, spreads)]
    return [_domains(spread, facts, rooms, world) for spread in spreads]


def uneven(parts: Sequence[Domains], room: Room) -> str:
    """Why a pod would make its spread too uneven on this node; nothing if it would not."""
    for part in parts:
        domain = room.labels.get(part.constraint.topology_key)
        if domain is None:
            return UNLABELLED
        if part.counts.get(domain, 0) + part.itself - part.least > part.constraint.max_skew:
            return UNEVEN
    return ""


def evenness(parts: Sequence[Domains], rooms: Sequence[Room]) -> list[float]:
    """From 0 to 100 for each node: how much a pod there evens things out, as Kubernetes scores it."""
    crowding = [_crowding(parts, room) for room in rooms]
    known = [value for value in crowding if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    return [
        0.0 if value is None else 100.0 * (most + least - value) / most if most else 100.0
        for value in crowding
    ]


def _crowding(parts: Sequence[Domains], room: Room) -> float | None:
    total = 0.0
    for part in parts:
        domain = room.labels.get(part.constraint.topology_key)
        if domain is None:
            return None
        # Over many domains a difference of one looks small beside the same over few: the weight is for that.
        weight = math.log(len(part.counts) + 2)
        total += part.counts.get(domain, 0) * weight + part.constraint.max_skew - 1
    return total


def _domains(spread: Spread, facts: PodFacts, rooms: Sequence[Room], world: World) -> Domains:
    constraint, meta = spread.constraint, facts.pod.metadata
    found = world.selected(spread.term)
    counts: dict[str, int] = {}
    for room in rooms:
        if _eligible(constraint, facts.pod, room):
            domain = room.labels[constraint.topology_key]
            counts[domain] = counts.get(domain, 0) + found.get(room.name, 0)
    itself = spread.term.covers(meta.namespace, meta.labels, world.census.namespaces)
    return Domains(constraint, counts, itself)


def _has_keys(room: Room, spreads: Sequence[Spread]) -> bool:
    return all(spread.constraint.topology_key in room.labels for spread in spreads)


def _eligible(constraint: SpreadConstraint, pod: Pod, room: Room) -> bool:
    if constraint.node_affinity_policy != "Ignore" and not node_wanted(pod, room.name, room.labels):
        return False
    if constraint.node_taints_policy != "Honor":
        return True
    return not untolerated(room.node.spec.taints, pod.spec.tolerations, "NoSchedule", "NoExecute")
