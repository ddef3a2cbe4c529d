"""Decides which replicas are in the host list that a launcher reads.

The list is part of the Record (`RoleRecord.listed`): the ConfigMap, the endpoint that the launcher's sidecar
asks, and the status all show the recorded list. What elastic frameworks do not survive decides its rules:

- A replica is listed only when its pod runs and a command was seen to run in it. A listed host that does not
  answer ends the whole training.
- A lost replica leaves the list at once. Additions wait until the last change was taken up.
- The list is never empty while the launcher runs: the last one is kept.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.actions import Exec, ExecStatus
from argosy.workload.current_pods import current_pods
from argosy.workload.host_list import HostList
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord

SETTLE_SECONDS = 5.0
"""Seconds after a change of the list in which nothing is added, so that the launcher takes up one change at a
time."""
CHECK_RETRY_SECONDS = 2.0
"""Seconds until a pod that could not be attached is tried again."""


class HostListPlan(Struct, frozen=True):
    record: Record
    checks: tuple[Exec, ...] = ()
    """Commands that show whether a pod can be attached."""
    requeue_at: datetime | None = None


def update_host_list(workload: Workload, record: Record, observed: Observed, now: datetime) -> HostListPlan:
    """Return the record with the current host list, and the checks that additions wait for."""
    rule = workload.rules.host_list
    if rule is None or record.finished_at:
        return HostListPlan(record)
    last = record.role(rule.role)
    usable = usable_indexes(workload, rule, record, observed)
    checks = tuple(_checks(rule, record, observed, usable - last.listed))
    attachable = attachable_indexes(rule, record, observed)
    kept = last.listed & (usable - last.draining)
    added = (usable & attachable & last.members) - last.draining - last.listed
    held_until = _held_until(record, rule, last)
    requeue_at = now + timedelta(seconds=CHECK_RETRY_SECONDS) if checks else None
    if added and kept == last.listed and held_until and now < held_until:
        return HostListPlan(record, checks, min(held_until, requeue_at) if requeue_at else held_until)
    listed = kept | added
    if listed == last.listed or (not listed and has_launcher(record, rule)):
        return HostListPlan(record, checks, requeue_at)
    changed = replace(last, listed=listed, listed_since=now)
    return HostListPlan(record.with_role(rule.role, changed), checks, requeue_at)


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


def attachable_indexes(rule: HostList, record: Record, observed: Observed) -> IndexSet:
    """Return the replicas in whose pods a command was seen to run."""
    return IndexSet.of(
        pod.index for pod in current_pods(record, rule.role, observed) if _is_attachable(pod, observed)
    )


def _is_attachable(pod: ObservedPod, observed: Observed) -> bool:
    result = observed.exec_results.get(_check_key(pod))
    return result is not None and result.status is ExecStatus.DONE and result.exit_code == 0


def _checks(rule: HostList, record: Record, observed: Observed, unlisted: IndexSet) -> Iterator[Exec]:
    """Yield a check for every pod that runs and is not listed; one that failed is left out once, so that it
    is run again."""
    for pod in current_pods(record, rule.role, observed):
        if pod.index not in unlisted:
            continue
        if observed.exec_results.get(_check_key(pod)) is None or _is_attachable(pod, observed):
            yield Exec(_check_key(pod), pod.name, pod.uid, rule.container, rule.attach_check)


def _check_key(pod: ObservedPod) -> str:
    return f"attach/{pod.uid}"


def _held_until(record: Record, rule: HostList, last: RoleRecord) -> datetime | None:
    if last.listed_since is None or not has_launcher(record, rule):
        return None
    return last.listed_since + timedelta(seconds=SETTLE_SECONDS)
