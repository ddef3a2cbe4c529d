"""Builds `restartHistory` of a job's status, which is the same for every job API."""

from argosy.kinds.restart_status import RestartStatus
from argosy.kinds.text import pluralize
from argosy.workload import messages
from argosy.workload.record import Record, RestartEntry
from argosy.workload.restarts.causes import signal_name


def restart_history(record: Record) -> list[RestartStatus]:
    """Return the last restarts, the oldest first."""
    return [_restart_status(entry) for entry in record.restart_history]


def _restart_status(entry: RestartEntry) -> RestartStatus:
    others = f" (and {pluralize(entry.also_lost, 'other pod')})" if entry.also_lost else ""
    return RestartStatus(
        time=entry.at,
        role=entry.role,
        index=entry.index,
        cause=str(entry.cause),
        scope=str(entry.scope),
        attempt=entry.attempt,
        exit_code=entry.exit_code,
        signal=signal_name(entry.exit_code) if entry.exit_code is not None else "",
        node=entry.node,
        message=f"{messages.describe_restart(entry)}{others}",
    )
