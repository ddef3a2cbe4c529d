"""Computes deadlines, and shifts the times of a Record after the clock was set back.

A user may set a timeout beyond the calendar; such a deadline is never reached. Times in the Record must not
lie in the future, otherwise every wait counted from them (backoff, deadline, time to live) would be longer by
as much as the clock was set back. All times are shifted together, which preserves the intervals between them;
the time since the latest of them is unknown and counts as zero.
"""

from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.workload.operation import Operation
from argosy.workload.record import Record, RoleRecord

MAX_CLOCK_SKEW = timedelta(minutes=1)
"""Clocks of two replicas may differ by this much without a shift."""


def deadline(since: datetime, seconds: float) -> datetime | None:
    """Return the time so many seconds later; None if that is beyond the calendar."""
    try:
        return since + timedelta(seconds=seconds)
    except OverflowError:
        return None


def shift_to_clock(record: Record, now: datetime) -> Record:
    """Return the record with its times shifted if the clock was set back; otherwise unchanged."""
    waiting = record.waiting.since if record.waiting else None
    times = [
        record.phase_since,
        record.started_at,
        record.attempt_started_at,
        record.first_running_at,
        record.gang_scheduled_at,
        record.finished_at,
        waiting,
        record.usage.since,
    ]
    times += [role.phase_since for role in record.roles.values()]
    times += [operation.step_since for operation in record.operations]
    latest = max((time for time in times if time), default=now)
    if latest - now <= MAX_CLOCK_SKEW:
        return record
    return _shift_record(record, latest - now)


def _shift_record(record: Record, back: timedelta) -> Record:
    waiting = record.waiting
    return replace(
        record,
        phase_since=_earlier(record.phase_since, back),
        started_at=_earlier(record.started_at, back),
        attempt_started_at=_earlier(record.attempt_started_at, back),
        first_running_at=_earlier(record.first_running_at, back),
        gang_scheduled_at=_earlier(record.gang_scheduled_at, back),
        finished_at=_earlier(record.finished_at, back),
        retry_at=_earlier(record.retry_at, back),
        waiting=replace(waiting, since=waiting.since - back) if waiting else None,
        usage=replace(record.usage, since=_earlier(record.usage.since, back)),
        notices=tuple(
            replace(
                notice,
                since=notice.since - back,
                deadline=notice.deadline - back,
                released_at=_earlier(notice.released_at, back),
                certain_since=_earlier(notice.certain_since, back),
            )
            for notice in record.notices
        ),
        roles={name: _shift_role(role, back) for name, role in record.roles.items()},
        order=replace(record.order, since=record.order.since - back, by=record.order.by - back)
        if record.order
        else None,
        scale_in=replace(record.scale_in, since=record.scale_in.since - back) if record.scale_in else None,
        operations=tuple(_shift_operation(operation, back) for operation in record.operations),
    )


def _shift_role(role: RoleRecord, back: timedelta) -> RoleRecord:
    return replace(
        role,
        phase_since=_earlier(role.phase_since, back),
        retry_at=_earlier(role.retry_at, back),
        below_min_since=_earlier(role.below_min_since, back),
        listed_since=_earlier(role.listed_since, back),
        grown_at=_earlier(role.grown_at, back),
        grow_at=_earlier(role.grow_at, back),
    )


def _shift_operation(operation: Operation, back: timedelta) -> Operation:
    return replace(
        operation,
        started_at=operation.started_at - back,
        step_since=_earlier(operation.step_since, back),
    )


def _earlier(time: datetime | None, back: timedelta) -> datetime | None:
    return time - back if time else None
