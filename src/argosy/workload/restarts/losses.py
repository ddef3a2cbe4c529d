"""Finds the pods of a job that are lost and must be replaced, and how much must be restarted for each."""

from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.current_pods import current_pods, is_current
from argosy.workload.model import Phase, RestartPolicy, RestartScope, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RestartEntry, RoleRecord
from argosy.workload.restarts import escalation
from argosy.workload.restarts.causes import (
    RestartCause,
    container_restart_entry,
    disruption_entry,
    restart_entry,
)
from argosy.workload.semantics import Semantics


class LostPod(Struct, frozen=True):
    """A replica whose pod must be replaced."""

    entry: RestartEntry
    """What the restart history says about it."""
    uses_restart: bool
    scope: RestartScope
    """How much must be restarted for it."""
    failures: int = 0
    """Consecutive failures of the replica, with this one."""
    container_restarts: int = 0
    """Restarts of its containers, if there were too many of them. They have been counted already."""
    age_seconds: float | None = None
    """Seconds since the pod was created."""

    @property
    def role(self) -> str:
        return self.entry.role

    @property
    def index(self) -> int:
        return self.entry.index

    @property
    def disrupted(self) -> bool:
        """True if the pod did not fail itself."""
        return not self.uses_restart and not self.container_restarts

    @property
    def killed(self) -> bool:
        """True if a signal ended it. Then it is more likely the root cause than pods that exited after it."""
        return self.entry.cause in (RestartCause.SIGNAL, RestartCause.OOM_KILLED)


def find_lost_pods(workload: Workload, record: Record, observed: Observed, now: datetime) -> list[LostPod]:
    """Return all lost pods, by role and index; roles that succeeded have none."""
    return [
        loss
        for role in workload.roles.values()
        if role.restart is not RestartPolicy.NEVER and record.role(role.name).phase is not Phase.SUCCEEDED
        for loss in sorted(_lost_of_role(workload, role, record, observed, now), key=lambda loss: loss.index)
    ]


def count_unreplaced_failures(workload: Workload, record: Record, observed: Observed) -> int:
    """Return the number of failed pods that are not replaced."""
    return sum(
        pod.phase == "Failed" and not pod.terminating and not should_replace(role, pod, workload.semantics)
        for role in workload.roles.values()
        for pod in current_pods(record, role.name, observed)
        if pod.index not in record.asked_to_leave(role.name)
    )


def should_replace(role: Role, pod: ObservedPod, semantics: Semantics) -> bool:
    """Return True if the role's restart policy replaces this ended pod."""
    if role.restart is RestartPolicy.ALWAYS:
        return True
    if pod.phase != "Failed" and not pod.disrupted:
        return False
    if role.restart is RestartPolicy.EXIT_CODE and semantics.replaced_exit_codes:
        return pod.phase == "Failed" and pod.first_exit_code in semantics.replaced_exit_codes
    if role.restart is RestartPolicy.EXIT_CODE:
        return pod.disrupted or pod.exit_code is None or pod.exit_code >= 128
    return role.restart is RestartPolicy.ON_FAILURE


def widest_scope(losses: list[LostPod]) -> RestartScope:
    """Return how much must be restarted for all of them together."""
    return max((loss.scope for loss in losses), key=list(RestartScope).index)


def widest(losses: list[LostPod]) -> LostPod:
    """Return the loss that needs the widest scope; of several a failure, and of those the root cause."""
    scope = widest_scope(losses)
    candidates = [loss for loss in losses if loss.scope is scope]
    return root_cause([loss for loss in candidates if not loss.disrupted] or candidates)


def root_cause(losses: list[LostPod]) -> LostPod:
    """Return the loss that most likely caused the others."""
    return next((loss for loss in losses if loss.killed), losses[0])


def _lost_of_role(
    workload: Workload, role: Role, record: Record, observed: Observed, now: datetime
) -> list[LostPod]:
    """Return the lost pods of a role; with a lost coordinator, the other losses are its consequences.

    A coordinator on a node that is down counts as lost when others fail: they cannot continue without it.
    """
    losses = [
        *_lost_existing(workload, role, record, observed, now),
        *_lost_deleted(workload, role, record, observed, now),
    ]
    if not losses or role.name not in workload.rules.coordinators:
        return losses
    if not any(loss.index == 0 for loss in losses):
        pods = (pod for pod in current_pods(record, role.name, observed) if pod.index == 0 and not pod.ended)
        coordinator = next((pod for pod in pods if pod.node in observed.nodes_down), None)
        if coordinator is None or not any(loss.uses_restart for loss in losses):
            return losses
        losses.append(_lost_pod(workload, role, record.role(role.name), coordinator, observed, now))
    return [loss if loss.index == 0 else replace(loss, uses_restart=False) for loss in losses]


