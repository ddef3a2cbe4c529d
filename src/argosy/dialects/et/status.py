"""Builds the status of a TrainingJob from its Record and its pods [2.4, 2.5].

Conditions are a history: a step that was reached stays in the list, so the new list is made from the last
one. Their times are those of the Record, so that the same Record gives the same status.
"""

from collections.abc import Iterable
from datetime import datetime

from argosy.dialects.base import StatusInput
from argosy.dialects.checkpoints import checkpoint_conditions, checkpoint_status, recoveries
from argosy.dialects.et import conditions as listed
from argosy.dialects.et import messages, names, reasons
from argosy.dialects.et.conditions import Conditions
from argosy.dialects.restart_history import restart_history
from argosy.kinds.kubernetes import Pod, SecretMetadata, Service
from argosy.kinds.trainingjob import (
    LAUNCHER,
    SUSPEND_ANNOTATION,
    WORKER,
    JobCondition,
    ReplicaStatus,
    TrainingJob,
    TrainingJobStatus,
)
from argosy.plan.actions import ActionStatus
from argosy.workload import reasons as common
from argosy.workload.current_pods import current_pods
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.operation import Operation, ScaleStep
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode

CREATED, RUNNING, SCALING, SUSPENDED = "Created", "Running", "Scaling", "Suspended"
SUCCEEDED, FAILED = "Succeeded", "Failed"
PHASES = ("", CREATED, RUNNING, SCALING, SUSPENDED, SUCCEEDED, FAILED)


def to_status(job: TrainingJob, view: StatusInput) -> TrainingJobStatus:
    """Return the whole status; that of a job which is being deleted stays as it is [3.1]."""
    record, observed, last = view.record, view.observed, job.status
    if job.metadata.deletion_timestamp is not None:
        return last
    workers = record.role(WORKER)
    running = [pod.index for pod in current_pods(record, WORKER, observed) if _runs(pod)]
    current = _worker_names(job, IndexSet.of(running) & workers.members)
    invalid = view.workload is None
    conditions = _conditions(job, record, observed, invalid=invalid)
    if view.workload is not None:
        found = checkpoint_conditions(record) if view.workload.checkpoint else ()
        conditions = listed.with_checkpoint_conditions(conditions, last.conditions, found)
    return TrainingJobStatus(
        phase=_phase(record, invalid=invalid),
        conditions=conditions,
        replica_statuses={} if invalid and not last.replica_statuses else _replica_statuses(record, observed),
        restart_count=record.restarts,
        start_time=record.started_at,
        completion_time=None if _was_evicted(conditions) else record.finished_at,
        last_reconcile_time=last.last_reconcile_time,
        observed_generation=record.generation,
        current_scaler=_current_scaler(job, record),
        target_workers=_worker_names(job, workers.members),
        current_workers=current,
        failed_workers=_worker_names(job, workers.retired),
        replicas=len(current),
        selector=names.worker_selector(job.metadata.name),
        restart_history=restart_history(record),
        checkpoint=checkpoint_status(view.workload, record) or last.checkpoint,
        recoveries=recoveries(record),
        argosy=encode(record),
    )


def _runs(pod: ObservedPod) -> bool:
    return pod.phase == "Running" and not pod.terminating


def _worker_names(job: TrainingJob, indexes: IndexSet) -> list[str]:
    return [names.worker_name(job.metadata.name, index) for index in indexes]


def _phase(record: Record, *, invalid: bool) -> str:
    if record.finished_at:
        return SUCCEEDED if record.phase is Phase.SUCCEEDED else FAILED
    if invalid:
        return FAILED
    if record.phase is Phase.SUSPENDED:
        return SUSPENDED
    if record.role(LAUNCHER).phase in (Phase.PENDING, Phase.STARTING):
        return CREATED
    return SCALING if record.operation else RUNNING


def _current_scaler(job: TrainingJob, record: Record) -> str:
    operation = record.operation
    return "" if operation is None else scaler_name(job, operation)


def scaler_name(job: TrainingJob, operation: Operation) -> str:
    """Return what a job calls the scaler of an operation; one of its own is named after the job."""
    kind = f"Scale{operation.kind}"
    return names.scaler_reference(kind, job.metadata.namespace, operation.name or job.metadata.name)


def _replica_statuses(record: Record, observed: Observed) -> dict[str, ReplicaStatus]:
    """Return the numbers of the present pods; the launcher of a job that succeeded may be gone."""
    launcher = _counts(current_pods(record, LAUNCHER, observed))
    succeeded = record.phase is Phase.SUCCEEDED
    return {
        "Launcher": ReplicaStatus(succeeded=1) if succeeded else launcher,
        "Worker": _counts(observed.by_role.get(WORKER, ())),
    }


