"""Who goes where: one pass over everything that waits.

Single pods and gangs stand in one line, by priority and age. A gang is placed whole (at least its minimum)
or not at all. Gangs that have some members bound already (a bind failed, or the scheduler was killed between
two binds) go first, whatever their priority, because only room completes them.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from argosy.local.scheduler.fit import Fitting, Refusal
from argosy.local.scheduler.gangs import Decision, Gang, Gangs, GroupKey
from argosy.local.scheduler.resources import Amounts, add, amounts, missing
from argosy.local.scheduler.world import PodFacts, World

EPOCH = datetime.fromtimestamp(0, UTC)


def decide(world: World, waiting: Iterable[PodFacts], gangs: Mapping[GroupKey, Gang]) -> Decision:
    """Places what can be placed, into `world` as well: the caller binds it or takes it out again."""
    decision = Decision()
    fitting = Fitting(world)
    placing = Gangs(world, fitting)
    for key, members in _line(waiting, gangs):
        gang = gangs.get(key) if key else None
        if gang is not None and key is not None:
            placing.place(key, gang, members, decision)
        elif key is not None:
            message = f'PodGroup "{key[0]}/{key[1]}" not found'
            decision.refused.extend((facts, message) for facts in members)
        else:
            _place_each(members, fitting, decision)
    return decision


def queueable(world: World, least: Amounts, *, overcommit: float = 1.2) -> bool:
    """Whether the cluster has a group's least resources; like Volcano, counts a little more than is free."""
    free: Amounts = {}
    for room in world.rooms.values():
        if not room.node.spec.unschedulable:
            add(free, {name: int(value * overcommit) for name, value in room.allocatable.items()})
            add(free, {name: -value for name, value in room.used.items()})
    return not missing(least, {}, free)


def least_resources(quantities: Mapping[str, str | int | float]) -> Amounts:
    return amounts({name.removeprefix("requests."): value for name, value in quantities.items()})


def _line(
    waiting: Iterable[PodFacts], gangs: Mapping[GroupKey, Gang]
) -> list[tuple[GroupKey | None, list[PodFacts]]]:
    groups: dict[GroupKey, list[PodFacts]] = {}
    units: list[tuple[GroupKey | None, list[PodFacts]]] = []
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
    units.sort(key=lambda unit: not (unit[0] is not None and unit[0] in gangs and gangs[unit[0]].begun))
    return units


def _turn(facts: PodFacts) -> tuple[int, datetime, str, str]:
    meta = facts.pod.metadata
    return (-facts.priority, meta.creation_timestamp or EPOCH, meta.namespace, meta.name)


def _place_each(members: Sequence[PodFacts], fitting: Fitting, decision: Decision) -> None:
    for facts in members:
        node = fitting.place(facts)
        if isinstance(node, Refusal):
            decision.refused.append((facts, node.message))
        else:
            decision.bind.append((facts, node))
