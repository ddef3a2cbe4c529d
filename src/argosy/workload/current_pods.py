"""Tells current pods, which match the Record, from stale ones.

Every policy asks this, most of them several times a pass; so the answer is computed for a whole role in one
loop over its pods.
"""

from collections.abc import Sequence

from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record


def is_current(record: Record, pod: ObservedPod) -> bool:
    """Whether the pod is the one that should be in its place: not of an older attempt, not replaced, not too
    many."""
    role = record.role(pod.role)
    return (
        pod.attempt == record.attempt
        and pod.index < role.size
        and pod.replacement == role.replacements.get(pod.index, 0)
    )


def current_pods(record: Record, role: str, observed: Observed) -> Sequence[ObservedPod]:
    """The current pods of a role."""
    attempt, last = record.attempt, record.role(role)
    size, replaced = last.size, last.replacements
    return [
        pod
        for pod in observed.by_role.get(role, ())
        if pod.attempt == attempt and pod.index < size and pod.replacement == replaced.get(pod.index, 0)
    ]


def all_current_pods(record: Record, observed: Observed) -> Sequence[ObservedPod]:
    """The current pods of all roles."""
    return [pod for role in observed.by_role for pod in current_pods(record, role, observed)]


def stale_pods(record: Record, observed: Observed) -> Sequence[ObservedPod]:
    """The pods that are not current. Most often there are none, which is found out without asking each."""
    if len(all_current_pods(record, observed)) == len(observed.pods):
        return ()
    return [pod for pod in observed.pods if not is_current(record, pod)]
