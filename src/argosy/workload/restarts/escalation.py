"""Escalates restarts: from the container to the pod, the role and the job.

Each scope allows a number of consecutive failures (`Escalation`); one more failure escalates to the next
scope. The kubelet restarts containers; a pod whose containers restarted too often is replaced; a replica
whose pods failed too often restarts its role, and a role that restarted too often restarts the job. Only
failures escalate, disruptions do not. Running long enough without a failure resets the count, and so does a
restart of a wider scope; container restarts count over the life of their pod. If the framework or the user
sets a restart scope, there is no escalation.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.workload.model import Limits, Phase, RestartScope
from argosy.workload.observed import ObservedPod
from argosy.workload.record import RoleRecord


def restart_scope(
    scope: RestartScope, limits: Limits, last: RoleRecord, failures: int, now: datetime
) -> RestartScope:
    """Return how much is restarted after so many consecutive failures of one replica of the role.

    `scope` is what the role restarts for a single failure.
    """
    allowed = limits.escalation
    if scope is not RestartScope.POD or allowed.pod is None or failures <= allowed.pod:
        return scope
    if allowed.role is None or _role_restarts_in_a_row(last, limits, now) < allowed.role:
        return RestartScope.ROLE
    return RestartScope.JOB


def exceeds_container_restarts(limits: Limits, pod: ObservedPod) -> bool:
    """Return True if the kubelet has restarted the containers of an active pod more often than allowed."""
    allowed = limits.escalation.container
    return allowed is not None and pod.container_restarts > allowed and not (pod.ended or pod.terminating)


def failures_in_a_row(last: RoleRecord, index: int, age_seconds: float | None, limits: Limits) -> int:
    """Return the consecutive failures of a replica, with the one of a pod of this age that failed now."""
    stable = age_seconds is not None and age_seconds > limits.backoff_reset
    return 1 if stable else last.failure_streaks.get(index, 0) + 1


def count_role_restart(last: RoleRecord, limits: Limits, now: datetime) -> RoleRecord:
    """Return the role with one more restart in a row; the failures of its replicas count from 0 again."""
    return replace(
        last, role_restarts_in_a_row=_role_restarts_in_a_row(last, limits, now) + 1, failure_streaks={}
    )


def _role_restarts_in_a_row(last: RoleRecord, limits: Limits, now: datetime) -> int:
    running_since = last.phase_since if last.phase is Phase.RUNNING else None
    stable = running_since is not None and (now - running_since).total_seconds() > limits.backoff_reset
    return 0 if stable else last.role_restarts_in_a_row
