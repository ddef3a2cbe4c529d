"""Places a gang completely, or not at all.

A failed attempt is undone before the next gang is considered, so two gangs can never hold half a cluster each
and wait for each other.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from argosy.kinds.resources import Resources, add, insufficient
from argosy.local.scheduler.interpod_affinity import depends_on_pods
from argosy.local.scheduler.node_heap import PodPlacer, Unschedulable
from argosy.local.scheduler.outcome import Decision, GangOutcome, GroupKey, Placement
from argosy.local.scheduler.scheduler_cache import PodInfo, SchedulerCache

Signature = tuple[object, ...]


class Gang(Struct, frozen=True):
    """A PodGroup and how many of its pods are bound."""

    minimum: int
    tasks: Mapping[str, int] = {}
    """Minimum per task, for groups that declare it."""
    bound: Mapping[str, int] = {}
    """How many pods of each task already have a node or are done."""
    queued: bool = True
    """False while the cluster could not hold what the group declares as its least resources."""

    @property
    def partially_bound(self) -> bool:
        return 0 < sum(self.bound.values()) < self.minimum


class GangPlacer:
    """Places gangs during one pass, and remembers the shapes of gangs that did not fit.

    Within a pass free resources only shrink, so a gang with the same requests as one that did not fit is
    rejected without a trial: a thousand equal pending gangs cost one trial.
    """

    def __init__(self, cache: SchedulerCache, placer: PodPlacer) -> None:
        self._world = cache
        self._placer = placer
        self._unschedulable: dict[Signature, Trial] = {}

    def place(self, key: GroupKey, gang: Gang, members: Sequence[PodInfo], decision: Decision) -> bool:
        """Place at least the gang's minimum or nothing; members beyond it are placed if they fit."""
        trial = self._trial(gang, members)
        if trial.meets_minimum:
            decision.bind.extend(trial.placed)
            decision.unschedulable.extend(
                (members[index], text) for index, text in trial.unschedulable.items()
            )
            decision.gangs[key] = GangOutcome(placed=True)
            return True
        message = _gang_message(gang, members, trial)
        decision.gangs[key] = GangOutcome(placed=False, message=message)
        decision.unschedulable.extend(
            (info, trial.unschedulable.get(index, message)) for index, info in enumerate(members)
        )
        return False

    def _trial(self, gang: Gang, members: Sequence[PodInfo]) -> "Trial":
        needed = gang.minimum - sum(gang.bound.values())
        if not gang.queued or needed > len(members):
            return Trial()
        signature = self._signature(gang, members)
        if signature is not None and signature in self._unschedulable:
            return self._unschedulable[signature]
        trial = self._try(gang, members, range(len(members)), pack=False)
        if not trial.meets_minimum and needed > 0 and len({info.shape for info in members}) > 1:
            self._placer.undo([info.uid for info, _ in trial.placed])
            if needed < len(members) or _total_fits(members, self._world):
                trial = self._try(gang, members, largest_first(members), pack=True)
        if not trial.meets_minimum:
            self._placer.undo([info.uid for info, _ in trial.placed])
            if signature is not None:
                self._unschedulable[signature] = trial
        return trial

    def _try(self, gang: Gang, members: Sequence[PodInfo], order: Iterable[int], *, pack: bool) -> "Trial":
        trial = Trial()
        bound = sum(gang.bound.values())
        for index in order:
            node = self._placer.place(members[index], pack=pack)
            if isinstance(node, Unschedulable):
                trial.unschedulable[index] = node.message
                if bound + len(members) - len(trial.unschedulable) < gang.minimum:
                    break
            else:
                trial.placed.append((members[index], node))
        trial.meets_minimum = meets_minimum(gang, trial.placed)
        return trial

    def _signature(self, gang: Gang, members: Sequence[PodInfo]) -> Signature | None:
        if any(depends_on_pods(info, self._world) for info in members):
            return None
        requested = tuple((info.shape, info.task) for info in members)
        return (gang.minimum, tuple(gang.tasks.items()), tuple(sorted(gang.bound.items())), requested)


class Trial(Struct):
    """The result of an attempt to place a gang; `unschedulable` is by position in the gang."""

    placed: list[Placement] = field(default_factory=list)
    unschedulable: dict[int, str] = field(default_factory=dict)
    meets_minimum: bool = False


def meets_minimum(gang: Gang, placed: Iterable[Placement]) -> bool:
    """Return True if a gang can start with these placements and its bound pods."""
    tasks = Counter(gang.bound)
    tasks.update(info.task for info, _ in placed)
    return tasks.total() >= gang.minimum and all(tasks[task] >= least for task, least in gang.tasks.items())


def largest_first(members: Sequence[PodInfo]) -> list[int]:
    return sorted(
        range(len(members)), key=lambda index: sorted(members[index].requests.values()), reverse=True
    )


def _total_fits(members: Sequence[PodInfo], cache: SchedulerCache) -> bool:
    requested: Resources = {}
    free: Resources = {}
    for info in members:
        add(requested, info.requests)
    for node in cache.nodes.values():
        add(free, node.allocatable)
        add(free, {name: -value for name, value in node.requested.items()})
    return not insufficient(requested, {}, free)


def _gang_message(gang: Gang, members: Sequence[PodInfo], trial: Trial) -> str:
    """Return Volcano's message about a gang that cannot start."""
    bound = sum(gang.bound.values())
    counts = {
        "Schedulable": len(trial.placed),
        "Undetermined": len(members) - len(trial.placed) - len(trial.unschedulable),
        "Unschedulable": len(trial.unschedulable),
    }
    pending = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    summary = f"{bound} Bound, {len(members)} Pending" if bound else f"{len(members)} Pending"
    lacking = max(gang.minimum - bound, 0)
    return (
        f"{lacking}/{bound + len(members)} tasks in gang unschedulable: pod group is not ready, "
        f"{summary}, {gang.minimum} minAvailable" + (f"; Pending: {pending}" if pending else "")
    )
