"""Builds `usage` of a job's status, which is the same for every job API."""

from msgspec.structs import replace

from argosy.kinds.usage_status import UsageStatus
from argosy.plan.record import UnsupportedVersionError
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.usage_record import Usage


def usage_status(record: Record) -> UsageStatus:
    """Return how the time of the job's replicas was spent."""
    return shown_usage(record.usage)


def shown_usage(usage: Usage) -> UsageStatus:
    """Return a Record's usage as statuses show it."""
    status = UsageStatus(
        activity=usage.activity,
        replicas=usage.replicas,
        since=usage.since,
        cost=_money(usage.cost),
        lost_cost=_money(usage.lost_cost),
    )
    return replace(status, **{activity.lower(): seconds for activity, seconds in usage.seconds.items()})


def recorded_usage(raw: object) -> UsageStatus:
    """Return the same from the Record in a stored status, for APIs whose status has no field for it."""
    try:
        record = decode(raw)
    except UnsupportedVersionError:
        record = None
    return usage_status(record) if record else UsageStatus()


def _money(amount: float) -> str:
    return f"{amount:.4f}" if amount else ""
