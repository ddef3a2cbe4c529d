"""Who goes where: one pass over everything that waits.

Single pods and gangs stand in one line, by priority and age. A gang is placed whole (at least its minimum)
or not at all: what was tried is taken back before the next in line is looked at, so two gangs can never
hold half a cluster each and wait for the other. Gangs that have some members bound already (a bind failed,
or the scheduler was killed between two binds) go first, whatever their priority, because only room
completes them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field

from argosy.local.scheduler.fit import Fitting, Refusal
from argosy.local.scheduler.resources import Amounts, add, amounts, missing
from argosy.local.scheduler.world import PodFacts, World

GroupKey = tuple[str, str]
EPOCH = datetime.fromtimestamp(0, UTC)


class Gang(Struct, frozen=True):
    """A PodGroup and where its pods stand, the waiting ones aside."""

    minimum: int
    tasks: Mapping[str, int] = {}
    """Minimum per task, for groups that declare it."""
    bound: Mapping[str, int] = {}
    """How many pods of each task already have a node or are done."""
    queued: bool = True
    """False while the cluster could not hold what the group declares as its least resources."""

    @property
    def begun(self) -> bool:
        return 0 < sum(self.bound.values()) < self.minimum


class GangOutcome(Struct, frozen=True):
    placed: bool
    message: str = ""


class Decision(Struct):
    bind: list[tuple[PodFacts, str]] = field(default_factory=list)
    refused: list[tuple[PodFacts, str]] = field(default_factory=list)
    gangs: dict[GroupKey, GangOutcome] = field(default_factory=dict)


def decide(world: World, waiting: Iterable[PodFacts], gangs: Mapping[GroupKey, Gang]) -> Decision:
    """Places what can be placed, into `world` as well: the caller binds it or takes it out again."""
    decision = Decision()
    fitting = Fitting(world)
    for key, members in _line(waiting, gangs):
        gang = gangs.get(key) if key else None
        if gang is not None and key is not None:
            _place_gang(key, gang, members, fitting, world, decision)
        elif key is not None:
            message = f'PodGroup "{key[0]}/{key[1]}" not found'
            decision.refused.extend((facts, message) for facts in members)
        else:
            _place_each(members, fitting, decision)
    return decision


def queueable(world: World, least: Amounts, *, overcommit: float = 1.2) -> bool:
    """Whether the cluster has the group's least resources, counting a little more than is free, as Volcano
    does.
    """
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


def _place_gang(
    key: GroupKey, gang: Gang, members: list[PodFacts], fitting: Fitting, world: World, decision: Decision
) -> None:
    """The gang's minimum or nothing; members beyond the minimum come along if there is room."""
    bound = sum(gang.bound.values())
    needed = gang.minimum - bound
    if gang.queued and needed <= len(members):
        trial = _try(gang, members, fitting, pack=False)
        if not trial.enough and needed > 0 and len({facts.shape for facts in members}) > 1:
            fitting.take_back([facts.uid for facts, _ in trial.placed])
            if _total_fits(members[:needed], world):
                bulky = sorted(members, key=lambda facts: sorted(facts.requests.values()), reverse=True)
                trial = _try(gang, bulky, fitting, pack=True)
        if trial.enough:
            decision.bind.extend(trial.placed)
            decision.refused.extend(trial.refused)
            decision.gangs[key] = GangOutcome(placed=True)
            return
        fitting.take_back([facts.uid for facts, _ in trial.placed if world.where(facts.uid)])
    else:
        trial = _Trial()
    message = _gang_message(gang, members, trial)
    decision.gangs[key] = GangOutcome(placed=False, message=message)
    reasons = {facts.uid: text for facts, text in trial.refused}
    decision.refused.extend((facts, reasons.get(facts.uid, message)) for facts in members)


class _Trial(Struct):
    placed: list[tuple[PodFacts, str]] = field(default_factory=list)
    refused: list[tuple[PodFacts, str]] = field(default_factory=list)
    enough: bool = False


def _try(gang: Gang, members: Sequence[PodFacts], fitting: Fitting, *, pack: bool) -> _Trial:
    trial = _Trial()
    bound = sum(gang.bound.values())
    for facts in members:
        node = fitting.place(facts, pack=pack)
        if isinstance(node, Refusal):
            trial.refused.append((facts, node.message))
            if bound + len(members) - len(trial.refused) < gang.minimum:
                break
        else:
            trial.placed.append((facts, node))
    tasks = Counter(gang.bound)
    tasks.update(facts.task for facts, _ in trial.placed)
    trial.enough = tasks.total() >= gang.minimum and all(
        tasks[task] >= least for task, least in gang.tasks.items()
    )
    return trial


def _total_fits(members: Sequence[PodFacts], world: World) -> bool:
    asked: Amounts = {}
    free: Amounts = {}
    for facts in members:
        add(asked, facts.requests)
    for room in world.rooms.values():
        add(free, room.allocatable)
        add(free, {name: -value for name, value in room.used.items()})
    return not missing(asked, {}, free)


def _gang_message(gang: Gang, members: Sequence[PodFacts], trial: _Trial) -> str:
    """Volcano's sentence about a gang that cannot start."""
    bound = sum(gang.bound.values())
    counts = {
        "Schedulable": len(trial.placed),
        "Undetermined": len(members) - len(trial.placed) - len(trial.refused),
        "Unschedulable": len(trial.refused),
    }
    pending = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    known = f"{bound} Bound, {len(members)} Pending" if bound else f"{len(members)} Pending"
    lacking = max(gang.minimum - bound, 0)
    return (
        f"{lacking}/{bound + len(members)} tasks in gang unschedulable: pod group is not ready, "
        f"{known}, {gang.minimum} minAvailable" + (f"; Pending: {pending}" if pending else "")
    )
