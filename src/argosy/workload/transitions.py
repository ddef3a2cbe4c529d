"""Finds what is observed for the first time: failed pods, and pods of an earlier generation of the spec.

It compares the observation with the Record of the previous reconcile, so each transition is reported once,
also after the operator was down.
"""

from collections.abc import Iterator

from msgspec import Struct

from argosy.workload.current_pods import is_current
from argosy.workload.model import Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record


class Transitions(Struct, frozen=True):
    failed_pods: tuple[ObservedPod, ...] = ()
    """Pods observed as Failed for the first time, by role and index."""
    retired_pods: tuple[ObservedPod, ...] = ()
    """Pods, as far as they exist, whose indexes are not used again from now on, by role and index."""
    stale_roles: tuple[str, ...] = ()
    """Roles with running pods of an earlier template."""


def find_transitions(
    workload: Workload, before: Record | None, after: Record, observed: Observed
) -> Transitions:
    failures = sorted(_failures(before, observed), key=lambda pod: (pod.role, pod.index))
    if before is None:
        return Transitions(tuple(failures))
    retired = sorted(_retired_pods(before, after, observed), key=lambda pod: (pod.role, pod.index))
    return Transitions(tuple(failures), tuple(retired), tuple(_stale_roles(workload, before, observed)))


def _failures(before: Record | None, observed: Observed) -> Iterator[ObservedPod]:
    for pod in observed.pods:
        if pod.phase != "Failed" or pod.terminating:
            continue
        if before is None or (
            is_current(before, pod) and pod.index not in before.role(pod.role).failed_indexes
        ):
            yield pod


def _retired_pods(before: Record, after: Record, observed: Observed) -> Iterator[ObservedPod]:
    if before.attempt != after.attempt:
        return
    for name, role in after.roles.items():
        new = role.retired - before.role(name).retired
        if new:
            yield from (
                pod
                for pod in observed.by_role.get(name, ())
                if pod.index in new and pod.attempt == after.attempt
            )


def _stale_roles(workload: Workload, before: Record, observed: Observed) -> Iterator[str]:
    if workload.generation == before.generation:
        return
    for name, role in workload.roles.items():
        was = before.role(name).template_hash
        live = (pod for pod in observed.by_role.get(name, ()) if not (pod.ended or pod.terminating))
        if was and was != role.template_hash and any(pod.index < role.replicas for pod in live):
            yield name
