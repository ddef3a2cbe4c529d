"""Who goes where: one pass over everything that waits.

Single pods and gangs stand in one line, by priority and age. A gang is placed whole (at least its minimum)
or not at all. Gangs that have some members bound already (a bind failed, or the scheduler was killed between
two binds) go first, whatever their priority, because only room completes them. What of one priority has no
room may be given that of lower ones, before those are looked at.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from argosy.kinds.resources import Resources, add, insufficient, parse_resources
from argosy.local.scheduler.gangs import Gang, Gangs
from argosy.local.scheduler.node_heap import Fitting, Refusal
from argosy.local.scheduler.outcome import Decision, GroupKey
from argosy.local.scheduler.preemption import SINGLE, Preempting
from argosy.local.scheduler.scheduler_cache import PodFacts, World

EPOCH = datetime.fromtimestamp(0, UTC)


Unit = tuple[GroupKey | None, list[PodFacts]]


def decide(
    world: World,
    waiting: Iterable[PodFacts],
    gangs: Mapping[GroupKey, Gang],
    gang_of: Callable[[GroupKey], Gang | None] | None = None,
) -> Decision:
    """Places what can be placed, into `world` as well: the caller binds it or takes it out again.

    `gang_of` finds gangs beyond those that wait: some may have to give up their room.
    """
    world.census.forget()
    decision = Decision()
    fitting = Fitting(world)
    placing = Gangs(world, fitting)
    preempting = Preempting(world, fitting, gang_of or gangs.get)
    for (_, priority), level in groupby(_line(waiting, gangs), key=lambda unit: _rank(unit, gangs)):
        refused = [unit for unit in level if not _place(unit, gangs, placing, fitting, decision)]
        if refused and preempting.possible(priority):
            _preempt(refused, gangs, preempting, decision)
    for uid in decision.nominated:
        world.remove(uid)
    world.census.forget()
    return decision


def _place(
    unit: Unit, gangs: Mapping[GroupKey, Gang], placing: Gangs, fitting: Fitting, decision: Decision
) -> bool:
    """Whether a pod or a gang has its place now; or could have none if there were room."""
    key, members = unit
    if key is None:
        return _place_each(members, fitting, decision)
    if key in gangs:
        return placing.place(key, gangs[key], members, decision)
    message = f'PodGroup "{key[0]}/{key[1]}" not found'
    decision.refused.extend((facts, message) for facts in members)
    return True


def _preempt(
    refused: Sequence[Unit], gangs: Mapping[GroupKey, Gang], preempting: Preempting, decision: Decision
) -> None:
    preempting.begin()
    for key, members in refused:
        found = preempting.make_room(members, gangs[key] if key is not None else SINGLE)
        if found is not None:
            decision.victims.extend(found.victims)
            decision.nominated.update((facts.uid, node) for facts, node in found.nominated)
    preempting.end()


def queueable(world: World, least: Resources, *, overcommit: float = 1.2) -> bool:
    """Whether the cluster has a group's least resources; like Volcano, counts a little more than is free."""
    free: Resources = {}
    for room in world.rooms.values():
        if not room.node.spec.unschedulable:
            add(free, {name: int(value * overcommit) for name, value in room.allocatable.items()})
            add(free, {name: -value for name, value in room.used.items()})
    return not insufficient(least, {}, free)


def least_resources(quantities: Mapping[str, str | int | float]) -> Resources:
    return parse_resources({name.removeprefix("requests."): value for name, value in quantities.items()})


def _line(waiting: Iterable[PodFacts], gangs: Mapping[GroupKey, Gang]) -> list[Unit]:
    groups: dict[GroupKey, list[PodFacts]] = {}
    units: list[Unit] = []
    for facts in sorted(waiting, key=_turn):
        key = (facts.namespace, facts.group)
        alone = not facts.group or (key not in gangs and facts.pod.spec.scheduler_name == "default-scheduler")
        if alone:
            units.append((None, [facts]))
        elif key in groups:
            groups[key].append(facts)
        else:
            groups[key] = [facts]
            units.append((key, groups[key]))
    units.sort(key=lambda unit: _rank(unit, gangs)[0])
    return units


def _rank(unit: Unit, gangs: Mapping[GroupKey, Gang]) -> tuple[bool, int]:
    key, members = unit
    return (not (key is not None and key in gangs and gangs[key].begun), members[0].priority)


def _turn(facts: PodFacts) -> tuple[int, bool, datetime, str, str]:
    """Among equals the one for which others have left goes first."""
    meta = facts.pod.metadata
    nominated = bool(facts.pod.status.nominated_node_name)
    return (-facts.priority, not nominated, meta.creation_timestamp or EPOCH, meta.namespace, meta.name)


def _place_each(members: Sequence[PodFacts], fitting: Fitting, decision: Decision) -> bool:
    before = len(decision.refused)
    for facts in members:
        node = fitting.place(facts)
        if isinstance(node, Refusal):
            decision.refused.append((facts, node.message))
        else:
            decision.bind.append((facts, node))
    return len(decision.refused) == before
