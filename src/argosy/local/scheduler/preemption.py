"""Room for pods of higher priority, made by taking it from lower ones.

As in Kubernetes, a pod that fits nowhere may have pods of lower priority deleted: on the node where the least
is lost, and no more than it needs there. It is then nominated for that node, and the room is kept for it
while the others leave. Pods that are leaving already count as gone, so a pod that waits for its room does not
have more deleted.

A gang is worth nothing in halves. One that wants room gets it whole or takes nobody's; one that loses room
loses first what it has beyond its minimum, and if that is not enough, then all of it.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from argosy.local.scheduler.filters import refusals
from argosy.local.scheduler.gangs import Gang, bulkiest_first, enough
from argosy.local.scheduler.interpod_affinity import depends_on_pods, surroundings
from argosy.local.scheduler.node_heap import Fitting, Refusal
from argosy.local.scheduler.outcome import GroupKey, Placed, Victim
from argosy.local.scheduler.scheduler_cache import PodFacts, Room, World

SINGLE = Gang(1)
_LATE = datetime.max.replace(tzinfo=UTC)


class Preemption(Struct, frozen=True):
    victims: list[Victim]
    nominated: list[Placed]


class Preempting:
    """Preempts for pods of one priority after the other, during one pass.

    Between `begin` and `end` the world is as it will be when everybody has left; after `end` it is as it is
    now, with the nominated pods in it besides, so that nobody else takes their room.
    """

    def __init__(self, world: World, fitting: Fitting, gang_of: Callable[[GroupKey], Gang | None]) -> None:
        self._world = world
        self._fitting = fitting
        self._find_gang = gang_of
        self._gangs: dict[GroupKey, Gang | None] = {}
        self._gone: dict[str, Placed] = {}
        self._known: dict[tuple[bytes, int, bool], dict[str, tuple[int, _Offer | None]]] = {}
        """What was found out about nodes, by shape and priority, and the version of the node it holds for."""

    def possible(self, priority: int) -> bool:
        return min(self._world.priorities, default=priority) < priority

    def begin(self) -> None:
        self._known.clear()
        for facts, node in [each for each in self._world.placed() if each[0].uid in self._world.leaving]:
            self._lift(facts, node)
        self._fitting.start_over()

    def end(self) -> None:
        for facts, node in self._gone.values():
            self._world.place(facts, node)
        self._gone.clear()
        self._fitting.start_over()

    def make_room(self, members: Sequence[PodFacts], gang: Gang = SINGLE) -> Preemption | None:
        """Room for a pod, or for at least the minimum of a gang; None when it cannot be had.

        Nobody goes for what a gang has beyond its minimum.
        """
        if any(facts.pod.spec.preemption_policy == "Never" for facts in members):
            return None
        if gang.minimum - sum(gang.bound.values()) > len(members):
            return None
        return self._attempt(members, gang, whole=False) or self._attempt(members, gang, whole=True)

    def _attempt(self, members: Sequence[PodFacts], gang: Gang, *, whole: bool) -> Preemption | None:
        victims: list[tuple[Victim, str]] = []
        placed: list[Placed] = []
        missed, bound = 0, sum(gang.bound.values())
        for index in bulkiest_first(members):
            node = self._place(members[index])
            if node is None and not enough(gang, placed):
                node = self._place_instead(members[index], victims, whole)
            if node is not None:
                placed.append((members[index], node))
                continue
            missed += 1
            if bound + len(members) - missed < gang.minimum:
                break
        if placed and enough(gang, placed):
            spared = self._spare(victims)
            return Preemption([victim for victim, _ in victims if victim.facts.uid not in spared], placed)
        self._fitting.take_back([facts.uid for facts, _ in placed])
        self._put_back(victims)
        return None

    def _place(self, facts: PodFacts) -> str | None:
        node = self._fitting.place(facts)
        return None if isinstance(node, Refusal) else node

    def _place_instead(self, facts: PodFacts, victims: list[tuple[Victim, str]], whole: bool) -> str | None:
        """Place a pod where the least is lost, and lose that."""
        offers = [
            (offer.cost, name, offer)
            for name, room in self._world.rooms.items()
            if (offer := self._offer(facts, room, whole)) is not None
        ]
        if not offers:
            return None
        _, name, best = min(offers, key=lambda each: each[:2])
        for lost, where in best.pods:
            self._lift(lost, where)
            victims.append((Victim(lost, facts, name), where))
            self._unsettle(lost)
        self._world.place(facts, name)
        self._fitting.start_over()
        return name

    def _offer(self, facts: PodFacts, room: Room, whole: bool) -> "_Offer | None":
        if depends_on_pods(facts, self._world):
            return self._work_out(facts, room, whole)
        known = self._known.setdefault((facts.shape, facts.priority, whole), {})
        found = known.get(room.name)
        if found is None or found[0] != room.version:
            found = known[room.name] = (room.version, self._work_out(facts, room, whole))
        return found[1]

    def _work_out(self, facts: PodFacts, room: Room, whole: bool) -> "_Offer | None":
        """The least that must go for the pod to fit here; the world is as before afterwards."""
        units = self._units(facts, room, whole)
        touched = {where for unit in units for _, where in unit}
        versions = {name: self._world.rooms[name].version for name in touched if name in self._world.rooms}
        for unit in units:
            self._take(unit)
        lost: list[Placed] | None = None
        if units and not self._refused(facts, room):
            lost = []
            for unit in units:
                self._return(unit)
                if self._refused(facts, room):
                    self._take(unit)
                    lost.extend(unit)
        for unit in units:
            self._return(unit)
        for name, version in versions.items():
            # Nothing has changed in the end, and what was found out about these nodes holds.
            self._world.rooms[name].version = version
        return _Offer(lost, _cost(lost)) if lost else None

    def _units(self, facts: PodFacts, room: Room, whole: bool) -> list[list[Placed]]:
        """What can go from a node, each part for itself; the most important first, to be spared first."""
        gangs: dict[GroupKey, list[Placed]] = {}
        units: list[list[Placed]] = []
        for each in room.pods.values():
            if each.priority >= facts.priority:
                continue
            key = (each.namespace, each.group)
            if self._gang_of(key) is not None:
                gangs.setdefault(key, []).append((each, room.name))
            else:
                units.append([(each, room.name)])
        for key, here in gangs.items():
            if key != (facts.namespace, facts.group):
                units.extend(self._gang_units(key, here, facts.priority, whole))
        return sorted(units, key=_importance)

    def _gang_units(
        self, key: GroupKey, here: list[Placed], priority: int, whole: bool
    ) -> list[list[Placed]]:
        gang = self._gang_of(key)
        everyone = self._world.group(*key)
        if gang is None or (whole and any(facts.priority >= priority for facts, _ in everyone)):
            return []
        if whole:
            return [everyone]
        spare = [each for each in here if each[0].task not in gang.tasks]
        spare.sort(key=lambda each: _importance([each]), reverse=True)
        return [[each] for each in spare[: max(len(everyone) - gang.minimum, 0)]]

    def _gang_of(self, key: GroupKey) -> Gang | None:
        if key not in self._gangs:
            self._gangs[key] = self._find_gang(key) if key[1] else None
        return self._gangs[key]

    def _refused(self, facts: PodFacts, room: Room) -> bool:
        return bool(refusals(facts, room, surroundings(facts, self._world)))

    def _spare(self, victims: list[tuple[Victim, str]]) -> set[str]:
        """Those who need not go after all: a pod taken later may have made the room for both."""
        spared: set[str] = set()
        alone = [
            (victim.facts, where)
            for victim, where in victims
            if self._gang_of((victim.facts.namespace, victim.facts.group)) is None
        ]
        for facts, where in sorted(alone, key=lambda each: _importance([each])):
            room = self._world.rooms.get(where)
            if room is not None and not self._refused(facts, room):
                self._return([(facts, where)])
                self._gone.pop(facts.uid)
                spared.add(facts.uid)
        return spared

    def _put_back(self, victims: Iterable[tuple[Victim, str]]) -> None:
        for victim, where in victims:
            self._return([(victim.facts, where)])
            self._gone.pop(victim.facts.uid)
            self._unsettle(victim.facts)

    def _unsettle(self, facts: PodFacts) -> None:
        """What a gang can still lose on one node depends on what it has lost on others."""
        if self._gang_of((facts.namespace, facts.group)) is not None:
            self._known.clear()

    def _lift(self, facts: PodFacts, node: str) -> None:
        self._world.remove(facts.uid)
        self._gone[facts.uid] = (facts, node)

    def _take(self, unit: Iterable[Placed]) -> None:
        for facts, _ in unit:
            self._world.remove(facts.uid)

    def _return(self, unit: Iterable[Placed]) -> None:
        for facts, node in unit:
            self._world.place(facts, node)


class _Offer(Struct, frozen=True):
    pods: list[Placed]
    cost: tuple[int, int, float]


def _cost(lost: Sequence[Placed]) -> tuple[int, int, float]:
    """The highest priority that is lost, how many pods, how long they have been there: all should be low."""
    highest = max((facts.priority for facts, _ in lost), default=0)
    oldest = min((_since(facts) for facts, _ in lost), default=_LATE)
    return (highest, len(lost), -oldest.timestamp())


def _importance(unit: Sequence[Placed]) -> tuple[int, int, datetime]:
    """Higher priority first, then more pods, then older."""
    return (
        -max(facts.priority for facts, _ in unit),
        -len(unit),
        min(_since(facts) for facts, _ in unit),
    )


def _since(facts: PodFacts) -> datetime:
    return facts.pod.metadata.creation_timestamp or _LATE
