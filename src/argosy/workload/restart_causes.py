"""Determines the cause of a restart, for statuses, messages and metrics.

The set of causes is small and fixed, so that users can learn it and metrics stay bounded. What the cluster
did is checked before what the program did: an evicted program has an exit code too, which explains nothing.
"""

import signal
import zlib
from collections.abc import Set
from datetime import datetime
from enum import StrEnum

from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry

CONTAINER = "Container"
"""The lowest rung of restarts, in the pod itself; the others are `Scope`s."""

_DETAIL = 160
"""Letters kept of what the cluster said."""


class RestartCause(StrEnum):
    """What made a restart necessary."""

    NON_ZERO_EXIT = "NonZeroExit"
    """A program ended with an exit code that is not 0."""
    SIGNAL = "Signal"
    """A program was killed by a signal."""
    OOM_KILLED = "OOMKilled"
    """A program was killed by the kernel, for it had more memory than its limit allows."""
    FAILED = "Failed"
    """A pod failed and there is no exit code to tell why."""
    COMPLETED = "Completed"
    """A program came to its end in a role that is to run for ever."""
    CONTAINER_RESTART = "ContainerRestart"
    """A container was restarted in its place by the node; a word for metrics, which count these together."""
    EVICTED = "Evicted"
    """The pod was evicted: its node was short of something, drained or tainted, or it used more storage than
    its own limits allow. Only the last is a failure of the pod."""
    PREEMPTED = "Preempted"
    """The pod had to make room for one of higher priority."""
    DISRUPTED = "Disrupted"
    """The cluster took the pod away for another reason, such as the shutdown of its node."""
    DELETED = "Deleted"
    """Somebody deleted the pod."""
    NODE_LOST = "NodeLost"
    """The pod's node does not answer, or is gone."""


_REASONS = {
    "Evicted": RestartCause.EVICTED,
    "Preempting": RestartCause.PREEMPTED,
    "NodeLost": RestartCause.NODE_LOST,
    "PreemptionByScheduler": RestartCause.PREEMPTED,
    "EvictionByEvictionAPI": RestartCause.EVICTED,
    "DeletionByTaintManager": RestartCause.EVICTED,
    "DeletionByPodGC": RestartCause.NODE_LOST,
}
"""Reasons of failed pods, and of the condition DisruptionTarget, which Kubernetes sets on what it takes
away."""

_PROGRAMS = frozenset(
    {RestartCause.NON_ZERO_EXIT, RestartCause.SIGNAL, RestartCause.OOM_KILLED, RestartCause.COMPLETED}
)


def cause_of(pod: ObservedPod, down: Set[str] = frozenset()) -> RestartCause:
    """What ended the pod, or takes it away; `down` are the nodes that do not answer."""
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
    pod: ObservedPod, at: datetime, rung: str = "", down: Set[str] = frozenset()
) -> RestartEntry:
    """What is remembered of a pod that ended or is taken away."""
    cause = cause_of(pod, down)
    code = pod.exit_code if cause in _PROGRAMS else None
    said = (
        pod.message if pod.disrupted or pod.over_limit else pod.reason if cause is RestartCause.FAILED else ""
    )
    return RestartEntry(at, pod.role, pod.index, cause, rung, pod.attempt, code, pod.node, said[:_DETAIL])


def container_restart_entry(pod: ObservedPod, at: datetime) -> RestartEntry:
    """What is remembered of a container that its node restarted."""
    cause = exit_cause(pod.last_exit_code, pod.last_out_of_memory)
    code = pod.last_exit_code
    return RestartEntry(at, pod.role, pod.index, cause, CONTAINER, pod.attempt, code, pod.node)


def pod_fingerprint(pod: ObservedPod) -> int:
    """A number by which a pod is told from others of its place."""
    return zlib.crc32(pod.uid.encode())


def exit_cause(code: int | None, out_of_memory: bool) -> RestartCause:
    """What ended a container."""
    if out_of_memory:
        return RestartCause.OOM_KILLED
    if code is None:
        return RestartCause.FAILED
    if code == 0:
        return RestartCause.COMPLETED
    return RestartCause.SIGNAL if signal_name(code) else RestartCause.NON_ZERO_EXIT


def signal_name(exit_code: int) -> str:
    """The signal behind an exit code above 128; empty if there is none."""
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return ""
