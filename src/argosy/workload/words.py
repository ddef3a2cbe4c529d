"""The sentences that people read in status and events. One place, so that one thing is always said one
way."""

import signal
from collections.abc import Sequence

from argosy.workload.observed import ObservedPod


def place(role: str, index: int) -> str:
    return f"{role}-{index}"


def fate(pod: ObservedPod) -> str:
    """How a pod ended: `worker-2 was killed (SIGKILL, exit 137) on node-3`."""
    who, where = place(pod.role, pod.index), f" on {pod.node}" if pod.node else ""
    if pod.disrupted:
        why = f": {pod.message}" if pod.message else ""
        return f"{who} was taken away by the cluster ({pod.reason or 'disruption'}){where}{why}"
    if pod.terminating:
        return f"{who} is being deleted{where}"
    if pod.exit_code is None:
        return f"{who} failed ({pod.reason or 'no exit code'}){where}"
    name = signal_name(pod.exit_code)
    if name:
        return f"{who} was killed ({name}, exit {pod.exit_code}){where}"
    return f"{who} failed (exit {pod.exit_code}){where}"


def signal_name(exit_code: int) -> str:
    """The signal behind an exit code above 128; empty if there is none."""
    try:
        return signal.Signals(exit_code - 128).name
    except ValueError:
        return ""


def listed(names: Sequence[str], most: int = 3) -> str:
    """`a, b and c`, or `a, b, c and 5 more`."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
