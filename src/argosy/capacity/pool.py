"""Keeps a number of machines that have no notice.

1. A machine whose end is announced, or that is lost or deleted, leaves the pool at once, and another one is
   requested in its place while the jobs on it still save. After several short lives in a row there is a
   growing delay. If its notice is withdrawn, it is not needed any more, as in 2.
2. If there are to be fewer, first those that have not joined go, then those with the fewest pods, then the
   newest. Pods on such a machine have notice: the end of its node is announced, as by a cloud, and it is
   closed for new pods. The machine is deleted when they have left, or when their time is over.
3. A machine whose name is taken by another one gets another name.

Names are recorded before anything is created by them, and a machine is forgotten only when its object is
gone. An object of the pool that is not recorded leaves it like one that is not needed. If the whole Record is
lost, it is first rebuilt from the objects.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.capacity import pool_reasons
from argosy.capacity.pool_record import Leaving, PoolRecord, Slot, Why
from argosy.capacity.zone_rates import with_preemption
from argosy.plan.actions import EmitEvent

MAX_PENDING = 50
"""Machines that are asked for at a time: while there is no capacity for these, no others are asked for."""
MISSING_SECONDS = 5.0
"""For so long an object must be missing before its machine counts as deleted: a cache may lag behind."""
SHORT_LIFE_SECONDS = 600.0
"""A machine that was ready for less time than this had a short life."""
FREE_SHORT_LIVES = 2
"""Short lives in a row after which the next machine is still requested at once."""
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS = 30.0, 600.0
"""Before the next machine is requested after one more; doubles with each."""


class PoolMachine(Struct, frozen=True, kw_only=True):
    """What is seen of the object of a machine."""

    name: str
    uid: str
    index: int | None = None
    """Of the slot that it was created for, as its object says."""
    stamp: int = 0
    """The number at the end of its name."""
    deleting: bool = False
    zone: str = ""
    exists: bool = False
    """The provider has made it."""
    node: str = ""
    """The node that it has become."""
    ready: bool = False
    problem: str = ""
    """Why it will end or has ended; empty if nothing says so."""
    preempted: bool = False
    """The provider takes it back because it is a spot machine."""
    over: bool = False
    """It does not exist any more, so nothing on it can be saved."""
    deadline: datetime | None = None
    """Until when it exists, if its end is announced."""
    name_taken: bool = False
    """It cannot be had by this name."""


class PoolNode(Struct, frozen=True):
    """What is seen of the node of a machine."""

    uid: str
    machine: str = ""
    """Which machine of this pool it is, as its labels say; empty if none. Nothing is done to such a node."""
    closed: bool = False
    """No new pods come."""
    ends_at: datetime | None = None
    """Until when it exists, as its Node announces; None if nothing is announced."""
    pods: int = 0
    """Pods on it that have not ended, without those that run on every node."""


class PoolFacts(Struct, frozen=True, kw_only=True):
    """What is known when it is decided about a pool."""

    wanted: int
    now: datetime
    drain_seconds: float
    name_of: Callable[[int, int], str]
    """Returns the name of a machine from the index of its slot and a stamp."""
    machines: Mapping[str, PoolMachine] = field(default_factory=dict)
    """All objects of the pool, by name."""
    nodes: Mapping[str, PoolNode | None] = field(default_factory=dict)
    """The nodes that were looked at; None: there is no such node."""
    sees_all_pods: bool = True
    """Whether no other pods are on these nodes than those that were counted."""
    taken: frozenset[str] = frozenset()
    """Names of machines that cannot be created, because objects of others have them."""


class Drain(Struct, frozen=True):
    """A node whose end is to be announced."""

    node: str
    uid: str
    until: datetime


class PoolPlan(Struct, frozen=True):
    """What was decided. The Record is written before anything is done."""

    record: PoolRecord
    drains: tuple[Drain, ...] = ()
    removed: tuple[str, ...] = ()
    """Machines whose objects are deleted."""
    events: tuple[EmitEvent, ...] = ()
    requeue_at: datetime | None = None

    @property
    def released(self) -> bool:
        """Return True if no machine is left."""
        return not self.record.slots and not self.record.leaving


class _Log(Struct):
    events: list[EmitEvent] = field(default_factory=list)
    times: list[datetime] = field(default_factory=list)


def needs_nodes(record: PoolRecord, wanted: int) -> frozenset[str]:
    """Return the nodes that a decision looks at: none, unless machines leave."""
    if len(record.slots) > wanted:
        return record.nodes
    return frozenset(each.node for each in record.leaving if each.node)


def decide(before: PoolRecord | None, facts: PoolFacts) -> PoolPlan:
    """Return what is remembered and done next."""
    if before is None and facts.machines:
        return PoolPlan(_rebuild(facts), requeue_at=facts.now)
    before, log = before or PoolRecord(), _Log()
    record = _observe(before, facts, log)
    record = _replace_lost(record, facts, log)
    record = _resize(record, facts, log)
    record = _request(record, facts, log)
    record = _with_strangers(record, facts)
    return _let_go(record, facts, log)


def _rebuild(facts: PoolFacts) -> PoolRecord:
    """Return a Record with a machine in each slot that has one: of several the newest without a notice."""
    best: dict[int, PoolMachine] = {}
    for seen in sorted(facts.machines.values(), key=lambda seen: (_may_stay(seen), seen.stamp, seen.name)):
        if seen.index is not None:
            best[seen.index] = seen
    slots = tuple(
        Slot(index, seen.name, _requested_at(seen, facts.now), seen.uid, seen.node)
        for index, seen in sorted(best.items())
    )
    return PoolRecord(last_stamp=max(seen.stamp for seen in facts.machines.values()), slots=slots)


def _requested_at(seen: PoolMachine, now: datetime) -> datetime:
    """Return when a machine was requested; stamps may be ahead of the time."""
    return datetime.fromtimestamp(min(seen.stamp, now.timestamp()), UTC)


def _observe(record: PoolRecord, facts: PoolFacts, log: _Log) -> PoolRecord:
    """Return the Record with what is seen of each machine.

    A machine whose notice was withdrawn has been replaced already, and pods may have come: it is drained.
    """
    slots = []
    for slot in record.slots:
        seen = facts.machines.get(slot.machine)
        if seen is not None:
            ready_at = slot.ready_at or (facts.now if seen.ready else None)
            slot = replace(slot, uid=seen.uid, node=seen.node, ready_at=ready_at, missing_since=None)
        elif slot.uid and slot.missing_since is None:
            slot = replace(slot, missing_since=facts.now)
        slots.append(slot)
    leaving, withdrawn = [], []
    for each in record.leaving:
        seen = facts.machines.get(each.machine)
        if seen is not None and each.why is Why.LOST and not each.released and _may_stay(seen):
            withdrawn.append(seen.name)
            each = _as_surplus(seen, facts)
        leaving.append(replace(each, uid=seen.uid, node=seen.node or each.node) if seen else each)
    if withdrawn:
        log.events.append(pool_reasons.draining(withdrawn, _drained_at(facts)))
    return replace(record, slots=tuple(slots), leaving=tuple(leaving))


def _may_stay(seen: PoolMachine) -> bool:
    """Return True if nothing says that a machine ends, or that it cannot be had."""
    return not (seen.problem or seen.over or seen.deleting or seen.name_taken)


def _replace_lost(record: PoolRecord, facts: PoolFacts, log: _Log) -> PoolRecord:
    """Vacate the slots whose machine ends, is gone, or cannot be had by its name."""
    slots, leaving, rates = [], list(record.leaving), record.zone_rates
    for slot in record.slots:
        seen = facts.machines.get(slot.machine)
        is_taken = slot.machine in facts.taken or (seen is not None and seen.name_taken)
        problem = "" if is_taken else _problem(slot, seen, facts, log)
        if not problem and not is_taken:
            slots.append(slot)
            continue
        if seen is not None:
            until = seen.deadline if problem and not (seen.over or seen.deleting) else facts.now
            leaving.append(Leaving(seen.name, Why.LOST, seen.uid, seen.node, until or facts.now))
            if seen.preempted and seen.zone:
                rates = with_preemption(rates, seen.zone, facts.now)
        if is_taken:
            log.events.append(pool_reasons.name_taken(slot.machine))
            slots.append(replace(_vacant(slot), short_lives=slot.short_lives))
        else:
            log.events.append(pool_reasons.lost(slot.machine, problem))
            slots.append(_after_loss(slot, facts.now))
    return replace(record, slots=tuple(slots), leaving=tuple(leaving), zone_rates=rates)


def _problem(slot: Slot, seen: PoolMachine | None, facts: PoolFacts, log: _Log) -> str:
    """Return why the machine of a slot does not count any more; empty if it does."""
    if seen is not None:
        return seen.problem or ("its ProvisionedInstance was deleted" if seen.deleting else "")
    if slot.missing_since is None:
        return ""
    missed_at = slot.missing_since + timedelta(seconds=MISSING_SECONDS)
    if facts.now >= missed_at:
        return "its ProvisionedInstance is gone"
    log.times.append(missed_at)
    return ""


def _vacant(slot: Slot) -> Slot:
    return Slot(slot.index)


def _after_loss(slot: Slot, now: datetime) -> Slot:
    """Return the slot without a machine, and when the next one may be requested."""
    lived = (now - slot.ready_at).total_seconds() if slot.ready_at else 0.0
    short_lives = 0 if lived >= SHORT_LIFE_SECONDS else slot.short_lives + 1
    return replace(_vacant(slot), short_lives=short_lives, not_before=now + delay_after(short_lives))


def delay_after(short_lives: int) -> timedelta:
    """Return how long the next machine waits after so many short lives in a row."""
    further = short_lives - FREE_SHORT_LIVES
    if further <= 0:
        return timedelta()
    return timedelta(seconds=min(FIRST_DELAY_SECONDS * 2.0 ** min(further - 1, 10), MAX_DELAY_SECONDS))


def _resize(record: PoolRecord, facts: PoolFacts, log: _Log) -> PoolRecord:
    """Return the Record with as many slots as are wanted."""
    surplus = len(record.slots) - facts.wanted
    if surplus < 0:
        used = {slot.index for slot in record.slots}
        free = [index for index in range(facts.wanted) if index not in used][:-surplus]
        slots = sorted((*record.slots, *map(Slot, free)), key=lambda slot: slot.index)
        return replace(record, slots=tuple(slots))
    if surplus == 0:
        return record
    going = sorted(record.slots, key=lambda slot: _order_of_release(slot, facts))[:surplus]
    leaving, drained = list(record.leaving), []
    for slot in going:
        seen = facts.machines.get(slot.machine)
        if seen is None:
            continue  # if it was created after all, it is found as one that is not recorded
        leaving.append(_as_surplus(seen, facts))
        if seen.node:
            drained.append(seen.name)
    if drained:
        log.events.append(pool_reasons.draining(drained, _drained_at(facts)))
    indexes = {slot.index for slot in going}
    kept = tuple(slot for slot in record.slots if slot.index not in indexes)
    return replace(record, slots=kept, leaving=tuple(leaving))


def _as_surplus(seen: PoolMachine, facts: PoolFacts) -> Leaving:
    """Return a machine that is not needed any more; nothing runs on one that has not joined."""
    until = _drained_at(facts) if seen.node else facts.now
    return Leaving(seen.name, Why.SURPLUS, seen.uid, seen.node, until)


def _drained_at(facts: PoolFacts) -> datetime:
    return facts.now + timedelta(seconds=facts.drain_seconds)


def _order_of_release(slot: Slot, facts: PoolFacts) -> tuple[int, int, float, int]:
    """Return the key of a slot in the order in which machines are given up."""
    seen = facts.machines.get(slot.machine)
    stage = 0 if not slot.machine or seen is None else 2 if seen.node else 1
    node = facts.nodes.get(slot.node)
    pods = node.pods if node is not None else 0
    newest = -slot.requested_at.timestamp() if slot.requested_at else 0.0
    return stage, pods, newest, -slot.index


def _request(record: PoolRecord, facts: PoolFacts, log: _Log) -> PoolRecord:
    """Name the machines that are requested now."""
    slots, stamp = [], record.last_stamp
    names: list[str] = []
    pending = sum(1 for slot in record.slots if slot.machine and not _exists(slot, facts))
    for slot in record.slots:
        if not slot.machine and slot.not_before is not None and facts.now < slot.not_before:
            log.times.append(slot.not_before)
        elif not slot.machine and pending + len(names) < MAX_PENDING:
            stamp = max(int(facts.now.timestamp()), stamp + 1)
            name = facts.name_of(slot.index, stamp)
            slot = replace(slot, machine=name, requested_at=facts.now, not_before=None)
            names.append(name)
        slots.append(slot)
    if names:
        log.events.append(pool_reasons.requested(names))
    return replace(record, slots=tuple(slots), last_stamp=stamp)


def _exists(slot: Slot, facts: PoolFacts) -> bool:
    seen = facts.machines.get(slot.machine)
    return seen is not None and seen.exists


def _with_strangers(record: PoolRecord, facts: PoolFacts) -> PoolRecord:
    """Return the Record with objects of the pool that it does not name among those that leave."""
    known = {slot.machine for slot in record.slots} | {each.machine for each in record.leaving}
    machines = sorted(facts.machines.items())
    strangers = [_as_surplus(seen, facts) for name, seen in machines if name not in known]
    return replace(record, leaving=(*record.leaving, *strangers)) if strangers else record


def _let_go(record: PoolRecord, facts: PoolFacts, log: _Log) -> PoolPlan:
    """Announce the end of nodes that are not needed, and delete machines whose time has come."""
    left: list[Leaving] = []
    drains: list[Drain] = []
    removed: list[str] = []
    for before in record.leaving:
        seen = facts.machines.get(before.machine)
        if seen is None:
            continue
        each = replace(before, until=_end_of(before, seen))
        released = each.released or seen.deleting or _may_go(each, seen, facts)
        if released and not each.released:
            log.events.append(pool_reasons.released(each.machine))
        left.append(replace(before, released=released))
        if released and not seen.deleting:
            removed.append(seen.name)
        elif not released:
            drains += _drain(each, facts)
            log.times += [each.until] if each.until else []
    record = replace(record, leaving=tuple(left))
    return PoolPlan(record, tuple(drains), tuple(removed), tuple(log.events), min(log.times, default=None))


def _may_go(leaving: Leaving, seen: PoolMachine, facts: PoolFacts) -> bool:
    """Return True if a machine is deleted: nothing runs there any more, or its time is over."""
    if seen.over or not leaving.node or leaving.until is None or facts.now >= leaving.until:
        return True
    if leaving.node not in facts.nodes:
        return False
    node = facts.nodes[leaving.node]
    if node is None:
        return True
    is_empty = facts.sees_all_pods and node.machine == leaving.machine and node.pods == 0
    return is_empty and (_is_told(node, leaving) or leaving.why is Why.LOST)


def _drain(leaving: Leaving, facts: PoolFacts) -> Iterator[Drain]:
    """Yield the announcement that the node of a machine needs."""
    node = facts.nodes.get(leaving.node)
    if node is None or node.machine != leaving.machine or leaving.until is None:
        return
    if leaving.why is Why.SURPLUS and not _is_told(node, leaving):
        yield Drain(leaving.node, node.uid, leaving.until)


def _is_told(node: PoolNode, leaving: Leaving) -> bool:
    """Return True if pods on a node know that it goes at the latest when its machine does, and none come."""
    if not node.closed or node.ends_at is None or leaving.until is None:
        return False
    return node.ends_at <= leaving.until


def _end_of(leaving: Leaving, seen: PoolMachine) -> datetime | None:
    """Return until when a machine may stay. The deadline of its notice may change, and go with the notice."""
    if seen.deadline is None or leaving.until is None:
        return leaving.until or seen.deadline
    return seen.deadline if leaving.why is Why.LOST else min(leaving.until, seen.deadline)
