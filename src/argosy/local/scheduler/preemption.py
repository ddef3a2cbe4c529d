"""Preempts pods of lower priority for pods that fit nowhere.

As in Kubernetes, pods are deleted on the node where the least is lost, and no more than necessary. The
preemptor is nominated for that node, and its resources are reserved there while the victims terminate.
Terminating pods count as gone, so that a pod which waits for them causes no further deletions.

A gang is only useful as a whole. A gang that preempts gets its minimum or no pod is deleted; a gang that is
preempted first loses the members beyond its minimum, and then all of them.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from msgspec import Struct

from argosy.local.scheduler.filters import unfit_reasons
from argosy.local.scheduler.gangs import Gang, largest_first, meets_minimum
from argosy.local.scheduler.interpod_affinity import depends_on_pods, topology_constraints
from argosy.local.scheduler.node_heap import PodPlacer, Unschedulable
from argosy.local.scheduler.outcome import GroupKey, Placement, Victim
from argosy.local.scheduler.scheduler_cache import NodeInfo, PodInfo, SchedulerCache

SINGLE_POD = Gang(1)
_LATEST = datetime.max.replace(tzinfo=UTC)


class Preemption(Struct, frozen=True):
    victims: list[Victim]
    nominated: list[Placement]


class PreemptionPass:
    """Preempts for pods of one priority after the other, during one pass.

    Between `begin` and `end` the cache is without all terminating pods; after `end` they are back, and the
    nominated pods are in it too, so that their resources stay reserved.
    """

    def __init__(
        self, cache: SchedulerCache, placer: PodPlacer, gang_of: Callable[[GroupKey], Gang | None]
    ) -> None:
        self._world = cache
        self._placer = placer
        self._find_gang = gang_of
        self._gangs: dict[GroupKey, Gang | None] = {}
        self._evicted: dict[str, Placement] = {}
        self._candidates: dict[tuple[bytes, int, bool], dict[str, tuple[int, _Candidate | None]]] = {}
        """What was found out about nodes, by shape and priority, and the version of the node it holds for."""

    def is_possible(self, priority: int) -> bool:
        return min(self._world.priorities, default=priority) < priority

    def begin(self) -> None:
        self._candidates.clear()
        for info, node in [
            placement
            for placement in self._world.placed_pods()
            if placement[0].uid in self._world.terminating
        ]:
            self._evict(info, node)
        self._placer.reset()

    def end(self) -> None:
        for info, node in self._evicted.values():
            self._world.place(info, node)
        self._evicted.clear()
        self._placer.reset()

    def preempt_for(self, members: Sequence[PodInfo], gang: Gang = SINGLE_POD) -> Preemption | None:
        """Find victims for a pod, or for the minimum of a gang; None if preemption cannot help.

        Members of a gang beyond its minimum preempt no pods.
        """
        if any(info.pod.spec.preemption_policy == "Never" for info in members):
            return None
        if gang.minimum - sum(gang.bound.values()) > len(members):
            return None
        return self._attempt(members, gang, whole=False) or self._attempt(members, gang, whole=True)

    def _attempt(self, members: Sequence[PodInfo], gang: Gang, *, whole: bool) -> Preemption | None:
        victims: list[tuple[Victim, str]] = []
        placed: list[Placement] = []
        missed, bound = 0, sum(gang.bound.values())
        for index in largest_first(members):
            node = self._place(members[index])
            if node is None and not meets_minimum(gang, placed):
                node = self._place_with_victims(members[index], victims, whole)
            if node is not None:
                placed.append((members[index], node))
                continue
            missed += 1
            if bound + len(members) - missed < gang.minimum:
                break
        if placed and meets_minimum(gang, placed):
            spared = self._reprieve(victims)
            return Preemption([victim for victim, _ in victims if victim.victim.uid not in spared], placed)
        self._placer.undo([info.uid for info, _ in placed])
        self._restore_victims(victims)
        return None

    def _place(self, info: PodInfo) -> str | None:
        node = self._placer.place(info)
        return None if isinstance(node, Unschedulable) else node

    def _place_with_victims(
        self, info: PodInfo, victims: list[tuple[Victim, str]], whole: bool
    ) -> str | None:
        """Place a pod on the node where the least is lost, and evict the victims there."""
        offers = [
            (offer.cost, name, offer)
            for name, node in self._world.nodes.items()
            if (offer := self._candidate(info, node, whole)) is not None
        ]
        if not offers:
            return None
        _, name, best = min(offers, key=lambda offer: offer[:2])
        for lost, where in best.pods:
            self._evict(lost, where)
            victims.append((Victim(lost, info, name), where))
            self._invalidate(lost)
        self._world.place(info, name)
        self._placer.reset()
        return name

    def _candidate(self, info: PodInfo, node: NodeInfo, whole: bool) -> "_Candidate | None":
        if depends_on_pods(info, self._world):
            return self._find_victims(info, node, whole)
        candidates = self._candidates.setdefault((info.shape, info.priority, whole), {})
        candidate = candidates.get(node.name)
        if candidate is None or candidate[0] != node.version:
            candidate = candidates[node.name] = (node.version, self._find_victims(info, node, whole))
        return candidate[1]

    def _find_victims(self, info: PodInfo, node: NodeInfo, whole: bool) -> "_Candidate | None":
        """Find the fewest victims for the pod to fit on this node; leaves the cache unchanged."""
        units = self._victim_units(info, node, whole)
        touched = {where for unit in units for _, where in unit}
        versions = {name: self._world.nodes[name].version for name in touched if name in self._world.nodes}
        for unit in units:
            self._remove(unit)
        lost: list[Placement] | None = None
        if units and not self._is_unfit(info, node):
            lost = []
            for unit in units:
                self._restore(unit)
                if self._is_unfit(info, node):
                    self._remove(unit)
                    lost.extend(unit)
        for unit in units:
            self._restore(unit)
        for name, version in versions.items():
            # All pods are back, so what was computed about these nodes is still valid.
            self._world.nodes[name].version = version
        return _Candidate(lost, _cost(lost)) if lost else None

    def _victim_units(self, info: PodInfo, node: NodeInfo, whole: bool) -> list[list[Placement]]:
        """Return the sets of pods on a node that can be preempted together, the most important first."""
        gangs: dict[GroupKey, list[Placement]] = {}
        units: list[list[Placement]] = []
        for victim in node.pods.values():
            if victim.priority >= info.priority:
                continue
            key = (victim.namespace, victim.group)
            if self._gang_of(key) is not None:
                gangs.setdefault(key, []).append((victim, node.name))
            else:
                units.append([(victim, node.name)])
        for key, members in gangs.items():
            if key != (info.namespace, info.group):
                units.extend(self._gang_units(key, members, info.priority, whole))
        return sorted(units, key=_importance)

    def _gang_units(
        self, key: GroupKey, members: list[Placement], priority: int, whole: bool
    ) -> list[list[Placement]]:
        gang = self._gang_of(key)
        everyone = self._world.group_pods(*key)
        if gang is None or (whole and any(info.priority >= priority for info, _ in everyone)):
            return []
        if whole:
            return [everyone]
        spare = [placement for placement in members if placement[0].task not in gang.tasks]
        spare.sort(key=lambda placement: _importance([placement]), reverse=True)
        return [[placement] for placement in spare[: max(len(everyone) - gang.minimum, 0)]]

    def _gang_of(self, key: GroupKey) -> Gang | None:
        if key not in self._gangs:
            self._gangs[key] = self._find_gang(key) if key[1] else None
        return self._gangs[key]

    def _is_unfit(self, info: PodInfo, node: NodeInfo) -> bool:
        return bool(unfit_reasons(info, node, topology_constraints(info, self._world)))

    def _reprieve(self, victims: list[tuple[Victim, str]]) -> set[str]:
        """Return victims that fit after all: a later victim may have released enough for both."""
        spared: set[str] = set()
        alone = [
            (victim.victim, where)
            for victim, where in victims
            if self._gang_of((victim.victim.namespace, victim.victim.group)) is None
        ]
        for info, where in sorted(alone, key=lambda placement: _importance([placement])):
            node = self._world.nodes.get(where)
            if node is not None and not self._is_unfit(info, node):
                self._restore([(info, where)])
                self._evicted.pop(info.uid)
                spared.add(info.uid)
        return spared

    def _restore_victims(self, victims: Iterable[tuple[Victim, str]]) -> None:
        for victim, where in victims:
            self._restore([(victim.victim, where)])
            self._evicted.pop(victim.victim.uid)
            self._invalidate(victim.victim)

    def _invalidate(self, info: PodInfo) -> None:
        """Discard candidates if a gang lost pods: what it can lose on a node depends on other nodes."""
        if self._gang_of((info.namespace, info.group)) is not None:
            self._candidates.clear()

    def _evict(self, info: PodInfo, node: str) -> None:
        self._world.remove(info.uid)
        self._evicted[info.uid] = (info, node)

    def _remove(self, unit: Iterable[Placement]) -> None:
        for info, _ in unit:
            self._world.remove(info.uid)

    def _restore(self, unit: Iterable[Placement]) -> None:
        for info, node in unit:
            self._world.place(info, node)


class _Candidate(Struct, frozen=True):
    pods: list[Placement]
    cost: tuple[int, int, float]


def _cost(lost: Sequence[Placement]) -> tuple[int, int, float]:
    """Return the highest priority, the number and the age of the victims: the lowest cost is best."""
    highest = max((info.priority for info, _ in lost), default=0)
    oldest = min((_created_at(info) for info, _ in lost), default=_LATEST)
    return (highest, len(lost), -oldest.timestamp())


def _importance(unit: Sequence[Placement]) -> tuple[int, int, datetime]:
    """Sort by higher priority first, then more pods, then older."""
    return (
        -max(info.priority for info, _ in unit),
        -len(unit),
        min(_created_at(info) for info, _ in unit),
    )


def _created_at(info: PodInfo) -> datetime:
    return info.pod.metadata.creation_timestamp or _LATEST
