"""Accounts for the time of all replicas of a job: what part of it was training, and what was not.

The life of a job is divided into intervals in which it does one thing with one number of replicas, at one
price. When one of these changes, the interval ends and its replica-seconds are added up. They change only
together with the rest of the Record, so accounting causes no writes of its own.

Training since the last checkpoint is at risk: what a restart undoes is moved from `Training` to `Lost`. The
operator learns of checkpoints only in jobs that have a checkpoint policy; for all others nothing is lost.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from argosy.workload import reasons
from argosy.workload.checkpoint_record import Recovery
from argosy.workload.model import Phase, Workload
from argosy.workload.notice_response import DEFAULT_GRACE_SECONDS
from argosy.workload.record import Record
from argosy.workload.recoveries import RecoveryOutcome
from argosy.workload.usage_record import Activity, PricedNode, Usage

_SECONDS_PER_HOUR = 3600.0
_RUNNING = (Activity.TRAINING, Activity.SAVING)
_NO_WAIT = ("", reasons.PODS_STARTING, reasons.BELOW_REPLICAS)
"""Reasons with which pods start, or run, and nothing is waited for."""


def with_usage(
    workload: Workload, before: Record | None, after: Record, nodes: Sequence[PricedNode], now: datetime
) -> Record:
    """Return the record in which the time until now is accounted for, if an interval has ended.

    The price of a job that is not Running ends no interval: it changes with every pod that is scheduled.
    """
    usage, activity = after.usage, _activity(after)
    hourly_price = sum(node.hourly_price for node in nodes)
    replicas = sum(len(role.wanted) for role in after.roles.values()) if activity else 0
    key = (activity, replicas, hourly_price if activity in _RUNNING else usage.hourly_price)
    has_saved = before is not None and _has_saved(before, after)
    lost = _lost_share(before, after)
    is_decided = usage.in_doubt > 0 and not any(map(_is_in_doubt, after.recoveries))
    is_same = key == (usage.activity, usage.replicas, usage.hourly_price)
    if is_same and not has_saved and not lost and not is_decided:
        return after
    cost = usage.cost + _cost(usage, nodes, now, ends_by_loss=lost > 0)
    usage = replace(_close(usage, now, tracks_loss=workload.checkpoint is not None), cost=cost)
    if usage.activity not in _RUNNING:
        usage = replace(usage, hourly_price=hourly_price)
    if has_saved and after.saved is not None:
        usage = _with_saved(usage, after.saved.at, now)
    if is_decided and before is not None:
        usage = _with_doubt_decided(usage, before, after)
    if lost and any(map(_is_in_doubt, after.recoveries)):
        doubtful = usage.at_risk * lost
        usage = replace(usage, at_risk=usage.at_risk - doubtful, in_doubt=usage.in_doubt + doubtful)
    elif lost:
        usage = _with_loss(usage, usage.at_risk * lost)
    since = now if activity else None
    usage = replace(usage, activity=activity, replicas=replicas, hourly_price=hourly_price, since=since)
    return replace(after, usage=usage)


def seconds_until(usage: Usage, now: datetime) -> dict[str, float]:
    """Return the replica-seconds by activity, with those of the interval that has not ended."""
    return dict(_close(usage, now, tracks_loss=False).seconds)


def _activity(record: Record) -> str:
    """Return what the job does now; empty if it has no pods and wants none."""
    if record.finished_at or record.phase is Phase.SUSPENDED or not record.roles:
        return ""
    if record.phase is Phase.RUNNING:
        return Activity.SAVING if record.order_in_force else Activity.TRAINING
    reason = record.waiting.reason if record.waiting else ""
    if record.phase is Phase.PENDING or reason not in _NO_WAIT:
        return Activity.WAITING
    return Activity.RESTORING if record.saved else Activity.STARTING


def _close(usage: Usage, now: datetime, *, tracks_loss: bool) -> Usage:
    """Return the usage with the seconds of the open interval added up."""
    if not usage.activity:
        return usage
    elapsed = _elapsed(usage, now)
    spent = elapsed * usage.replicas
    trains = tracks_loss and usage.activity == Activity.TRAINING
    return replace(
        usage,
        since=now,
        seconds=_sum(usage.seconds, {usage.activity: spent}),
        at_risk=usage.at_risk + (spent if trains else 0.0),
    )


def _elapsed(usage: Usage, now: datetime) -> float:
    """Return the length of the open interval in seconds; one of a clock set back has none."""
    return max((now - usage.since).total_seconds(), 0.0) if usage.since else 0.0


def _cost(usage: Usage, nodes: Sequence[PricedNode], now: datetime, *, ends_by_loss: bool) -> float:
    """Return what the open interval has cost.

    In a job that is not Running, pods come and go without a change of the Record. A node that is in use now
    counts from the time at which it got a pod. One that was in use at the start, and is not any more, counts
    until another took its place. Without another, it was in use until now if the interval ends by a loss;
    otherwise its pod was being deleted when the interval began.
    """
    elapsed, since = _elapsed(usage, now), usage.since
    if usage.activity in _RUNNING or since is None:
        return elapsed * usage.hourly_price / _SECONDS_PER_HOUR
    added = sorted((node.since, node.hourly_price) for node in nodes if node.since and node.since > since)
    kept = sum(node.hourly_price for node in nodes) - sum(price for _, price in added)
    cost, left = kept * elapsed, max(usage.hourly_price - kept, 0.0)
    for placed_at, price in added:
        seconds, replaced = min((placed_at - since).total_seconds(), elapsed), min(price, left)
        cost += price * (elapsed - seconds) + replaced * seconds
        left -= replaced
    cost += left * (elapsed if ends_by_loss else min(elapsed, DEFAULT_GRACE_SECONDS))
    return cost / _SECONDS_PER_HOUR


def _with_saved(usage: Usage, saved_at: datetime, now: datetime) -> Usage:
    """Return the usage after a checkpoint: at risk is only the training since then."""
    since = max((now - saved_at).total_seconds(), 0.0) * usage.replicas
    return replace(usage, at_risk=min(since, usage.at_risk))


def _has_saved(before: Record, after: Record) -> bool:
    """Return True if another checkpoint is the last good one; the same may get another time."""
    old, new = before.saved, after.saved
    return old != new if old is None or new is None else old.digest != new.digest


def _lost_share(before: Record | None, after: Record) -> float:
    """Return the part of the replicas whose training since the last checkpoint a restart undoes."""
    if before is None or not before.roles:
        return 0.0
    if after.attempt != before.attempt:
        return 1.0
    wanted = sum(len(role.wanted) for role in before.roles.values())
    replaced = sum(_count_replaced(before, after, name) for name in after.roles)
    return min(replaced / wanted, 1.0) if wanted else 0.0


def _count_replaced(before: Record, after: Record, name: str) -> int:
    """Return how many replicas of a role were replaced or restarted in place.

    A pod that the cluster has deleted is created again with the number it had: only the history shows that.
    """
    old, new = before.role(name), after.role(name)
    lost = {index for index, count in new.replacements.items() if count > old.replacements.get(index, 0)}
    lost |= {
        index
        for index, count in new.container_restarts.items()
        if count > old.container_restarts.get(index, 0)
    }
    lost |= set(new.retired - old.retired)
    known = set(before.restart_history)
    lost |= {entry.index for entry in after.restart_history if entry.role == name and entry not in known}
    return len(lost)


def _is_in_doubt(recovery: Recovery) -> bool:
    """Return True if it is not known yet whether the program has saved before this loss."""
    return recovery.was_signalled and not recovery.outcome and recovery.replaced_at is not None


def _with_doubt_decided(usage: Usage, before: Record, after: Record) -> Usage:
    """Return the usage once all programs that got SIGTERM run again.

    What was in doubt is lost if they show that it is. If nothing shows that, it stays training.
    """
    open_before = {recovery.id for recovery in before.recoveries if _is_in_doubt(recovery)}
    outcomes = {recovery.outcome for recovery in after.recoveries if recovery.id in open_before}
    doubtful, usage = usage.in_doubt, replace(usage, in_doubt=0.0)
    if RecoveryOutcome.PROGRESS_LOST not in outcomes:
        return usage
    return _with_loss(replace(usage, at_risk=usage.at_risk + doubtful), doubtful)


def _with_loss(usage: Usage, lost: float) -> Usage:
    if not lost:
        return usage
    trained = usage.seconds.get(Activity.TRAINING, 0.0)
    price = usage.hourly_price / usage.replicas if usage.replicas else 0.0
    return replace(
        usage,
        seconds=_sum({**usage.seconds, Activity.TRAINING: trained - lost}, {Activity.LOST: lost}),
        at_risk=usage.at_risk - lost,
        lost_cost=usage.lost_cost + lost * price / _SECONDS_PER_HOUR,
    )


def _sum(seconds: Mapping[str, float], more: Mapping[str, float]) -> dict[str, float]:
    """Return the sums, in milliseconds precision so that the Record stays small."""
    names = sorted({*seconds, *more})
    return {name: round(seconds.get(name, 0.0) + more.get(name, 0.0), 3) for name in names}
