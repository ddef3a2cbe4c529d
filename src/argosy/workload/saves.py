"""Decides when a job is ordered to save a checkpoint, and takes up what its pods acknowledge.

One order is in force at a time. It is part of the Record: pods read it from the operator's endpoint,
whichever replica answers, and an operator that is killed continues with the same one. A checkpoint is
acknowledged by an annotation of a pod, so it is learned from the watch of pods. Training is never ended
because a checkpoint is late: what waits for it goes on without.

A checkpoint has the time of the node on which it was saved, and clocks of nodes differ. So a time is never
recorded that is still to come, and one that cannot be right does not decide which checkpoint is the newest.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import EmitEvent
from argosy.workload import checkpoint_messages, process_saves, reasons
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import all_current_pods
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Phase, Workload
from argosy.workload.notice import SaveStep
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod
from argosy.workload.record import Record
from argosy.workload.save_intervals import jitter, save_interval

MARGIN_SECONDS = 5.0
"""Seconds before a deadline at which a checkpoint must be complete."""
FIRST_SAVE_SECONDS = 20.0
"""Seconds that the first checkpoint of a job is assumed to take."""
SAVE_TIME_FACTOR = 1.5
"""A checkpoint may take so many times as long as the last one."""
MIN_TIMEOUT_SECONDS = 60.0
"""Seconds after which an order by interval is late at the earliest."""
INTERVAL_GRACE_SECONDS = 3.0
"""Seconds after the interval at which a checkpoint is ordered at the earliest: a program that keeps the
interval by itself has saved one by then."""
INTERVAL_ID = "interval"
DEADLINE_ID = "deadline/"


class SavePlan(Struct, frozen=True):
    record: Record
    requeue_at: datetime | None = None


class _Candidate(Struct, frozen=True):
    """A checkpoint that may be the newest one."""

    saved: SavedCheckpoint
    pod_created: datetime | None = None
    """When the pod was created that has acknowledged it, by the clock of the API server."""


def record_acks(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the newest checkpoint that a pod or a node agent has acknowledged."""
    if workload.checkpoint is None:
        return record
    if record.saved is not None and record.saved.at > now:  # the clock of the operator was set back
        record = replace(record, saved=replace(record.saved, at=now))
    completed = process_saves.completed_checkpoints(workload, record, observed)
    candidates = [*_candidates(observed), *(_Candidate(saved) for saved in completed)]
    for candidate in sorted(candidates, key=lambda candidate: (candidate.saved.at, candidate.saved.step)):
        record = _with_saved(record, candidate, now)
    return record


def with_order(
    record: Record,
    identity: str,
    reason: str,
    by: datetime,
    now: datetime,
    stop: Mapping[str, str] | None = None,
) -> Record:
    """Return the record with an order, in the place of the last one.

    Its number grows with time too, so that it also grows if the Record was lost. Pods that were asked to stop
    before still are.
    """
    epoch = max(int(now.timestamp()), last_epoch(record) + 1)
    stop = _union(stop or {}, _still_asked(record))
    return replace(record, order=SaveOrder(epoch, identity, reason, now, by, stop))


def with_shared_order(
    record: Record, identity: str, reason: str, by: datetime, now: datetime, stop: Mapping[str, str]
) -> Record:
    """Return the record with an order before these replicas end: the one in force, or a new one.

    One that asks no replica to stop is not shared by a cause that does: its pods may have saved already and
    train on. Replicas that are added to one that asks others learn of it under its number, so that all save
    once; those that have saved already stop then.
    """
    order = record.order_in_force
    if order is None or order.late or (stop and not order.stop):
        return with_order(record, identity, reason, by, now, stop)
    return replace(record, order=replace(order, by=min(order.by, by), stop=_union(order.stop, stop)))


def last_epoch(record: Record) -> int:
    """Return the highest number of an order that is known of."""
    saved, order = record.saved, record.order
    return max(record.answered_epoch, saved.epoch if saved else 0, order.epoch if order else 0)


def seconds_needed(record: Record) -> float:
    """Return the seconds that the next checkpoint may take."""
    seconds = record.saved.seconds if record.saved else 0.0
    return seconds * SAVE_TIME_FACTOR if seconds else FIRST_SAVE_SECONDS


def save_by(limit: datetime) -> datetime:
    """Return until when a checkpoint must be complete before a deadline."""
    return limit - timedelta(seconds=MARGIN_SECONDS)


