"""Determines the cause of a restart, for statuses, messages and metrics.

The set of causes is small and fixed, so that users can learn it and metrics stay bounded. What the cluster
did is checked before what the program did: an evicted program has an exit code too, which explains nothing.
"""

import signal
import zlib
from collections.abc import Set
from datetime import datetime
from enum import StrEnum

from msgspec.structs import replace

from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry

CONTAINER = "Container"
"""Scope of a restart by the kubelet, inside the pod; all other scopes are `RestartScope`s."""

_MAX_DETAIL_CHARS = 160
"""Longer messages of the cluster are cut in restart entries."""


class RestartCause(StrEnum):
    """What made a restart necessary."""

    NON_ZERO_EXIT = "NonZeroExit"
    """A program ended with an exit code that is not 0."""
    SIGNAL = "Signal"
    """A program was killed by a signal."""
    OOM_KILLED = "OOMKilled"
    """A program was killed by the kernel because it exceeded its memory limit."""
    FAILED = "Failed"
    """A pod failed without an exit code."""
    COMPLETED = "Completed"
    """A program exited with code 0 in a role with restart policy Always."""
    CONTAINER_RESTART = "ContainerRestart"
    """The kubelet restarted a container. Only metrics use this cause; they count these together."""
    EVICTED = "Evicted"
    """The pod was evicted: its node was short of something, drained or tainted, or it used more storage than
    its own limits allow. Only the last is a failure of the pod."""
    PREEMPTED = "Preempted"
    """The pod was preempted by one of higher priority."""
    DISRUPTED = "Disrupted"
    """The cluster deleted the pod for another reason, such as the shutdown of its node."""
    DELETED = "Deleted"
    """The pod was deleted by a user or by another controller."""
    NODE_LOST = "NodeLost"
    """The pod's node is unreachable or was deleted."""
    BELOW_MIN_REPLICAS = "BelowMinReplicas"
    """A role had fewer running pods than its minimum for too long."""


_REASONS = {
    "Evicted": RestartCause.EVICTED,
    "Preempting": RestartCause.PREEMPTED,
    "NodeLost": RestartCause.NODE_LOST,
    "PreemptionByScheduler": RestartCause.PREEMPTED,
    "EvictionByEvictionAPI": RestartCause.EVICTED,
    "DeletionByTaintManager": RestartCause.EVICTED,
    "DeletionByPodGC": RestartCause.NODE_LOST,
}
"""By the reason of a failed pod, or of the condition DisruptionTarget, which Kubernetes sets on pods that it
deletes."""

_PROGRAMS = frozenset(
    {RestartCause.NON_ZERO_EXIT, RestartCause.SIGNAL, RestartCause.OOM_KILLED, RestartCause.COMPLETED}
)


def cause_of(pod: ObservedPod, down: Set[str] = frozenset()) -> RestartCause:
    """Return why the pod ended or is being deleted; `down` are the nodes that are unreachable."""
    if not pod.ended and pod.node in down:
        return RestartCause.NODE_LOST
    if pod.over_limit:
        return RestartCause.EVICTED
    if pod.disrupted:
        return _REASONS.get(pod.reason) or _REASONS.get(pod.disruption_reason, RestartCause.DISRUPTED)
    if pod.terminating:
        return RestartCause.DELETED
    if not pod.ended:
        return RestartCause.NODE_LOST
    if pod.phase == "Succeeded":
        return RestartCause.COMPLETED
    return exit_cause(pod.exit_code, pod.out_of_memory)


def restart_entry(
    pod: ObservedPod, at: datetime, scope: str = "", down: Set[str] = frozenset()
) -> RestartEntry:
    """Return the entry of the restart history for a pod that ended or is being deleted."""
    cause = cause_of(pod, down)
    code = pod.exit_code if cause in _PROGRAMS else None
    detail = pod.reason if cause is RestartCause.FAILED else ""
    if pod.disrupted or pod.over_limit:
        detail = pod.message
    return RestartEntry(
        at, pod.role, pod.index, cause, scope, pod.attempt, code, pod.node, detail[:_MAX_DETAIL_CHARS]
    )


def disruption_entry(
    pod: ObservedPod, at: datetime, scope: str = "", down: Set[str] = frozenset()
) -> RestartEntry:
    """Return the entry for a pod that did not fail by itself; the history has it once."""
    return replace(restart_entry(pod, at, scope, down), pod_fingerprint=pod_fingerprint(pod))


def container_restart_entry(pod: ObservedPod, at: datetime) -> RestartEntry:
    """Return the entry of the restart history for a container that the kubelet restarted."""
    cause = exit_cause(pod.last_exit_code, pod.last_out_of_memory)
    code = pod.last_exit_code
    return RestartEntry(at, pod.role, pod.index, cause, CONTAINER, pod.attempt, code, pod.node)


def pod_fingerprint(pod: ObservedPod) -> int:
    """Return a number that tells the pod from other pods of the same replica."""
    return zlib.crc32(pod.uid.encode())


def exit_cause(code: int | None, out_of_memory: bool) -> RestartCause:
    """Return why a container ended."""
    if out_of_memory:
        return RestartCause.OOM_KILLED
    if code is None:
        return RestartCause.FAILED
    if code == 0:
        return RestartCause.COMPLETED
    return RestartCause.SIGNAL if signal_name(code) else RestartCause.NON_ZERO_EXIT


def signal_name(exit_code: int) -> str:
    """Return the name of the signal that an exit code above 128 stands for; empty if there is none."""
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return ""
