"""Accounts for the time of each replica of a SpotInstanceJob: what part of it was training, and what was not.

The life of a replica is divided into intervals in which it does one thing at one price. When one of these
changes, the interval ends and is added up. They change only together with the rest of the status, so
accounting causes no writes of its own.

Training since the newest checkpoint is at risk. When a lost or failed replica is started again, what its
checkpoint does not have is moved from `Training` to `Lost`. Nothing is known of what a training has lost that
resumes by itself and acknowledges no checkpoints.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.spot.backups import completed_at
from argosy.dialects.spot.observed import ObservedJob
from argosy.dialects.spot.record import (
    APP_RESUME,
    FRESH,
    Checkpoint,
    Incarnation,
    Replica,
    SpotJobRecord,
)
from argosy.dialects.usage import shown_usage
from argosy.kinds.kubernetes import Node
from argosy.kinds.spot import REPLICA_LABEL
from argosy.kinds.usage_status import UsageStatus
from argosy.workload.capacity import parse_hourly_price, read_hourly_price
from argosy.workload.usage_record import Activity, Usage

_SECONDS_PER_HOUR = 3600.0
_COST_DIGITS = 9


class _Changes(Struct, frozen=True):
    """What has happened to a replica since the last accounting."""

    activity: str
    price: float
    checkpointed_at: datetime | None
    """Of a checkpoint that was completed since."""
    is_restarted: bool
    has_checkpoint: bool
    """The job has ever had one."""


def with_usage(before: SpotJobRecord, after: SpotJobRecord, observed: ObservedJob) -> SpotJobRecord:
    """Return the record in which the time of all replicas until now is accounted for."""
    earlier = {replica.index: replica for replica in before.replicas}
    checkpointed_at = _checkpointed_at(before.checkpoint, after.checkpoint)
    replicas = tuple(
        _account(
            replica,
            _Changes(
                _activity(replica, after, observed),
                _hourly_price(replica, observed),
                checkpointed_at,
                _is_restarted(earlier.get(replica.index), replica),
                after.checkpoint is not None,
            ),
            observed,
        )
        for replica in after.replicas
    )
    kept = {replica.index for replica in replicas}
    removed = after.removed_usage
    for replica in before.replicas:
        if replica.index not in kept:
            removed = _sum(removed, _close(replica.usage, observed.now))
    return replace(after, replicas=replicas, removed_usage=removed)


def usage_status(record: SpotJobRecord) -> UsageStatus:
    """Return how the time of all replicas was spent, up to the last change of any of them."""
    since = max((replica.usage.since for replica in record.replicas if replica.usage.since), default=None)
    total, activities = record.removed_usage, dict[str, int]()
    for replica in record.replicas:
        usage = replica.usage
        if usage.activity and since is not None:
            activities[usage.activity] = activities.get(usage.activity, 0) + 1
        total = _sum(total, _close(usage, since) if since is not None else usage)
    return replace(
        shown_usage(total),
        activity=next(iter(activities)) if len(activities) == 1 else "",
        replicas=sum(activities.values()),
        activities=dict(sorted(activities.items())) if len(activities) > 1 else {},
        since=since,
    )


def _account(replica: Replica, changes: _Changes, observed: ObservedJob) -> Replica:
    usage = replica.usage
    is_same = (usage.activity, usage.hourly_price) == (changes.activity, changes.price)
    if is_same and changes.checkpointed_at is None and not changes.is_restarted:
        return replica
    if usage.activity == Activity.TRAINING:
        replica = replace(replica, trained_until=observed.now)
    replica = replace(replica, usage=_close(usage, observed.now))
    if changes.checkpointed_at is not None:
        replica = _with_checkpoint(replica, changes.checkpointed_at)
    if changes.is_restarted:
        replica = _with_loss(replica, observed, has_checkpoint=changes.has_checkpoint)
    usage = replace(
        replica.usage,
        activity=changes.activity,
        replicas=1 if changes.activity else 0,
        hourly_price=changes.price,
        since=observed.now if changes.activity else None,
    )
    return replace(replica, usage=usage)


def _activity(replica: Replica, record: SpotJobRecord, observed: ObservedJob) -> str:
    """Return what a replica does now; empty if it wants no pod."""
    if record.ended or replica.failure_message:
        return ""
    current = replica.current
    pod = observed.running_pod(current)
    if pod is not None:
        is_dumped = any(b.pod_uid == pod.metadata.uid and b.finished is None for b in record.backups)
        return Activity.SAVING if is_dumped or _is_ordered(replica, record) else Activity.TRAINING
    if not current.job:
        return Activity.WAITING
    return Activity.STARTING if current.mode == FRESH else Activity.RESTORING


def _is_ordered(replica: Replica, record: SpotJobRecord) -> bool:
    """Return True if a training that is known to answer orders has not answered the one in force."""
    if record.order is None or replica.saved is None:
        return False
    return replica.answered_epoch < record.order.epoch


def _hourly_price(replica: Replica, observed: ObservedJob) -> float:
    """Return the price of all VMs that a replica has, or else of the node that its Job is bound to."""
    bought = [
        price
        for instance in observed.instances.values()
        if instance.metadata.labels.get(REPLICA_LABEL) == str(replica.index)
        and (price := parse_hourly_price(instance.status.price_per_hour)) is not None
    ]
    node = observed.node_of(replica.current)
    if bought or not replica.current.job or not isinstance(node, Node):
        return round(float(sum(bought)), 6)
    return read_hourly_price(node)


def _checkpointed_at(before: Checkpoint | None, after: Checkpoint | None) -> datetime | None:
    """Return what time of training a new checkpoint has: that before it was begun."""
    if after is None or after == before:
        return None
    return after.time - timedelta(seconds=after.seconds)


def _is_restarted(before: Replica | None, after: Replica) -> bool:
    """Return True if the Job of another incarnation was recorded, so that its checkpoint is known."""
    job = after.current.job
    return before is not None and bool(job) and after.current.number > 0 and before.current.job != job


def _with_checkpoint(replica: Replica, saved_at: datetime) -> Replica:
    """Return the replica after a checkpoint of any replica: at risk is only its training since then."""
    usage = replica.usage
    at_risk = min(usage.at_risk, _seconds_after(replica, saved_at))
    return replace(
        replica,
        usage=replace(usage, at_risk=at_risk),
        saved_seconds=replica.saved_seconds + usage.at_risk - at_risk,
    )


def _with_loss(replica: Replica, observed: ObservedJob, *, has_checkpoint: bool) -> Replica:
    """Return the replica without the training that the start of its incarnation has undone."""
    usage, current = replica.usage, replica.current
    at_risk, saved = usage.at_risk, replica.saved_seconds
    if current.mode == FRESH:
        lost, at_risk, saved = at_risk + saved, 0.0, 0.0
    elif current.mode == APP_RESUME and not has_checkpoint:
        lost = 0.0
    else:
        source_time = _source_time(current, observed)
        lost = at_risk if source_time is None else min(at_risk, _seconds_after(replica, source_time))
        at_risk, saved = 0.0, saved + at_risk - lost
    trained = usage.seconds.get(Activity.TRAINING, 0.0)
    seconds = {**usage.seconds, Activity.TRAINING: trained - lost} if lost else usage.seconds
    usage = replace(
        usage,
        seconds=_added(seconds, {Activity.LOST: lost} if lost else {}),
        at_risk=at_risk,
        lost_cost=round(usage.lost_cost + lost * usage.hourly_price / _SECONDS_PER_HOUR, _COST_DIGITS),
    )
    return replace(replica, usage=usage, saved_seconds=saved)


def _source_time(incarnation: Incarnation, observed: ObservedJob) -> datetime | None:
    """Return when the checkpoint that an incarnation starts from was begun; None if that is not known."""
    backup = observed.backups.get(incarnation.source)
    if backup is None:
        return None
    return backup.metadata.creation_timestamp or completed_at(backup)


def _seconds_after(replica: Replica, time: datetime) -> float:
    """Return how long a replica has trained after this time, at most."""
    if replica.trained_until is None:
        return 0.0
    return max((replica.trained_until - time).total_seconds(), 0.0)


def _close(usage: Usage, now: datetime) -> Usage:
    """Return the usage with the open interval added up; one of a clock set back has no length."""
    if not usage.activity or usage.since is None:
        return usage
    elapsed = max((now - usage.since).total_seconds(), 0.0)
    trains = usage.activity == Activity.TRAINING
    return replace(
        usage,
        since=now,
        seconds=_added(usage.seconds, {usage.activity: elapsed}),
        at_risk=usage.at_risk + (elapsed if trains else 0.0),
        cost=round(usage.cost + elapsed * usage.hourly_price / _SECONDS_PER_HOUR, _COST_DIGITS),
    )


def _sum(first: Usage, second: Usage) -> Usage:
    """Return the time and the cost of both, without an open interval."""
    return Usage(
        seconds=_added(first.seconds, second.seconds),
        cost=first.cost + second.cost,
        lost_cost=first.lost_cost + second.lost_cost,
    )


def _added(seconds: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    return dict(_sums(seconds, more))


def _sums(seconds: Mapping[str, float], more: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    for name in sorted({*seconds, *more}):
        total = round(seconds.get(name, 0.0) + more.get(name, 0.0), 3)
        if total:
            yield name, total
