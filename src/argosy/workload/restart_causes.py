"""What ended a pod, in one word each: the vocabulary of restarts, for status, messages and metrics.

The words are few and fixed, so that people can learn them and metrics stay bounded. What the cluster did is
looked at before what the program did: an evicted program ends with an exit code too, and it tells nothing.
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


class Why(StrEnum):
    """What made a restart necessary."""

    EXIT = "Exit"
    """A program ended with an exit code that is not 0."""
    SIGNAL = "Signal"
    """A program was killed by a signal."""
    OUT_OF_MEMORY = "OutOfMemory"
    """A program was killed by the kernel, for it had more memory than its limit allows."""
    FAILED = "Failed"
    """A pod failed and there is no exit code to tell why."""
    COMPLETED = "Completed"
    """A program came to its end in a role that is to run for ever."""
    CONTAINER = "Container"
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
    NODE_DOWN = "NodeDown"
    """The pod's node does not answer, or is gone."""


_REASONS = {
    "Evicted": Why.EVICTED,
    "Preempting": Why.PREEMPTED,
    "NodeLost": Why.NODE_DOWN,
    "PreemptionByScheduler": Why.PREEMPTED,
    "EvictionByEvictionAPI": Why.EVICTED,
    "DeletionByTaintManager": Why.EVICTED,
    "DeletionByPodGC": Why.NODE_DOWN,
}
"""Reasons of failed pods, and of the condition DisruptionTarget, which Kubernetes sets on what it takes
away."""

_PROGRAMS = frozenset({Why.EXIT, Why.SIGNAL, Why.OUT_OF_MEMORY, Why.COMPLETED})


def why(pod: ObservedPod, down: Set[str] = frozenset()) -> Why:
    """What ended the pod, or takes it away; `down` are the nodes that do not answer."""
    if not pod.ended and pod.node in down:
        return Why.NODE_DOWN
    if pod.over_limit:
        return Why.EVICTED
    if pod.disrupted:
        return _REASONS.get(pod.reason) or _REASONS.get(pod.disruption_reason, Why.DISRUPTED)
    if pod.terminating:
        return Why.DELETED
    if not pod.ended:
        return Why.NODE_DOWN
    if pod.phase == "Succeeded":
        return Why.COMPLETED
    return why_exit(pod.exit_code, pod.out_of_memory)


def lost(pod: ObservedPod, at: datetime, rung: str = "", down: Set[str] = frozenset()) -> RestartEntry:
    """What is remembered of a pod that ended or is taken away."""
    cause = why(pod, down)
    code = pod.exit_code if cause in _PROGRAMS else None
    said = pod.message if pod.disrupted or pod.over_limit else pod.reason if cause is Why.FAILED else ""
    return RestartEntry(at, pod.role, pod.index, cause, rung, pod.attempt, code, pod.node, said[:_DETAIL])


def restarted_in_place(pod: ObservedPod, at: datetime) -> RestartEntry:
    """What is remembered of a container that its node restarted."""
    cause = why_exit(pod.last_exit_code, pod.last_out_of_memory)
    code = pod.last_exit_code
    return RestartEntry(at, pod.role, pod.index, cause, CONTAINER, pod.attempt, code, pod.node)


def mark(pod: ObservedPod) -> int:
    """A number by which a pod is told from others of its place."""
    return zlib.crc32(pod.uid.encode())


def why_exit(code: int | None, out_of_memory: bool) -> Why:
    """What ended a container."""
    if out_of_memory:
        return Why.OUT_OF_MEMORY
    if code is None:
        return Why.FAILED
    if code == 0:
        return Why.COMPLETED
    return Why.SIGNAL if signal_name(code) else Why.EXIT


def signal_name(exit_code: int) -> str:
    """The signal behind an exit code above 128; empty if there is none."""
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return ""
