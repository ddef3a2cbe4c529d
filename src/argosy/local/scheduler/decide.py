"""One scheduling pass: decides placements for all pending pods.

Single pods and gangs are in one queue, by priority and age. A gang is placed completely (at least its
minimum) or not at all. Gangs with some members bound already (a bind failed, or the scheduler was killed
between two binds) come first, whatever their priority, because otherwise they would hold resources without
being able to start. Pods that do not fit may preempt pods of lower priority before those are considered.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from argosy.kinds.resources import Resources, add, insufficient, parse_resources
from argosy.local.scheduler.gangs import Gang, GangPlacer
from argosy.local.scheduler.node_heap import PodPlacer, Unschedulable
from argosy.local.scheduler.outcome import Decision, GroupKey
from argosy.local.scheduler.preemption import SINGLE_POD, PreemptionPass
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache

EPOCH = datetime.fromtimestamp(0, UTC)


Unit = tuple[GroupKey | None, list[PodInfo]]


def decide(
    cache: SchedulerCache,
    waiting: Iterable[PodInfo],
    gangs: Mapping[GroupKey, Gang],
    gang_of: Callable[[GroupKey], Gang | None] | None = None,
) -> Decision:
    """Place what can be placed, also in `cache`: the caller binds the pods or removes them again.

    `gang_of` finds gangs that are not pending, whose pods may be preempted.
    """
    cache.topology.reset()
    decision = Decision()
    placer = PodPlacer(cache)
    placing = GangPlacer(cache, placer)
    preempting = PreemptionPass(cache, placer, gang_of or gangs.get)
    for (_, priority), level in groupby(_queue(waiting, gangs), key=lambda unit: _rank(unit, gangs)):
        not_placed = [unit for unit in level if not _place(unit, gangs, placing, placer, decision)]
        if not_placed and preempting.is_possible(priority):
            _preempt(not_placed, gangs, preempting, decision)
    for uid in decision.nominated:
        cache.remove(uid)
    cache.topology.reset()
    return decision


def _place(
    unit: Unit, gangs: Mapping[GroupKey, Gang], placing: GangPlacer, placer: PodPlacer, decision: Decision
) -> bool:
    """Return False if preemption might help: the pod or gang was not placed for lack of resources."""
    key, members = unit
    if key is None:
        return _place_pods(members, placer, decision)
    if key in gangs:
        return placing.place(key, gangs[key], members, decision)
    message = f'PodGroup "{key[0]}/{key[1]}" not found'
    decision.unschedulable.extend((info, message) for info in members)
    return True


def _preempt(
    units: Sequence[Unit], gangs: Mapping[GroupKey, Gang], preempting: PreemptionPass, decision: Decision
) -> None:
    preempting.begin()
    for key, members in units:
        preemption = preempting.preempt_for(members, gangs[key] if key is not None else SINGLE_POD)
        if preemption is not None:
            decision.victims.extend(preemption.victims)
            decision.nominated.update((info.uid, node) for info, node in preemption.nominated)
    preempting.end()


def can_enqueue(cache: SchedulerCache, least: Resources, *, overcommit: float = 1.2) -> bool:
    """Return True if the cluster can hold a group's minResources; overcommits a little, as Volcano does."""
    free: Resources = {}
    for node in cache.nodes.values():
        if not node.node.spec.unschedulable:
            add(free, {name: int(value * overcommit) for name, value in node.allocatable.items()})
            add(free, {name: -value for name, value in node.requested.items()})
    return not insufficient(least, {}, free)


def parse_min_resources(quantities: Mapping[str, str | int | float]) -> Resources:
    return parse_resources({name.removeprefix("requests."): value for name, value in quantities.items()})


def _queue(waiting: Iterable[PodInfo], gangs: Mapping[GroupKey, Gang]) -> list[Unit]:
    groups: dict[GroupKey, list[PodInfo]] = {}
    units: list[Unit] = []
    for info in sorted(waiting, key=_queue_order):
        key = (info.namespace, info.group)
        alone = not info.group or (key not in gangs and info.pod.spec.scheduler_name == "default-scheduler")
        if alone:
            units.append((None, [info]))
        elif key in groups:
            groups[key].append(info)
        else:
            groups[key] = [info]
            units.append((key, groups[key]))
    units.sort(key=lambda unit: _rank(unit, gangs)[0])
    return units


def _rank(unit: Unit, gangs: Mapping[GroupKey, Gang]) -> tuple[bool, int]:
    key, members = unit
    return (not (key is not None and key in gangs and gangs[key].partially_bound), members[0].priority)


def _queue_order(info: PodInfo) -> tuple[int, bool, datetime, str, str]:
    """Order by priority; among equals, pods with a nominated node come first."""
    meta = info.pod.metadata
    nominated = bool(info.pod.status.nominated_node_name)
    return (-info.priority, not nominated, meta.creation_timestamp or EPOCH, meta.namespace, meta.name)


def _place_pods(members: Sequence[PodInfo], placer: PodPlacer, decision: Decision) -> bool:
    before = len(decision.unschedulable)
    for info in members:
        node = placer.place(info)
        if isinstance(node, Unschedulable):
            decision.unschedulable.append((info, node.message))
        else:
            decision.bind.append((info, node))
    return len(decision.unschedulable) == before
