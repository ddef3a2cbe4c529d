"""Builds the sentences that users read in statuses and events."""

from collections.abc import Mapping, Set
from datetime import UTC, datetime

from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry
from argosy.workload.restart_causes import CONTAINER, RestartCause, restart_entry, signal_name

_NEVER = datetime.min.replace(tzinfo=UTC)

_VERBS: Mapping[str, str] = {
    RestartCause.NON_ZERO_EXIT: "failed",
    RestartCause.SIGNAL: "was killed",
    RestartCause.OOM_KILLED: "ran out of memory",
    RestartCause.FAILED: "failed",
    RestartCause.COMPLETED: "completed",
    RestartCause.EVICTED: "was evicted",
    RestartCause.PREEMPTED: "was preempted",
    RestartCause.DISRUPTED: "was removed by the cluster",
    RestartCause.DELETED: "was deleted",
    RestartCause.NODE_LOST: "was on an unreachable node",
}
_WITH_EXIT_CODE: Set[str] = frozenset(
    {
        RestartCause.NON_ZERO_EXIT,
        RestartCause.SIGNAL,
        RestartCause.OOM_KILLED,
        RestartCause.FAILED,
        RestartCause.COMPLETED,
    }
)


def replica_name(role: str, index: int) -> str:
    return f"{role}-{index}"


def describe_end(pod: ObservedPod, down: Set[str] = frozenset()) -> str:
    """How a pod ended: `worker-2 was killed (SIGKILL, exit 137) on node-3`."""
    return describe_restart(restart_entry(pod, _NEVER, down=down))


def describe_restart(entry: RestartEntry) -> str:
    """What was lost, how and where: `worker-0 was evicted from node-1: low memory`."""
    cause, node = entry.cause, entry.node
    subject = replica_name(entry.role, entry.index)
    if entry.scope == CONTAINER:
        subject = f"a container of {subject}"
    if cause == RestartCause.NODE_LOST and node:
        return f"{subject} is on {node}, which is unreachable"
    verb = _VERBS.get(cause, f"was lost ({cause})")
    where = f" {'from' if cause == RestartCause.EVICTED else 'on'} {node}" if node else ""
    if cause in _WITH_EXIT_CODE:
        return f"{subject} {verb} ({_exit(entry)}){where}"
    return f"{subject} {verb}{where}{f': {entry.detail}' if entry.detail else ''}"


def _exit(entry: RestartEntry) -> str:
    if entry.exit_code is None:
        return entry.detail or "no exit code"
    signal = signal_name(entry.exit_code) if entry.cause == RestartCause.SIGNAL else ""
    return f"{signal}, exit {entry.exit_code}" if signal else f"exit {entry.exit_code}"
