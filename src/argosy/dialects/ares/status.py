"""Builds the status of an AresJob from its Record and its pods.

The engine has phases that this API does not have: a restart is shown by a condition and by counts, a
suspended job is Pending, and a job with an invalid spec is Failed until it is edited.
"""

from collections.abc import Mapping, Sequence

import msgspec

from argosy.dialects.ares import reasons as ares_reasons
from argosy.dialects.ares.conditions import conditions, with_ares_field_names
from argosy.dialects.base import StatusInput
from argosy.dialects.counts import fold_running_into_succeeded
from argosy.dialects.restart_history import restart_history
from argosy.kinds.aresjob import AresJob, AresJobStatus, ReplicaStatus, RoleStatus
from argosy.kinds.messages import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import ActionStatus
from argosy.workload import reasons
from argosy.workload.current_pods import current_pods
from argosy.workload.model import Phase, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import Counts, count_pods
from argosy.workload.record import Record, RoleRecord, encode
from argosy.workload.wait_reasons import status_message

_CREATE_ERRORS = (ActionStatus.FORBIDDEN, ActionStatus.RETRY)
_NAMED = 3
"""Terminating pods that a message names."""


def to_status(obj: AresJob, view: StatusInput) -> AresJobStatus:
    """Return the whole status; the writer adds the time of writing."""
    workload, record, seen, last = view.workload, view.record, view.observed, obj.status
    counts = (
        {name: count_pods(workload, role, record, seen) for name, role in workload.roles.items()}
        if workload
        else {}
    )
    over = record.finished_at is not None and last.completion_time is not None
    roles = _roles(obj, workload, record, seen, counts)
    phase = ares_phase(last, record)
    return AresJobStatus(
        phase=phase,
        observed_generation=record.generation,
        start_time=record.started_at,
        running_time=record.first_running_at,
        completion_time=record.finished_at,
        last_reconcile_time=last.last_reconcile_time,
        conditions=conditions(last.conditions, obj.metadata.name, phase, workload, record, seen),
        replica_statuses={
            name: ReplicaStatus(one.active, one.succeeded, one.failed) for name, one in roles.items()
        },
        role_statuses=roles,
        message=last.message
        if over
        else with_ares_field_names(status_message(workload, record, seen, counts)),
        restart_history=restart_history(record),
        argosy=encode(record),
    )


def is_invalid(record: Record) -> bool:
    return record.waiting is not None and record.waiting.reason in (
        reasons.INVALID_SPEC,
        reasons.SPEC_REJECTED,
    )


def ares_phase(last: AresJobStatus, record: Record) -> str:
    """Return the job's phase as this API names it."""
    if is_invalid(record):
        return Phase.FAILED.value
    if record.phase is Phase.RESTARTING:
        return Phase.RUNNING.value if last.phase == Phase.RUNNING.value else Phase.STARTING.value
    return Phase.PENDING.value if record.phase is Phase.SUSPENDED else record.phase.value


def _roles(
    obj: AresJob, workload: Workload | None, record: Record, seen: Observed, counts: Mapping[str, Counts]
) -> dict[str, RoleStatus]:
    """Return the status of every role; after the job has finished they do not change."""
    last = obj.status.role_statuses
    if workload is None or (record.finished_at and obj.status.completion_time):
        return {} if is_invalid(record) else last
    if is_invalid(record):
        return {}
    return {
        name: _role(workload, role, last.get(name, RoleStatus()), record, seen, counts[name])
        for name, role in workload.roles.items()
    }


def _role(
    workload: Workload, role: Role, last: RoleStatus, record: Record, seen: Observed, counts: Counts
) -> RoleStatus:
    remembered = record.role(role.name)
    numbers = fold_running_into_succeeded(counts, record)
    reason, message = _role_reason(workload, role, last, remembered, record, seen)
    return RoleStatus(
        phase=remembered.phase.value,
        reason=reason,
        message=message,
        last_transition_time=remembered.phase_since,
        active=numbers.active,
        succeeded=numbers.succeeded,
        failed=numbers.failed,
        pending=numbers.pending,
        unknown=numbers.unknown,
        terminating=numbers.terminating,
        replicas=_created(role, last, remembered, record, seen),
        restarts=remembered.restarts + remembered.disruptions,
    )


def _created(role: Role, last: RoleStatus, remembered: RoleRecord, record: Record, seen: Observed) -> int:
    if remembered.phase is Phase.PENDING:
        return 0
    highest = max((pod.index + 1 for pod in current_pods(record, role.name, seen)), default=0)
    return min(max(highest, last.replicas), role.replicas)


def _role_reason(
    workload: Workload, role: Role, last: RoleStatus, remembered: RoleRecord, record: Record, seen: Observed
) -> tuple[str, str]:
    """Return why the role has failed, or why its pods cannot be created."""
    if remembered.phase is Phase.FAILED:
        if last.phase == Phase.FAILED.value and last.reason:
            return last.reason, last.message
        return _failure(workload, role, remembered, record, seen)
    refused = [one for one in seen.failed_actions if one.role == role.name and one.status in _CREATE_ERRORS]
    return (ares_reasons.CREATE_ERROR, refused[0].message) if refused else ("", "")


def _failure(
    workload: Workload, role: Role, remembered: RoleRecord, record: Record, seen: Observed
) -> tuple[str, str]:
    """Return the first reason that applies, by the lowest index."""
    if remembered.reason == reasons.PREEMPTED:
        return reasons.PREEMPTED, remembered.message
    pods = sorted(current_pods(record, role.name, seen), key=lambda pod: pod.index)
    live = [pod for pod in pods if not pod.terminating]
    failed = next((pod for pod in live if pod.phase == "Failed"), None)
    if failed is not None:
        mixed = remembered.reason == reasons.MIXED_OUTCOME
        return reasons.MIXED_OUTCOME if mixed else reasons.POD_FAILED, describe_failed_pod(failed)
    down = seen.failed_nodes(role.policy, workload.semantics)
    lost = next((pod for pod in live if pod.node in down), None)
    if lost is not None:
        return (
            ares_reasons.POSSIBLE_NODE_DOWN,
            f"pod={lost.name}; nodeName={lost.node}; info=the node is down",
        )
    going = [pod for pod in pods if pod.terminating]
    if going:
        indexes = _indexes([pod.index for pod in going])
        named = ", ".join(f"{pod.name}({pod.node})" for pod in going[:_NAMED])
        return reasons.POD_MISSING, f"total {len(going)} pods were terminating: {indexes}; {named}"
    there = {pod.index for pod in pods} | set(remembered.succeeded_indexes)
    missing = [index for index in range(remembered.size) if index not in there]
    if missing:
        return reasons.POD_MISSING, f"total {len(missing)} pods were missing: {_indexes(missing)}"
    return remembered.reason, remembered.message


def describe_failed_pod(pod: ObservedPod) -> str:
    """Describe a failed pod: its name, its node, and how its first container that terminated ended."""
    ended = pod.first_terminated
    if ended is None:
        return f"pod={pod.name}; nodeName={pod.node}; info=({pod.reason}){pod.message}"
    parts = {name: value for name, value in msgspec.to_builtins(ended).items() if value}
    info = msgspec.json.encode({"exitCode": ended.exit_code, **parts}).decode()
    return f"pod={pod.name}; nodeName={pod.node}; info={info}"


def _indexes(numbers: Sequence[int]) -> str:
    return truncate(",".join(map(str, numbers)), MAX_MESSAGE_CHARS)