def can_save(workload: Workload, record: Record, observed: Observed) -> bool:
    """Return True if an order to save can be expected to be answered: all pods of the program run."""
    policy = workload.checkpoint
    if policy is None or policy.saves_on_signal or record.phase is not Phase.RUNNING:
        return False
    return any(pod.phase == "Running" for pod in all_current_pods(record, observed))


def has_time_to_save(record: Record, limit: datetime, now: datetime) -> bool:
    """Return True if there is time for a checkpoint before a deadline."""
    return (save_by(limit) - now).total_seconds() >= seconds_needed(record)


def all_replicas(workload: Workload, record: Record) -> dict[str, str]:
    return {name: record.role(name).wanted.encode() for name in sorted(workload.roles)}


def save_first(
    workload: Workload, record: Record, observed: Observed, now: datetime, identity: str, reason: str
) -> Record | None:
    """Return the record in which the job waits for a checkpoint before something ends all of its pods.

    None if it need not wait: it cannot save one, it has, or the grace period is over.
    """
    policy = workload.checkpoint
    if policy is None or not can_save(workload, record, observed):
        return None
    order = record.order
    if order is None or order.id != identity:
        by = now + timedelta(seconds=policy.suspend_grace)
        return with_order(record, identity, reason, by, now, all_replicas(workload, record))
    return record if record.order_in_force and now < order.by else None


def has_begun(record: Record, prefix: str) -> bool:
    """Return True if programs of this attempt were asked to stop before all pods are ended for this cause.

    They do not train on. So this goes on to its end, even if what asked for it is withdrawn. Where processes
    are saved, the program is not asked.
    """
    order, started = record.order, record.attempt_started_at
    if order is None or started is None or order.level:
        return False
    return bool(order.stop) and order.id.startswith(prefix) and order.since >= started


def order_id(record: Record, prefix: str, generation: int) -> str:
    """Return the id of the order before all pods end for this cause: the one that has begun, or a new one."""
    begun = record.order if has_begun(record, prefix) else None
    return begun.id if begun else f"{prefix}{generation}"


def with_stops_done(record: Record) -> Record:
    """Return the record in which no replica is asked to stop any more: all of them end now."""
    order = record.order
    return replace(record, order=replace(order, stop={})) if order and not order.level else record


def without_stops_of(record: Record, created: Sequence[CreatePod]) -> Record:
    """Return the record in which the pods that are created now are not asked to stop.

    An order that is late, or not answered yet, stays in force for them, and they may answer it. Those that
    were asked were others, and nothing replaces the new ones when they have stopped.
    """
    order = record.order
    if order is None or not order.stop or not created:
        return record
    stop = {name: IndexSet.decode(indexes) for name, indexes in order.stop.items()}
    for pod in created:
        stop[pod.role] = stop.get(pod.role, EMPTY) - IndexSet.of((pod.index,))
    left = {name: indexes.encode() for name, indexes in stop.items() if indexes}
    return record if left == order.stop else replace(record, order=replace(order, stop=left))


def is_in_force(record: Record, epoch: int, now: datetime) -> bool:
    """Return True if an order is waited for: it is neither answered, late nor replaced by another one."""
    order = record.order_in_force
    return order is not None and order.epoch == epoch and now < order.by


def plan_orders(workload: Workload, record: Record, observed: Observed, now: datetime) -> SavePlan:
    """Return the record with an order that is due now, and with one that is late marked so."""
    if workload.checkpoint is None:
        return SavePlan(record)
    record = mark_late(record, now)
    order = record.order_in_force
    if order is not None and not order.late:
        return SavePlan(record, order.by)
    if not can_save(workload, record, observed):
        return SavePlan(record)
    times: list[datetime] = []
    for due, identity, reason, by in _due_orders(workload, record, now):
        if due <= now:
            record = with_order(record, identity, reason, by, now)
            return SavePlan(record, by)
        times.append(due)
    return SavePlan(record, min(times, default=None))


def mark_late(record: Record, now: datetime) -> Record:
    """Return the record with the order in force marked as late, if it is."""
    order = record.order_in_force
    if order is None or order.late or now < order.by:
        return record
    record = record.with_history(now, reasons.CHECKPOINT_TIMEOUT, checkpoint_messages.late(order))
    return replace(record, order=replace(order, late=True))


def completed_event(before: Record | None, after: Record) -> tuple[EmitEvent, ...]:
    """Return the event of a new checkpoint. There are too many of them for the history."""
    if after.saved is None or (before and before.saved and before.saved.digest == after.saved.digest):
        return ()
    return (EmitEvent("Normal", reasons.CHECKPOINT_COMPLETED, checkpoint_messages.completed(after.saved)),)