def _counts(pods: Iterable[ObservedPod]) -> ReplicaStatus:
    phases = [pod.phase for pod in pods if not pod.terminating]
    return ReplicaStatus(
        active=sum(phase in ("Pending", "Running") for phase in phases),
        succeeded=phases.count("Succeeded"),
        failed=phases.count("Failed"),
    )


def _conditions(job: TrainingJob, record: Record, observed: Observed, *, invalid: bool) -> list[JobCondition]:
    meta, last = job.metadata, job.status
    since = record.phase_since or meta.creation_timestamp or _LONG_AGO
    if invalid and record.finished_at is None:
        message = record.waiting.message if record.waiting else ""
        return listed.with_true(list(last.conditions), listed.FAILED, common.INVALID_SPEC, message, since)
    current = _carried_over(job, record, since)
    if record.phase is Phase.SUSPENDED:
        return _suspended(job, current, record, since)
    if not record.finished_at or record.started_at:
        current = _start_up(job, current, record, observed, since)
    current = _scaled(job, current, record)
    if record.finished_at:
        current = _ended(job, current, record, observed)
    return list(current)


def _carried_over(job: TrainingJob, record: Record, since: datetime) -> Conditions:
    """Return the conditions of the last status, or those of a new start."""
    last, meta = job.status, job.metadata
    before = decode(last.argosy)
    if listed.is_true(last.conditions, listed.FAILED) and _was_invalid(last.conditions):
        return []
    if before is None:
        return last.conditions
    if before.phase is Phase.SUSPENDED and record.phase is not Phase.SUSPENDED:
        return listed.after_resume(messages.resumed(meta.name), since)
    if record.attempt > before.attempt and record.phase is not Phase.SUSPENDED:
        return listed.after_restart(record.message or messages.restarting(meta.name), since)
    return last.conditions


def _was_invalid(conditions: Conditions) -> bool:
    return any(item.type == listed.FAILED and item.reason == common.INVALID_SPEC for item in conditions)


def _was_evicted(conditions: Conditions) -> bool:
    """Return True if the job failed because its launcher was evicted."""
    reason = reasons.TRAINING_JOB_EVICTED
    return any(item.type == listed.FAILED and item.reason == reason for item in conditions)


def _suspended(job: TrainingJob, current: Conditions, record: Record, since: datetime) -> list[JobCondition]:
    meta = job.metadata
    if meta.annotations.get(SUSPEND_ANNOTATION) == "true":
        reason, message = reasons.WAITING_RESOURCE_TIMEOUT, messages.suspended_by_annotation(meta.name)
    else:
        reason, message = reasons.TRAINING_JOB_SUSPENDED, messages.suspended(meta.name)
    current = _scaled(job, current, record)
    return listed.with_true(current, listed.SUSPENDED, reason, message, since)


def _start_up(
    job: TrainingJob, current: Conditions, record: Record, observed: Observed, since: datetime
) -> Conditions:
    """Return the conditions with every step of the start that was reached [3.2]."""
    namespace, name = job.metadata.namespace, job.metadata.name
    workers, launcher = record.role(WORKER), record.role(LAUNCHER)
    began, message = record.started_at or since, messages.created(name)
    current = _reached(current, listed.CREATED, reasons.TRAINING_JOB_CREATED, message, began)
    if rejection := _rejection(current, record, observed):
        kind, message = rejection
        at = record.waiting.since if record.waiting else began
        return listed.with_false(current, kind, reasons.POD_CREATE_FAILED, message, at)
    if record.attempt_started_at is None:
        return current
    message = messages.workers_created(namespace, name)
    current = _reached(current, listed.WORKERS_CREATED, "", message, record.attempt_started_at)
    if workers.phase is not Phase.RUNNING:
        return current
    message = messages.workers_ready(namespace, name, workers.size)
    current = _reached(current, listed.WORKERS_READY, "", message, workers.phase_since or since)
    if launcher.phase is Phase.PENDING:
        return current
    message = messages.launcher_created(namespace, name)
    current = _reached(current, listed.LAUNCHER_CREATED, "", message, launcher.phase_since or since)
    if launcher.phase is Phase.RUNNING:
        reason, message = reasons.TRAINING_JOB_RUNNING, messages.running(namespace, name)
        current = _reached(current, listed.RUNNING, reason, message, launcher.phase_since or since)
    return current


