"""The sentences that people read in status and events. One place, so that one thing is always said one
way."""

from collections.abc import Mapping, Sequence, Set
from datetime import UTC, datetime

from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry
from argosy.workload.restart_causes import CONTAINER, Why, lost, signal_name

_NEVER = datetime.min.replace(tzinfo=UTC)

_FATES: Mapping[str, str] = {
    Why.EXIT: "failed",
    Why.SIGNAL: "was killed",
    Why.OUT_OF_MEMORY: "ran out of memory",
    Why.FAILED: "failed",
    Why.COMPLETED: "came to its end",
    Why.EVICTED: "was evicted",
    Why.PREEMPTED: "had to make room for a pod of higher priority",
    Why.DISRUPTED: "was taken away by the cluster",
    Why.DELETED: "was deleted",
    Why.NODE_DOWN: "was on a node that does not answer",
}
_TOLD_BY_CODE: Set[str] = frozenset({Why.EXIT, Why.SIGNAL, Why.OUT_OF_MEMORY, Why.FAILED, Why.COMPLETED})


def place(role: str, index: int) -> str:
    return f"{role}-{index}"


def fate(pod: ObservedPod, down: Set[str] = frozenset()) -> str:
    """How a pod ended: `worker-2 was killed (SIGKILL, exit 137) on node-3`."""
    return restarted(lost(pod, _NEVER, down=down))


def restarted(one: RestartEntry) -> str:
    """What was lost, how and where, in a sentence."""
    what = _FATES.get(one.cause, f"was lost ({one.cause})")
    if one.cause in _TOLD_BY_CODE:
        name = signal_name(one.exit_code) if one.exit_code is not None else ""
        code = f"exit {one.exit_code}" if one.exit_code is not None else one.detail or "no exit code"
        what = f"{what} ({name}, {code})" if name and one.cause == Why.SIGNAL else f"{what} ({code})"
    who = place(one.role, one.index)
    if one.scope == CONTAINER:
        who = f"a container of {who}"
    if one.cause == Why.NODE_DOWN and one.node:
        return f"{who} is on {one.node}, which does not answer"
    where = f" {'from' if one.cause == Why.EVICTED else 'on'} {one.node}" if one.node else ""
    detail = f": {one.detail}" if one.detail and one.cause not in _TOLD_BY_CODE else ""
    return f"{who} {what}{where}{detail}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b and c`, or `a, b, c and 5 more`."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
