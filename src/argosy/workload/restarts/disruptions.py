"""Records pods that were evicted, preempted or deleted and are refilled without using a restart.

This only affects what users read. It therefore considers only pods whose deletion was observed, and never
more of them at once than the restart history holds.
"""

from datetime import datetime

from argosy.workload.current_pods import is_current
from argosy.workload.model import Phase, RestartPolicy, RestartScope, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import MAX_RESTART_HISTORY, Record, RestartEntry
from argosy.workload.restarts.causes import disruption_entry


def new_disruptions(
    workload: Workload, record: Record, observed: Observed, now: datetime
) -> list[RestartEntry]:
    """Return the disruptions that are not in the restart history yet."""
    refilled_roles = {role.name for role in workload.roles.values() if _is_refilled_in_place(workload, role)}
    if not refilled_roles:
        return []
    surging = {role.name for role in workload.roles.values() if workload.allows_surge(role)}
    terminating = (pod for pod in observed.pods if pod.terminating and pod.role not in surging)
    lost = {
        (pod.role, pod.index): pod
        for pod in (*observed.recently_deleted, *terminating)
        if pod.role in refilled_roles
    }
    if not lost:
        return []
    refilled = [pod for _, pod in sorted(lost.items()) if _is_refilled(workload, record, pod, observed)]
    newest = refilled[:MAX_RESTART_HISTORY]
    entries = (disruption_entry(pod, now, RestartScope.POD, observed.nodes_down) for pod in newest)
    return list(record.unrecorded(entries))


def _is_refilled_in_place(workload: Workload, role: Role) -> bool:
    """Return True if a missing pod of the role is created again under its index, and nothing else happens."""
    policy = role.replacement
    return policy.deleted and not policy.next_index and workload.restart_scope(role) is RestartScope.POD


def _is_refilled(workload: Workload, record: Record, pod: ObservedPod, observed: Observed) -> bool:
    role, last = workload.roles.get(pod.role), record.role(pod.role)
    if role is None or role.restart is RestartPolicy.NEVER or not is_current(record, pod):
        return False
    if workload.restart_scope(role, pod.index) is not RestartScope.POD:
        return False
    if (
        last.phase is not Phase.RUNNING
        or pod.index not in last.created
        or pod.index in last.succeeded_indexes
    ):
        return False
    return all(other.terminating for other in observed.by_replica.get((pod.role, pod.index), ()))
