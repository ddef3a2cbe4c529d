"""The end of a job: recorded once, with what happened, and cleaned up at once."""

from datetime import datetime

from msgspec.structs import replace

from argosy.kinds.quantity import format_duration
from argosy.workload import cleanup, messages
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.plan import Plan
from argosy.workload.record import Record


def plan(workload: Workload, record: Record, observed: Observed, ending: PhaseResult, now: datetime) -> Plan:
    message = _success(record, now) if ending.phase is Phase.SUCCEEDED else ending.message
    record = replace(
        record.with_history(now, ending.phase.value, message),
        phase=ending.phase,
        phase_since=now,
        reason=ending.reason,
        message=message,
        waiting=None,
        finished_at=now,
        retry_at=None,
    )
    return cleanup.plan(workload, record, observed, now)


def _success(record: Record, now: datetime) -> str:
    parts = [f"in {format_duration((now - record.started_at).total_seconds())}"] if record.started_at else []
    if record.restarts:
        parts.append(messages.pluralize(record.restarts, "restart"))
    return " · ".join(parts)
