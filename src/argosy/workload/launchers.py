"""Tells what is there of a launcher and of the replicas that it may have in its host list."""

from argosy.workload.current_pods import current_pods
from argosy.workload.host_list import HostList
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record


def has_launcher(record: Record, rule: HostList) -> bool:
    """Return True if the launcher has been created in this attempt."""
    return record.role(rule.launcher).phase is not Phase.PENDING


def is_launcher_held(workload: Workload, record: Record, observed: Observed, role: str) -> bool:
    """Return True if this is a launcher that must not be created before all running replicas are listed."""
    rule = workload.rules.host_list
    if rule is None or role != rule.launcher or has_launcher(record, rule):
        return False
    listed = record.role(rule.role).listed
    return not listed or bool(usable_indexes(workload, rule, record, observed) - listed)


def launcher_pod(record: Record, rule: HostList, observed: Observed) -> ObservedPod | None:
    """Return the running pod of the launcher, if there is one."""
    pods = current_pods(record, rule.launcher, observed)
    return next((pod for pod in pods if pod.phase == "Running" and not pod.terminating), None)


def usable_indexes(workload: Workload, rule: HostList, record: Record, observed: Observed) -> IndexSet:
    """Return the replicas whose pods run on a node that is not down."""
    down = observed.failed_nodes(workload.roles[rule.role].policy, workload.semantics)
    return IndexSet.of(
        pod.index
        for pod in current_pods(record, rule.role, observed)
        if pod.phase == "Running" and not pod.terminating and pod.node not in down
    )
