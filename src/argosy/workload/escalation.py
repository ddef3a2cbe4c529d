"""Escalates restarts: from the container to the pod, the role and the job.

Each scope allows a number of consecutive failures (`Escalation`); one more failure escalates to the next
scope. The kubelet restarts containers; a pod whose containers restarted too often is replaced; a replica
whose pods failed too often restarts its role, and a role that restarted too often restarts the job. Only
failures
escalate, disruptions do not. Running long enough without a failure resets the count, and so does a restart of
a wider scope. If the framework or the user sets a restart scope, there is no escalation.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.workload.model import Limits, Phase, RestartScope, Rules
from argosy.workload.observed import ObservedPod
from argosy.workload.record import RoleRecord


def restart_scope(
    rules: Rules, limits: Limits, last: RoleRecord, failures: int, now: datetime
) -> RestartScope:
    """What must be started anew after so many failures in a row of one place of this role."""
    ladder = limits.escalation
    if rules.restart_scope is not RestartScope.POD or ladder.pod is None or failures <= ladder.pod:
        return rules.restart_scope
    return (
        RestartScope.ROLE
        if ladder.role is None or _role_restarts_in_a_row(last, limits, now) < ladder.role
        else RestartScope.JOB
    )


def exceeds_container_restarts(limits: Limits, pod: ObservedPod) -> bool:
    """Whether the node has restarted the containers of a pod that lives more often than that rung bears."""
    most = limits.escalation.container
    return most is not None and pod.container_restarts > most and not (pod.ended or pod.terminating)


def failures_in_a_row(last: RoleRecord, index: int, lived: float | None, limits: Limits) -> int:
    """Of the pods of a place, with the one that has failed now."""
    long = lived is not None and lived > limits.backoff_reset
    return 1 if long else last.failure_streaks.get(index, 0) + 1


def count_role_restart(last: RoleRecord, limits: Limits, now: datetime) -> RoleRecord:
    """The role that was climbed to: its places begin at the bottom."""
    return replace(
        last, role_restarts_in_a_row=_role_restarts_in_a_row(last, limits, now) + 1, failure_streaks={}
    )


def _role_restarts_in_a_row(last: RoleRecord, limits: Limits, now: datetime) -> int:
    ran = (
        (now - last.phase_since).total_seconds() if last.phase is Phase.RUNNING and last.phase_since else 0.0
    )
    return 0 if ran > limits.backoff_reset else last.role_restarts_in_a_row
