"""Which pods are in the places that a Record gives them, and which are not.

Every policy asks this of the same pods, most of them several times a pass; so it is asked here for whole
roles at a time, in one go over their pods.
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


def current_pods(record: Record, role: str, seen: Observed) -> Sequence[ObservedPod]:
    """The current pods of a role."""
    attempt, last = record.attempt, record.role(role)
    size, replaced = last.size, last.replacements
    return [
        pod
        for pod in seen.by_role.get(role, ())
        if pod.attempt == attempt and pod.index < size and pod.replacement == replaced.get(pod.index, 0)
    ]


def all_current_pods(record: Record, seen: Observed) -> Sequence[ObservedPod]:
    """The current pods of all roles."""
    return [pod for role in seen.by_role for pod in current_pods(record, role, seen)]


def stale_pods(record: Record, seen: Observed) -> Sequence[ObservedPod]:
    """The pods that are not current. Most often there are none, which is found out without asking each."""
    if len(all_current_pods(record, seen)) == len(seen.pods):
        return ()
    return [pod for pod in seen.pods if not is_current(record, pod)]