def _reached(current: Conditions, kind: str, reason: str, message: str, at: datetime) -> Conditions:
    """Return the conditions with a step that was reached; one that is True already stays as it is."""
    last = next((item for item in current if item.type == kind), None)
    if last is not None and last.status == "True":
        return current
    since = last.last_transition_time if last else None
    return listed.with_true(current, kind, reason, message, max(at, since) if since else at)


def _rejection(current: Conditions, record: Record, observed: Observed) -> tuple[str, str] | None:
    """Return the step of the start that an object which cannot be created holds up, and why it cannot."""
    for failure in observed.failed_actions:
        if failure.status not in _REJECTIONS:
            continue
        is_pod = failure.kind == Pod.resource.kind
        if failure.role == WORKER if is_pod else failure.kind in _WORKER_CHILDREN:
            if not listed.is_true(current, listed.WORKERS_READY):
                return listed.WORKERS_CREATED, failure.message
        elif record.role(LAUNCHER).phase is Phase.PENDING:
            return listed.LAUNCHER_CREATED, failure.message
    return None


_REJECTIONS = (
    ActionStatus.FORBIDDEN,
    ActionStatus.INVALID,
    ActionStatus.SPEC_REJECTED,
    ActionStatus.NAME_CONFLICT,
)
_WORKER_CHILDREN = (Service.resource.kind, SecretMetadata.resource.kind)


def _scaled(job: TrainingJob, current: Conditions, record: Record) -> Conditions:
    """Return the conditions with how far the last scale operation is; every other one has been shown."""
    operation = record.operations[-1] if record.operations else None
    if operation is None:
        return current
    started = messages.scaling_started(scaler_name(job, operation))
    since = operation.step_since or operation.started_at
    if not _has_begun(current, started, operation):
        if operation.finished and since != operation.started_at:
            return current  # it was interrupted by a new start, which has cleared the list
        current = listed.with_scaling_started(current, started, operation.started_at)
    if not operation.finished or not listed.is_true(current, listed.SCALING):
        return current
    succeeded = operation.step is ScaleStep.SUCCEEDED
    message = scaling_result(job.metadata.namespace, operation.name or job.metadata.name, operation)
    kind = f"Scale{operation.kind}"
    return listed.with_scaling_ended(current, kind, message, since, succeeded=succeeded)


def _has_begun(current: Conditions, started: str, operation: Operation) -> bool:
    """Return True if the condition Scaling is about this operation; `started` is its message."""
    scaling = next((item for item in current if item.type == listed.SCALING), None)
    if scaling is None or scaling.message != started or scaling.last_update_time is None:
        return False
    return scaling.last_update_time >= operation.started_at


def scaling_result(namespace: str, name: str, operation: Operation) -> str:
    """Return the message about a finished operation of a scaler of this name."""
    kind = f"Scale{operation.kind}"
    scaler = names.scaler_reference(kind, namespace, name)
    if operation.step is ScaleStep.SUCCEEDED:
        return messages.scaling_succeeded(scaler, drain_timed_out=operation.drain_timed_out)
    if operation.indexes:
        return messages.scaling_failed(kind, namespace, name, operation.message)
    is_scale_in = operation.kind == "In"
    return messages.selection_failed(scaler, operation.message) if is_scale_in else operation.message


def _ended(job: TrainingJob, current: Conditions, record: Record, observed: Observed) -> list[JobCondition]:
    namespace, name = job.metadata.namespace, job.metadata.name
    at = record.finished_at or _LONG_AGO
    if record.phase is Phase.SUCCEEDED:
        message = messages.succeeded(namespace, name)
        reason = reasons.TRAINING_JOB_SUCCEEDED
        return list(_reached(current, listed.SUCCEEDED, reason, message, at))
    reason, message = _failure(job, record, observed)
    return listed.with_true(current, listed.FAILED, reason, message, at)


def _failure(job: TrainingJob, record: Record, observed: Observed) -> tuple[str, str]:
    """Return why the job failed: because of its launcher, or of a limit."""
    namespace, name = job.metadata.namespace, job.metadata.name
    pod = next((pod for pod in current_pods(record, LAUNCHER, observed) if pod.phase == "Failed"), None)
    if pod is not None:
        text = messages.failed(namespace, name, pod.first_exit_code)
        return reasons.launcher_failed(pod.reason), text
    if record.reason in (common.POD_MISSING, common.RESTARTS_EXHAUSTED):
        return reasons.TRAINING_JOB_FAILED, messages.launcher_missing(names.launcher_name(name))
    return record.reason or reasons.TRAINING_JOB_FAILED, record.message


_LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
