"""What the pods that are placed already mean for one more: where it may go, and where it had better.

Worked out once per pod, against counts that are kept (see `census`); asking about a node is then a look into
a few sets. A pod that says nothing about others, and that no placed pod says anything about, has none.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from argosy.local.controllers.kinds import PodAffinityTerm
from argosy.local.scheduler.affinity_terms import Term
from argosy.local.scheduler.scheduler_cache import PodFacts, Room, World
from argosy.local.scheduler.topology_counts import Holder
from argosy.local.scheduler.topology_spread import Domains, domains, evenness, uneven

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_AWAY = "node(s) didn't match pod anti-affinity rules"
REPELLED = "node(s) didn't satisfy existing pods anti-affinity rules"
WEIGHT = 2
"""Of what pods prefer about others, beside the free share of a node; the same as of node preferences."""


class Place(Struct, frozen=True):
    """Some domains of a topology key."""

    key: str
    values: frozenset[str]

    def holds(self, room: Room) -> bool:
        return room.labels.get(self.key) in self.values


class Surroundings(Struct, frozen=True):
    spread: list[Domains]
    near: list[Place]
    first: bool
    """No pod is there that it wants to be near, and it is of that kind itself: it may be the first."""
    away: list[Place]
    repelled: list[Place]
    even: list[Domains]
    pulls: dict[str, dict[str, int]]
    """By topology key and domain: how much the pod is wanted there, or not."""

    def refusal(self, room: Room) -> str:
        """Why the pod cannot go to this node, in Kubernetes' order; nothing if it can."""
        if self.spread and (told := uneven(self.spread, room)):
            return told
        for place in self.near:
            if place.key not in room.labels or not (self.first or place.holds(room)):
                return NOT_NEAR
        if any(place.holds(room) for place in self.away):
            return NOT_AWAY
        if any(place.holds(room) for place in self.repelled):
            return REPELLED
        return ""

    def scores(self, rooms: Sequence[Room]) -> list[float]:
        """What to add to the score of each of these nodes."""
        totals = [0.0] * len(rooms)
        if self.even:
            totals = [WEIGHT * value for value in evenness(self.even, rooms)]
        if self.pulls:
            pulls = [self._pull(room) for room in rooms]
            least, most = min(pulls, default=0), max(pulls, default=0)
            if most > least:
                totals = [
                    total + WEIGHT * 100.0 * (pull - least) / (most - least)
                    for total, pull in zip(totals, pulls, strict=True)
                ]
        return totals

    def _pull(self, room: Room) -> int:
        return sum(values.get(room.labels.get(key, ""), 0) for key, values in self.pulls.items())


def surroundings(facts: PodFacts, world: World) -> Surroundings | None:
    """None if other pods make no difference to this one."""
    holders = world.holders(facts)
    if not facts.wishes and not holders:
        return None
    wishes, near = facts.wishes, facts.wishes.near
    found = world.selected(near) if near else None
    meta = facts.pod.metadata
    return Surroundings(
        spread=domains(wishes.spread, facts, world) if wishes.spread else [],
        near=[_place(rule, found, world) for rule in near.rules] if near and found is not None else [],
        first=near is not None
        and not any((found or {}).values())
        and near.covers(meta.namespace, meta.labels, world.census.namespaces),
        away=[_place(term.rules[0], world.selected(term), world) for term in wishes.away],
        repelled=[
            _place(holder.term.rules[0], holder.nodes, world) for holder in holders if holder.weight is None
        ],
        even=domains(wishes.even, facts, world) if wishes.even else [],
        pulls=_pulls(facts.wishes.preferred, holders, world),
    )


def depends_on_pods(facts: PodFacts, world: World) -> bool:
    """Whether other pods' places, and not only free room, decide where this pod can go."""
    return bool(facts.wishes) or bool(world.holders(facts))


def _place(rule: PodAffinityTerm, nodes: Iterable[str] | None, world: World) -> Place:
    key = rule.topology_key
    values = {
        room.labels[key]
        for node in nodes or ()
        if (room := world.rooms.get(node)) is not None and key in room.labels
    }
    return Place(key, frozenset(values))


def _pulls(
    preferred: Sequence[tuple[int, Term]], holders: Sequence[Holder], world: World
) -> dict[str, dict[str, int]]:
    pulls: dict[str, dict[str, int]] = {}
    sources = [(weight, term, world.selected(term)) for weight, term in preferred]
    sources += [(each.weight, each.term, each.nodes) for each in holders if each.weight is not None]
    for weight, term, nodes in sources:
        key = term.rules[0].topology_key
        values = pulls.setdefault(key, {})
        for node, count in nodes.items():
            domain = world.rooms[node].labels.get(key) if node in world.rooms else None
            if domain is not None:
                values[domain] = values.get(domain, 0) + weight * count
    return pulls