def _still_asked(record: Record) -> dict[str, str]:
    """Return the replicas that were asked to stop and are not replaced or removed yet.

    An order may still name others, if an earlier version of the operator has replaced them. So only those
    count for which a notice or a smaller size still waits: nobody else ends their pods.
    """
    if record.order is None or record.order.level or not _ends_replicas(record):
        return {}
    left = {
        name: IndexSet.decode(indexes) & record.role(name).wanted
        for name, indexes in record.order.stop.items()
    }
    return {name: indexes.encode() for name, indexes in left.items() if indexes}


def _ends_replicas(record: Record) -> bool:
    """Return True if replicas that were asked to stop wait for their end."""
    ending = (SaveStep.SAVING, SaveStep.RELEASED, SaveStep.MISSED)
    return record.scale_in is not None or any(
        notice.epoch and notice.step in ending for notice in record.notices
    )


def _union(first: Mapping[str, str], second: Mapping[str, str]) -> dict[str, str]:
    names = sorted({*first, *second})
    return {
        name: (IndexSet.decode(first.get(name, "")) | IndexSet.decode(second.get(name, ""))).encode()
        for name in names
    }


def _candidates(observed: Observed) -> list[_Candidate]:
    """Return what pods have acknowledged; those of earlier attempts only count until a later one does."""
    pods = [pod for pod in (*observed.pods, *observed.recently_deleted) if pod.saved is not None]
    newest = max((pod.attempt for pod in pods), default=0)
    return [_Candidate(pod.saved, pod.created) for pod in pods if pod.saved and pod.attempt == newest]


def _with_saved(record: Record, candidate: _Candidate, now: datetime) -> Record:
    """Return the record with this checkpoint, if it is newer than the last, or answers the order in force."""
    saved, last, order = candidate.saved, record.saved, record.order
    answers = order is not None and record.answered_epoch < order.epoch <= saved.epoch
    if answers and order is not None:
        record = replace(record, answered_epoch=order.epoch)
    if last is not None and saved.digest == last.digest:
        return record
    if not (answers or last is None or _is_newer(candidate, last, now)):
        return record
    return replace(record, saved=replace(saved, at=min(saved.at, now)))


def _is_newer(candidate: _Candidate, last: SavedCheckpoint, now: datetime) -> bool:
    """Return True if a checkpoint was saved after the last one that was recorded.

    Its time tells, unless that is still to come, or is before the pod existed: then the clock of its node is
    wrong, and its step tells.
    """
    saved, created = candidate.saved, candidate.pod_created
    if saved.at > now or (created is not None and saved.at < created):
        return saved.step > last.step
    return (saved.at, saved.step) > (last.at, last.step)


def _due_orders(
    workload: Workload, record: Record, now: datetime
) -> Iterator[tuple[datetime, str, str, datetime]]:
    """Yield when an order is due, its id and reason, and when it is late."""
    identity = f"{DEADLINE_ID}{record.attempt}"
    was_ordered = record.order is not None and record.order.id == identity
    if was_ordered:
        return
    limit, started = workload.limits.active_deadline, record.started_at
    end = deadline(started, limit) if limit is not None and started else None
    if end is not None:
        lead = timedelta(seconds=seconds_needed(record))
        yield save_by(end) - lead, identity, reasons.DEADLINE_EXCEEDED, save_by(end)
    if due := _interval_due_at(workload, record, now):
        seconds = max(save_interval_of(workload, record, now) or 0.0, MIN_TIMEOUT_SECONDS)
        yield due, INTERVAL_ID, reasons.INTERVAL, now + timedelta(seconds=seconds)


def save_interval_of(workload: Workload, record: Record, now: datetime) -> float | None:
    """Return the seconds from one checkpoint to the next order; None if there are no such orders."""
    policy, started = workload.checkpoint, record.started_at
    if policy is None:
        return None
    return save_interval(policy, record, (now - started).total_seconds() if started else 0.0)


def _interval_due_at(workload: Workload, record: Record, now: datetime) -> datetime | None:
    """Return when the next order by interval is due.

    It counts from the last checkpoint, the last order and the time since which the job runs, so that any
    number of intervals that were missed leads to one order.
    """
    seconds = save_interval_of(workload, record, now)
    times = [record.phase_since]
    times += [record.saved.at] if record.saved else []
    times += [record.order.since] if record.order else []
    since = max((time for time in times if time is not None), default=None)
    if seconds is None or since is None:
        return None
    late = jitter(workload.uid, last_epoch(record), seconds)
    return deadline(since, seconds + max(late, INTERVAL_GRACE_SECONDS))
