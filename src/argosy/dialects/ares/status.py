"""Builds the status of an AresJob from its Record and its pods.

The engine has phases that this API does not have: a restart is shown by a condition and by counts, a
suspended job is Pending, and a job with an invalid spec is Failed until it is edited.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from argosy.dialects.ares import reasons as ares_reasons
from argosy.dialects.ares.conditions import conditions, with_ares_field_names
from argosy.dialects.base import StatusInput
from argosy.dialects.checkpoints import checkpoint_status, recoveries
from argosy.dialects.counts import fold_running_into_succeeded
from argosy.dialects.notices import open_notices
from argosy.dialects.restart_history import restart_history
from argosy.kinds.aresjob import (
    JOB_LABEL,
    ROLE_LABEL,
    SCALED_ROLE,
    AresJob,
    AresJobStatus,
    ReplicaStatus,
    RoleStatus,
)
from argosy.kinds.checkpoint_status import RecoveryStatus
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import ActionStatus
from argosy.workload import reasons
from argosy.workload.current_pods import current_pods
from argosy.workload.model import Phase, Role, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.phases import Counts, count_pods
from argosy.workload.record import Record, RoleRecord
from argosy.workload.record_encoding import encode
from argosy.workload.wait_reasons import status_message

_CREATE_ERRORS = (ActionStatus.FORBIDDEN, ActionStatus.RETRY)
MAX_NAMED_PODS = 3
"""Terminating pods that a message names."""


def to_status(obj: AresJob, view: StatusInput) -> AresJobStatus:
    """Return the whole status; the writer adds the time of writing."""
    workload, record, observed, last = view.workload, view.record, view.observed, obj.status
    counts = (
        {name: count_pods(workload, role, record, observed) for name, role in workload.roles.items()}
        if workload
        else {}
    )
    has_finished = record.finished_at is not None and last.completion_time is not None
    roles = _roles(obj, workload, record, observed, counts)
    phase = ares_phase(last, record)
    scaled = counts.get(SCALED_ROLE)
    existing = scaled.existing if scaled else 0
    return AresJobStatus(
        phase=phase,
        observed_generation=record.generation,
        start_time=record.started_at,
        running_time=record.first_running_at,
        completion_time=record.finished_at,
        last_reconcile_time=last.last_reconcile_time,
        conditions=conditions(last.conditions, obj.metadata.name, phase, workload, record, observed),
        replica_statuses={
            name: ReplicaStatus(role.active, role.succeeded, role.failed) for name, role in roles.items()
        },
        role_statuses=roles,
        replicas=last.replicas if has_finished else existing,
        selector=f"{JOB_LABEL}={obj.metadata.name},{ROLE_LABEL}={SCALED_ROLE}" if scaled else "",
        message=last.message
        if has_finished
        else with_ares_field_names(status_message(workload, record, observed, counts)),
        restart_history=restart_history(record),
        notices=open_notices(record),
        checkpoint=checkpoint_status(workload, record) or last.checkpoint,
        recoveries=[_with_ares_field_names(recovery) for recovery in recoveries(record)],
        argosy=encode(record),
    )


def _with_ares_field_names(recovery: RecoveryStatus) -> RecoveryStatus:
    source, message = with_ares_field_names(recovery.source), with_ares_field_names(recovery.message)
    return replace(recovery, source=source, message=message)


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
    obj: AresJob, workload: Workload | None, record: Record, observed: Observed, counts: Mapping[str, Counts]
) -> dict[str, RoleStatus]:
    """Return the status of every role; after the job has finished they do not change."""
    last = obj.status.role_statuses
    if workload is None or (record.finished_at and obj.status.completion_time):
        return {} if is_invalid(record) else last
    if is_invalid(record):
        return {}
    return {
        name: _role(workload, role, last.get(name, RoleStatus()), record, observed, counts[name])
        for name, role in workload.roles.items()
    }


def _role(
    workload: Workload, role: Role, last: RoleStatus, record: Record, observed: Observed, counts: Counts
) -> RoleStatus:
    role_record = record.role(role.name)
    numbers = fold_running_into_succeeded(counts, record)
    reason, message = _role_reason(workload, role, last, role_record, record, observed)
    return RoleStatus(
        phase=role_record.phase.value,
        reason=reason,
        message=message,
        last_transition_time=role_record.phase_since,
        active=numbers.active,
        succeeded=numbers.succeeded,
        failed=numbers.failed,
        pending=numbers.pending,
        unknown=numbers.unknown,
        terminating=numbers.terminating,
        replicas=_created_replicas(role, last, role_record, record, observed),
        current_replicas=role_record.size if role_record.size < role_record.declared else 0,
        restarts=role_record.restarts + role_record.disruptions,
    )


def _created_replicas(
    role: Role, last: RoleStatus, role_record: RoleRecord, record: Record, observed: Observed
) -> int:
    if role_record.phase is Phase.PENDING:
        return 0
    highest = max((pod.index + 1 for pod in current_pods(record, role.name, observed)), default=0)
    return min(max(highest, last.replicas), role.replicas)


def _role_reason(
    workload: Workload,
    role: Role,
    last: RoleStatus,
    role_record: RoleRecord,
    record: Record,
    observed: Observed,
) -> tuple[str, str]:
    """Return why the role has failed, or why its pods cannot be created."""
    if role_record.phase is Phase.FAILED:
        if last.phase == Phase.FAILED.value and last.reason:
            return last.reason, last.message
        return _failure(workload, role, role_record, record, observed)
    failures = [
        failure
        for failure in observed.failed_actions
        if failure.role == role.name and failure.status in _CREATE_ERRORS
    ]
    return (ares_reasons.CREATE_ERROR, failures[0].message) if failures else ("", "")


def _failure(
    workload: Workload, role: Role, role_record: RoleRecord, record: Record, observed: Observed
) -> tuple[str, str]:
    """Return the first reason that applies, by the lowest index."""
    if role_record.reason == reasons.PREEMPTED:
        return reasons.PREEMPTED, role_record.message
    pods = sorted(current_pods(record, role.name, observed), key=lambda pod: pod.index)
    live = [pod for pod in pods if not pod.terminating]
    failed = next((pod for pod in live if pod.phase == "Failed"), None)
    if failed is not None:
        mixed = role_record.reason == reasons.MIXED_OUTCOME
        return reasons.MIXED_OUTCOME if mixed else reasons.POD_FAILED, describe_failed_pod(failed)
    down = observed.failed_nodes(role.policy, workload.semantics)
    lost = next((pod for pod in live if pod.node in down), None)
    if lost is not None:
        return (
            ares_reasons.POSSIBLE_NODE_DOWN,
            f"pod={lost.name}; nodeName={lost.node}; info=the node is down",
        )
    terminating = [pod for pod in pods if pod.terminating]
    if terminating:
        indexes = _indexes([pod.index for pod in terminating])
        named = ", ".join(f"{pod.name}({pod.node})" for pod in terminating[:MAX_NAMED_PODS])
        return reasons.POD_MISSING, f"total {len(terminating)} pods were terminating: {indexes}; {named}"
    existing = {pod.index for pod in pods} | set(role_record.succeeded_indexes)
    missing = [index for index in role_record.members if index not in existing]
    if missing:
        return reasons.POD_MISSING, f"total {len(missing)} pods were missing: {_indexes(missing)}"
    return role_record.reason, role_record.message


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
