"""Selects the current pods of a job, whose labels match the Record; all others are stale.

Every policy needs this, most of them several times per reconcile, so a whole role is selected in one loop.
"""

from collections.abc import Sequence

from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record


def is_current(record: Record, pod: ObservedPod) -> bool:
    """Return True if the pod is of the current attempt and replacement number, and wanted by its role."""
    role = record.role(pod.role)
    return (
        pod.attempt == record.attempt
        and pod.index in role.wanted.lookup
        and pod.replacement == role.replacements.get(pod.index, 0)
    )


def current_pods(record: Record, role: str, observed: Observed) -> Sequence[ObservedPod]:
    """Return the current pods of a role."""
    attempt, last = record.attempt, record.role(role)
    wanted, replaced = last.wanted.lookup, last.replacements
    return [
        pod
        for pod in observed.by_role.get(role, ())
        if pod.attempt == attempt and pod.index in wanted and pod.replacement == replaced.get(pod.index, 0)
    ]


def all_current_pods(record: Record, observed: Observed) -> Sequence[ObservedPod]:
    """Return the current pods of all roles."""
    return [pod for role in observed.by_role for pod in current_pods(record, role, observed)]


def stale_pods(record: Record, observed: Observed) -> Sequence[ObservedPod]:
    """Return the pods that are not current; usually none, which is checked without looking at each pod.

    Not the ended pods of retired indexes: they are kept, with their output, unless they are scaled in.
    """
    if len(all_current_pods(record, observed)) == len(observed.pods):
        return ()
    return [pod for pod in observed.pods if not (is_current(record, pod) or _is_retired(record, pod))]


def _is_retired(record: Record, pod: ObservedPod) -> bool:
    if not pod.ended or pod.attempt != record.attempt:
        return False
    return pod.index in record.role(pod.role).retired and pod.index not in record.leaving(pod.role)
