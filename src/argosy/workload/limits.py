"""Bounds in time: how long a job may be active, and how long it may take to start."""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from argosy.kinds.quantity import format_duration
from argosy.workload import elastic, gang, reasons
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
"""A job that ends for one of these is stopped: what still runs is deleted whatever the cleanup policy
says."""


class LimitCheck(Struct, frozen=True):
    """A limit that was hit, or else when the next one would be."""

    result: PhaseResult | None = None
    next_at: datetime | None = None


def check_limits(workload: Workload, record: Record, observed: Observed, now: datetime) -> LimitCheck:
    times: list[datetime] = []
    for found in _each(workload, record, observed, now):
        if isinstance(found, PhaseResult):
            return LimitCheck(result=found)
        if found is not None:
            times.append(found)
    return LimitCheck(next_at=min(times, default=None))


def _each(
    workload: Workload, record: Record, observed: Observed, now: datetime
) -> Iterator[PhaseResult | datetime | None]:
    limits = workload.limits
    yield _after(record.started_at, limits.active_deadline, now, reasons.DEADLINE_EXCEEDED, "activeDeadline")
    waiting_since = {
        Phase.PENDING: record.attempt_started_at,
        Phase.STARTING: record.attempt_started_at,
        Phase.RESTARTING: record.phase_since,
    }.get(record.phase)
    yield _after(waiting_since, limits.start_timeout, now, reasons.START_TIMEOUT, "startTimeout")
    yield elastic.below_min_limit(workload, record, now)
    yield gang.gang_limit(workload, record, observed, now)


def _after(
    since: datetime | None, seconds: float | None, now: datetime, reason: str, name: str
) -> PhaseResult | datetime | None:
    if since is None or seconds is None:
        return None
    if (now - since).total_seconds() < seconds:
        return deadline(since, seconds)
    said = {
        reasons.DEADLINE_EXCEEDED: f"still active after {format_duration(seconds)} (limits.{name})",
        reasons.START_TIMEOUT: f"not all roles were running after {format_duration(seconds)} (limits.{name})",
    }[reason]
    return PhaseResult(Phase.FAILED, reason, said)
