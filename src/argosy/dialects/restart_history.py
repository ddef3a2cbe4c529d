"""The last restarts of a job, as every API's status tells them under `restartHistory`."""

from argosy.kinds.messages import pluralize
from argosy.kinds.restart_status import RestartStatus
from argosy.workload import messages
from argosy.workload.record import Record, RestartEntry
from argosy.workload.restarts.causes import signal_name


def restart_history(record: Record) -> list[RestartStatus]:
    """The oldest first."""
    return [_entry(one) for one in record.restart_history]


def _entry(one: RestartEntry) -> RestartStatus:
    others = f" (and {pluralize(one.also_lost, 'other pod')})" if one.also_lost else ""
    return RestartStatus(
        time=one.at,
        role=one.role,
        index=one.index,
        cause=str(one.cause),
        scope=str(one.scope),
        attempt=one.attempt,
        exit_code=one.exit_code,
        signal=signal_name(one.exit_code) if one.exit_code is not None else "",
        node=one.node,
        message=f"{messages.describe_restart(one)}{others}",
    )
