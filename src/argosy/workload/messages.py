"""Builds the sentences that users read in statuses and events."""

from collections.abc import Mapping, Set
from datetime import UTC, datetime

from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry
from argosy.workload.restart_causes import CONTAINER, RestartCause, restart_entry, signal_name

_NEVER = datetime.min.replace(tzinfo=UTC)

_FATES: Mapping[str, str] = {
    RestartCause.NON_ZERO_EXIT: "failed",
    RestartCause.SIGNAL: "was killed",
    RestartCause.OOM_KILLED: "ran out of memory",
    RestartCause.FAILED: "failed",
    RestartCause.COMPLETED: "came to its end",
    RestartCause.EVICTED: "was evicted",
    RestartCause.PREEMPTED: "had to make room for a pod of higher priority",
    RestartCause.DISRUPTED: "was taken away by the cluster",
    RestartCause.DELETED: "was deleted",
    RestartCause.NODE_LOST: "was on a node that does not answer",
}
_TOLD_BY_CODE: Set[str] = frozenset(
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


def describe_restart(one: RestartEntry) -> str:
    """What was lost, how and where, in a sentence."""
    what = _FATES.get(one.cause, f"was lost ({one.cause})")
    if one.cause in _TOLD_BY_CODE:
        name = signal_name(one.exit_code) if one.exit_code is not None else ""
        code = f"exit {one.exit_code}" if one.exit_code is not None else one.detail or "no exit code"
        what = f"{what} ({name}, {code})" if name and one.cause == RestartCause.SIGNAL else f"{what} ({code})"
    who = replica_name(one.role, one.index)
    if one.scope == CONTAINER:
        who = f"a container of {who}"
    if one.cause == RestartCause.NODE_LOST and one.node:
        return f"{who} is on {one.node}, which does not answer"
    where = f" {'from' if one.cause == RestartCause.EVICTED else 'on'} {one.node}" if one.node else ""
    detail = f": {one.detail}" if one.detail and one.cause not in _TOLD_BY_CODE else ""
    return f"{who} {what}{where}{detail}"
