"""Builds `usage` of a job's status, which is the same for every job API."""

from argosy.kinds.usage_status import UsageStatus
from argosy.plan.record import UnsupportedVersionError
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode


def usage_status(record: Record) -> UsageStatus:
    """Return how the time of the job's replicas was spent."""
    usage = record.usage
    return UsageStatus(
        activity=usage.activity,
        replicas=usage.replicas,
        since=usage.since,
        cost=_money(usage.cost),
        lost_cost=_money(usage.lost_cost),
        **{activity.lower(): seconds for activity, seconds in usage.seconds.items()},
    )


def recorded_usage(raw: object) -> UsageStatus:
    """Return the same from the Record in a stored status, for APIs whose status has no field for it."""
    try:
        record = decode(raw)
    except UnsupportedVersionError:
        record = None
    return usage_status(record) if record else UsageStatus()


def _money(amount: float) -> str:
    return f"{amount:.4f}" if amount else ""
