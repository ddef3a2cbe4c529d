"""Fits elastic roles that resize while they run to the capacity of the cluster.

`RoleRecord.members` is the size that a role has, `declared` the one that the spec asks for. Each reconcile
changes the size of a role at most once:

1. Replicas that were added and run become members.
2. Members that cannot be placed stop being members after the stabilization window. If only multiples of a
   number are allowed, a lost member takes others with it at once, so that an allowed size is left. A role
   below its minimum is left as it is, and waits for a limited time.
3. While the role is smaller than declared, replicas are added: `RoleRecord.joining`. Their pods may wait for
   capacity as long as necessary, where an autoscaler sees them. If only multiples are allowed, pods that
   have a node wait in their init container until enough of them have one (`waits_to_join`). They give up
   after the stabilization window, so as not to hold resources that others could use.

A role that has grown and soon loses replicas again is on nodes that come and go. It grows again only after
the stabilization window, doubled each time.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import messages, reasons
from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import current_pods
from argosy.workload.elastic import adapts_to_capacity, running_indexes, spare_indexes
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Elastic, Phase, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord
from argosy.workload.victims import choose_victims

STABLE_WINDOWS = 10
"""A role that has kept its size for so many stabilization windows is stable."""
MAX_HOLD_SECONDS = 86_400.0
"""How long a role does not grow, at most."""
MAX_DOUBLINGS = 4
"""How often the stabilization window is doubled."""


class CapacityPlan(Struct, frozen=True):
    record: Record
    requeue_at: datetime | None = None


class _Step(Struct, frozen=True, dict=True):
    """What the size of a role is decided from."""

    workload: Workload
    role: Role
    bounds: Elastic
    record: Record
    observed: Observed
    now: datetime

    @property
    def last(self) -> RoleRecord:
        return self.record.role(self.role.name)

    @cached_property
    def pods(self) -> dict[int, ObservedPod]:
        """Current pods by index."""
        return {pod.index: pod for pod in current_pods(self.record, self.role.name, self.observed)}

    def with_role(self, last: RoleRecord) -> "_Step":
        return replace(self, record=self.record.with_role(self.role.name, last))

    def resized(self, last: RoleRecord, why: str) -> "_Step":
        """Return the step with another size of the role, and a line of history about it."""
        message = f"{messages.resized([(self.role.name, self.last.size, last.size)], None)}: {why}"
        record = self.record.with_role(self.role.name, last)
        return replace(self, record=record.with_history(self.now, reasons.RESIZED, message))


def fit_to_capacity(workload: Workload, record: Record, observed: Observed, now: datetime) -> CapacityPlan:
    """Return the record with the sizes that elastic roles can have now, and when to look again."""
    times: list[datetime] = []
    for name, role in workload.roles.items():
        if role.elastic is None or not adapts_to_capacity(workload, role):
            continue
        last = record.role(name)
        if last.phase is not Phase.RUNNING:
            if last.joining:
                record = record.with_role(name, replace(last, joining=EMPTY))
            continue
        if last.succeeded_indexes:
            continue  # the training ends: sizes do not matter any more
        step = _fit(_Step(workload, role, role.elastic, record, observed, now))
        record = step.record
        times += _next_times(step)
    return CapacityPlan(record, min(times, default=None))


def hold_after_loss(bounds: Elastic, last: RoleRecord, now: datetime) -> RoleRecord:
    """Return a role that loses replicas with the time until which it must not grow, if it has just grown."""
    if last.grown_at is None or not _is_recent(bounds, last.grown_at, now):
        return replace(last, flaps=0, grow_at=None)
    return _hold(bounds, last, now)


def is_held(last: RoleRecord, now: datetime) -> bool:
    """Return True if no replicas may be added to the role now."""
    return last.grow_at is not None and now < last.grow_at


def _hold(bounds: Elastic, last: RoleRecord, now: datetime) -> RoleRecord:
    """Return the role with one more change that did not last, and the time until which it must not grow."""
    in_a_row = last.grow_at is not None and _is_recent(bounds, last.grow_at, now)
    flaps = last.flaps + 1 if in_a_row else 1
    seconds = min(bounds.stabilization * 2 ** min(flaps - 1, MAX_DOUBLINGS), MAX_HOLD_SECONDS)
    return replace(last, flaps=flaps, grow_at=now + timedelta(seconds=seconds))


def _is_recent(bounds: Elastic, time: datetime, now: datetime) -> bool:
    return (now - time).total_seconds() < STABLE_WINDOWS * bounds.stabilization


def _fit(step: _Step) -> _Step:
    """Return the step after the first change that is due."""
    for change in _CHANGES:
        after = change(step)
        if after is not None:
            return after
    return step


def _promote(step: _Step) -> _Step | None:
    """Make replicas members that were added and are placed, as many as an allowed size needs."""
    last = step.last
    if not last.joining:
        return None
    pods = step.pods
    up = [index for index in last.joining if index in pods and _is_up(pods[index])]
    size = _largest_allowed(step.bounds, last.size + len(up))
    if size is None or size <= last.size:
        return None
    new = IndexSet.of(up[: size - last.size])
    grown = replace(last.with_members(last.members | new), joining=last.joining - new, grown_at=step.now)
    return step.resized(replace(grown, created=grown.created | new), messages.CAPACITY_RETURNED)


def _shrink(step: _Step) -> _Step | None:
    """Remove members that cannot be placed and, if need be, others so that an allowed size is left."""
    last, unplaced = step.last, _unplaced(step)
    missing = unplaced | (_lost(step) if step.bounds.multiple_of > 1 else EMPTY)
    if not missing:
        return None
    alive = last.members - missing
    size = _largest_allowed(step.bounds, len(alive))
    if size is None:
        return None  # below the minimum: wait
    names = (step.role.name, step.record, step.observed)
    victims = choose_victims(step.workload, *names, alive, len(alive) - size)
    members = alive - victims
    if not step.bounds.allows(len(members)):
        return None
    shrunk = hold_after_loss(step.bounds, last.with_members(members), step.now)
    # Pods that wait for a node are kept, unless they need others for an allowed size.
    waiting = last.joining | unplaced
    keeps_pods = step.bounds.allows(len(members | waiting)) and not is_held(shrunk, step.now)
    shrunk = replace(shrunk, joining=waiting if keeps_pods else EMPTY)
    return step.resized(shrunk, _describe_missing(step, missing))


def _abandon(step: _Step) -> _Step | None:
    """Give up replicas that failed before they were members, or that have no allowed size together."""
    last = step.last
    if not last.joining:
        return None
    pods = [pod for index, pod in step.pods.items() if index in last.joining]
    failed = IndexSet.of(pod.index for pod in pods if pod.ended)
    partly_placed = any(pod.node for pod in pods) and any(_is_unplaced(step, pod) for pod in pods)
    if step.bounds.multiple_of > 1 and (failed or partly_placed):
        failed = last.joining
    if not failed:
        return None
    return step.with_role(replace(_hold(step.bounds, last, step.now), joining=last.joining - failed))


def _grow(step: _Step) -> _Step | None:
    """Add replicas up to the declared size, of which any may be placed at any time."""
    last = step.last
    # The number of the spec is not declared yet while a checkpoint is saved before replicas leave.
    size = _largest_allowed(step.bounds, min(step.role.replicas, last.declared))
    missing = (size or 0) - last.size - len(last.joining)
    if missing <= 0 or is_held(last, step.now):
        return None
    if step.bounds.multiple_of > 1 and last.joining:
        return None
    new = spare_indexes(step.role, last, step.observed, missing)
    if not new or (step.bounds.multiple_of > 1 and len(new) < missing):
        return None
    return step.with_role(replace(last, joining=last.joining | new))


_CHANGES: tuple[Callable[[_Step], _Step | None], ...] = (_promote, _shrink, _abandon, _grow)


def _next_times(step: _Step) -> list[datetime]:
    """Return when the size may change although no pod does."""
    last = step.last
    times = [
        deadline(pod.created, step.bounds.stabilization)
        for pod in step.pods.values()
        if pod.waiting_reason == reasons.UNSCHEDULABLE and pod.created
    ]
    times += [last.grow_at] if last.size < step.role.replicas else []
    return [time for time in times if time and time > step.now]


def _largest_allowed(bounds: Elastic, size: int) -> int | None:
    """Return the largest allowed size that is not above this one; None if all are."""
    largest = min(size, bounds.max) // bounds.multiple_of * bounds.multiple_of
    return largest if bounds.allows(largest) else None


def _unplaced(step: _Step) -> IndexSet:
    """Return members that cannot be placed for longer than the stabilization window."""
    pods = step.pods
    return IndexSet.of(
        index
        for index in step.last.members
        if _is_unplaced(step, pods.get(index)) and not _is_coordinator(step, index)
    )


def _is_unplaced(step: _Step, pod: ObservedPod | None) -> bool:
    if pod is None or pod.waiting_reason != reasons.UNSCHEDULABLE or pod.created is None:
        return False
    return (step.now - pod.created).total_seconds() >= step.bounds.stabilization


def _lost(step: _Step) -> IndexSet:
    """Return members that had a pod and do not have one that runs or starts."""
    last, pods = step.last, step.pods
    running = running_indexes(step.workload, step.role, step.record, step.observed)
    starting = IndexSet.of(
        index for index, pod in pods.items() if pod.phase == "Pending" and not pod.terminating
    )
    gone = (last.created & last.members) - running - starting
    return IndexSet.of(index for index in gone if not _is_coordinator(step, index))


def _is_coordinator(step: _Step, index: int) -> bool:
    return step.workload.is_coordinator(step.role.name, index)


def _is_up(pod: ObservedPod) -> bool:
    """Return True if the pod runs, or waits in its init container to be a member (`waits_to_join`)."""
    return (pod.phase == "Running" or pod.waits_for_dependency) and not pod.terminating


def _describe_missing(step: _Step, missing: IndexSet) -> str:
    names = [messages.replica_name(step.role.name, index) for index in missing]
    return messages.members_missing(names, unplaced=bool(_unplaced(step)))
