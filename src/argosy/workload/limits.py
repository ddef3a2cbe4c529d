"""Fails jobs that exceed a time limit: the active deadline, or a timeout of start, minimum size or gang."""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from argosy.workload import elastic, gang, messages, reasons
from argosy.workload.clock_skew import deadline
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.record import Record

STOP_REASONS = frozenset(
    {
        reasons.DEADLINE_EXCEEDED,
        reasons.START_TIMEOUT,
        reasons.GANG_TIMEOUT,
        reasons.BELOW_MIN_REPLICAS,
        reasons.RESTARTS_EXHAUSTED,
        reasons.PREEMPTED,
    }
)
"""Failures after which all running pods are deleted, whatever the cleanup policy is."""


_MESSAGES = {
    reasons.DEADLINE_EXCEEDED: messages.deadline_exceeded,
    reasons.START_TIMEOUT: messages.start_timeout,
}


class LimitCheck(Struct, frozen=True):
    """The failure by an exceeded limit, or when the next limit will be exceeded."""

    result: PhaseResult | None = None
    next_at: datetime | None = None


def check_limits(workload: Workload, record: Record, observed: Observed, now: datetime) -> LimitCheck:
    """Return the first exceeded limit, or when to check again."""
    times: list[datetime] = []
    for check in _each(workload, record, observed, now):
        if isinstance(check, PhaseResult):
            return LimitCheck(result=check)
        if check is not None:
            times.append(check)
    return LimitCheck(next_at=min(times, default=None))


def _each(
    workload: Workload, record: Record, observed: Observed, now: datetime
) -> Iterator[PhaseResult | datetime | None]:
    limits = workload.limits
    yield _after(record.started_at, limits.active_deadline, now, reasons.DEADLINE_EXCEEDED)
    waiting_since = {
        Phase.PENDING: record.attempt_started_at,
        Phase.STARTING: record.attempt_started_at,
        Phase.RESTARTING: record.phase_since,
    }.get(record.phase)
    yield _after(waiting_since, limits.start_timeout, now, reasons.START_TIMEOUT)
    yield elastic.below_min_limit(workload, record, now)
    yield gang.gang_limit(workload, record, observed, now)


def _after(
    since: datetime | None, seconds: float | None, now: datetime, reason: str
) -> PhaseResult | datetime | None:
    if since is None or seconds is None:
        return None
    if (now - since).total_seconds() < seconds:
        return deadline(since, seconds)
    return PhaseResult(Phase.FAILED, reason, _MESSAGES[reason](seconds))