def _lost_existing(
    workload: Workload, role: Role, record: Record, observed: Observed, now: datetime
) -> Iterator[LostPod]:
    """Yield lost pods that still exist."""
    last = record.role(role.name)
    policy = role.replacement
    replaced_early = workload.allows_surge(role) or policy.next_index
    down = observed.nodes_to_replace(role.policy, workload.semantics)
    staying = (last.members - record.leaving(role.name) - record.asked_to_leave(role.name)).lookup
    for pod in current_pods(record, role.name, observed):
        if pod.index in last.succeeded_indexes or pod.index not in staying:
            continue
        if pod.terminating:
            restarts_more = workload.restart_scope(role, pod.index) is not RestartScope.POD
            replaced = policy.deleted and not policy.refill_deleted
            lost = replaced and (restarts_more or replaced_early)
        elif pod.ended:
            lost = should_replace(role, pod, workload.semantics)
        else:
            lost = pod.node in down or (policy.unknown and pod.phase == "Unknown")
        if lost:
            yield _lost_pod(workload, role, last, pod, observed, now)
        elif escalation.exceeds_container_restarts(workload.limits, pod):
            yield _crashing_pod(workload, role, last, pod, now)


def _lost_deleted(
    workload: Workload, role: Role, record: Record, observed: Observed, now: datetime
) -> Iterator[LostPod]:
    """Yield pods that are confirmed to be deleted, unless they are just created again under their index."""
    last, policy = record.role(role.name), role.replacement
    if policy.refill_deleted or not policy.deleted or last.phase is not Phase.RUNNING:
        return
    if not observed.confirmed_absent:
        return
    deleted = {(pod.role, pod.index): pod for pod in observed.recently_deleted if is_current(record, pod)}
    for index in (last.created & last.members) - record.asked_to_leave(role.name):
        replica, scope = (role.name, index), workload.restart_scope(role, index)
        refilled = scope is RestartScope.POD and not policy.next_index
        if (
            refilled
            or index in last.succeeded_indexes
            or replica not in observed.confirmed_absent
            or observed.by_replica.get(replica)
        ):
            continue
        if replica in deleted:
            entry = disruption_entry(deleted[replica], now, down=observed.nodes_down)
        else:
            entry = RestartEntry(now, role.name, index, RestartCause.DELETED, "", record.attempt)
        yield LostPod(entry, uses_restart=policy.count_disruptions, scope=scope)


def _lost_pod(
    workload: Workload, role: Role, last: RoleRecord, pod: ObservedPod, observed: Observed, now: datetime
) -> LostPod:
    age = _age_seconds(pod, now)
    disrupted = pod.phase != "Failed" or pod.disrupted or pod.terminating
    if disrupted and not role.replacement.count_disruptions:
        entry = disruption_entry(pod, now, down=observed.nodes_down)
        scope = workload.restart_scope(role, pod.index)
        return LostPod(entry, uses_restart=False, scope=scope, age_seconds=age)
    entry = restart_entry(pod, now, down=observed.nodes_down)
    failures = escalation.failures_in_a_row(last, pod.index, age, workload.limits)
    scope = _escalated_scope(workload, role, last, pod, failures, now)
    return LostPod(entry, uses_restart=True, scope=scope, failures=failures, age_seconds=age)


def _crashing_pod(
    workload: Workload, role: Role, last: RoleRecord, pod: ObservedPod, now: datetime
) -> LostPod:
    """Return a pod whose containers have restarted too often."""
    age = _age_seconds(pod, now)
    failures = escalation.failures_in_a_row(last, pod.index, age, workload.limits)
    return LostPod(
        replace(container_restart_entry(pod, now), scope=""),
        uses_restart=False,
        scope=_escalated_scope(workload, role, last, pod, failures, now),
        failures=failures,
        container_restarts=pod.container_restarts,
        age_seconds=age,
    )


def _escalated_scope(
    workload: Workload, role: Role, last: RoleRecord, pod: ObservedPod, failures: int, now: datetime
) -> RestartScope:
    scope = workload.restart_scope(role, pod.index)
    return escalation.restart_scope(scope, workload.limits, last, failures, now)


def _age_seconds(pod: ObservedPod, now: datetime) -> float | None:
    return (now - pod.created).total_seconds() if pod.created else None
