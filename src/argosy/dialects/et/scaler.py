"""Reconciles ScaleIns and ScaleOuts: binds them to their job and shows how far the job has executed them.

A scaler does nothing itself. The job's reconcile chooses the workers and executes the steps; what it recorded
about a scaler is shown here. The job goes on only when the scaler shows the chosen workers, so that they can
be seen before anything happens. A finished scaler is a record and never changes again [3.9].
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.et import conditions as listed
from argosy.dialects.et import messages, names, reasons
from argosy.dialects.et.conditions import Conditions
from argosy.dialects.et.spec import read_scale_in_spec, read_scale_out_spec
from argosy.dialects.et.status import scaling_result
from argosy.dialects.et.validation import scaler_error
from argosy.kinds.scalers import ScaleIn, ScaleInSpec, ScaleOut, ScaleOutSpec
from argosy.kinds.trainingjob import WORKER, ReplicaStatus, TrainingJob
from argosy.plan.actions import EmitEvent, Patch
from argosy.plan.children import KubernetesObject, Owner, owner_reference
from argosy.plan.contract import Decision, Inputs, Ref
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Problem
from argosy.workload.operation import Operation, ScaleStep
from argosy.workload.record import RoleRecord
from argosy.workload.record_encoding import decode

Scaler = ScaleIn | ScaleOut
S = TypeVar("S", ScaleIn, ScaleOut)

SCALING, SUCCEEDED, FAILED = "Scaling", "ScaleSucceeded", "ScaleFailed"

_FINISHED_PHASES: Final = frozenset({"Succeeded", "Failed"})


class ScalerReconciler(Generic[S]):
    """Reconciles one of the two kinds."""

    record = None
    owns: tuple[type[KubernetesObject], ...] = ()
    finalizer = ""

    def needs(self, obj: S, record: Struct | None) -> Iterable[Ref[TrainingJob]]:
        """Return the job; a finished scaler needs none, and is not reconciled when its job changes."""
        del record
        if is_finished(obj):
            return ()
        spec = read_spec(obj)
        name = "" if isinstance(spec, Problem) else spec.selector.name
        return (Ref(TrainingJob, name, obj.metadata.namespace),) if name else ()

    def decide(self, obj: S, record: Struct | None, inputs: Inputs, now: datetime) -> Decision:
        del record
        if is_finished(obj):
            return Decision(obj.status)
        spec = read_spec(obj)
        error = str(spec) if isinstance(spec, Problem) else scaler_error(spec)
        if error:
            return _decision(obj, _failed(obj, obj.status.conditions, error, now), now)
        [need] = self.needs(obj, None)
        job = inputs.get(need)
        owner = _bound_to(obj, need.name)
        if owner and (job is None or job.metadata.uid != owner):
            return Decision(obj.status)  # it is deleted with the job that it is bound to
        if job is None:
            return _decision(obj, _waiting(obj, need.name, now), now)
        if job.metadata.deletion_timestamp is not None:
            return Decision(obj.status)
        decision = _decision(obj, _progress(obj, job, now), now)
        return decision if owner else replace(decision, actions=(_bind(obj, job),))


def read_spec(obj: Scaler) -> ScaleInSpec | ScaleOutSpec | Problem:
    return read_scale_in_spec(obj.spec) if isinstance(obj, ScaleIn) else read_scale_out_spec(obj.spec)


def is_finished(obj: Scaler) -> bool:
    return obj.status.phase in (SUCCEEDED, FAILED)


def reference(obj: Scaler) -> str:
    """Return what messages call a scaler: `ScaleIn:default/name`."""
    return names.scaler_reference(obj.resource.kind, obj.metadata.namespace, obj.metadata.name)


class _Progress(Struct, frozen=True):
    """What the status of a scaler shows."""

    conditions: Conditions
    phase: str = ""
    workers: tuple[str, ...] | None = None
    """The chosen workers; None: as before."""
    counts: ReplicaStatus | None = None
    """Numbers of their pods; None: as before."""


def _progress(obj: Scaler, job: TrainingJob, now: datetime) -> _Progress:
    """Return how far the job is with this scaler."""
    record = decode(job.status.argosy)
    operations = record.operations if record else ()
    operation = next((item for item in operations if item.id == obj.metadata.uid), None)
    meta = obj.metadata
    message = messages.scaler_bound(meta.namespace, meta.name, job.metadata.name)
    current = _reached(obj.status.conditions, listed.CREATED, "", message, now)
    if record is not None and operation is not None:
        counts = _counts(record.role(WORKER), operation)
        return replace(_executed(obj, current, operation, now), counts=counts)
    if record is not None and record.finished_at:
        return _failed(obj, current, messages.JOB_FINISHED, now)
    return _Progress(current)


def _counts(workers: RoleRecord, operation: Operation) -> ReplicaStatus:
    """Return the numbers of pods of the chosen workers, as far as the job has recorded them."""
    existing = operation.index_set & workers.created & workers.wanted
    failed = len(existing & IndexSet.of(workers.failed_indexes))
    succeeded = len(existing & IndexSet.of(workers.succeeded_indexes))
    return ReplicaStatus(len(existing) - failed - succeeded, succeeded, failed)


def _executed(obj: Scaler, current: Conditions, operation: Operation, now: datetime) -> _Progress:
    workers: tuple[str, ...] | None = None
    if not any(item.type == listed.SCALING for item in current):
        current = listed.with_scaling_started(current, messages.scaling_started(reference(obj)), now)
    if operation.indexes:
        job = _job_name(obj)
        workers = tuple(names.worker_name(job, index) for index in operation.index_set)
    if operation.script_done:
        message = messages.script_executed(obj.metadata.namespace, _job_name(obj), reference(obj))
        current = _reached(current, listed.SCRIPT_EXECUTED, "", message, now)
    if not operation.finished:
        return _Progress(current, SCALING, workers)
    message = scaling_result(obj.metadata.namespace, obj.metadata.name, operation)
    if operation.step is ScaleStep.FAILED:
        return replace(_failed(obj, current, message, now), workers=workers)
    current = listed.with_scaling_ended(current, obj.resource.kind, message, now, succeeded=True)
    return _Progress(current, SUCCEEDED, workers)


def _failed(obj: Scaler, current: Conditions, message: str, now: datetime) -> _Progress:
    ended = listed.with_scaling_ended(current, obj.resource.kind, message, now, succeeded=False)
    return _Progress(ended, FAILED)


def _waiting(obj: Scaler, job: str, now: datetime) -> _Progress:
    message = messages.job_not_found(obj.metadata.namespace, job)
    reason = reasons.TRAINING_JOB_NOT_FOUND
    current = _reached(obj.status.conditions, listed.WAITING_FOR_JOB, reason, message, now)
    return _Progress(current, obj.status.phase)


def _reached(current: Conditions, kind: str, reason: str, message: str, now: datetime) -> Conditions:
    return current if listed.is_true(current, kind) else listed.with_true(current, kind, reason, message, now)


def _decision(obj: Scaler, progress: _Progress, now: datetime) -> Decision:
    """Return the status, and an event if the scaler has just ended."""
    conditions = list(progress.conditions)
    fields: dict[str, object] = {
        "phase": progress.phase,
        "conditions": conditions,
        "observed_generation": obj.metadata.generation,
    }
    if progress.workers is not None:
        field = "to_delete_pods" if isinstance(obj, ScaleIn) else "add_pods"
        fields[field] = list(progress.workers)
    if progress.counts is not None:
        fields["replica_statuses"] = {"Worker": progress.counts}
    if progress.phase == SCALING and obj.status.start_time is None:
        fields["start_time"] = now
    if progress.phase in (SUCCEEDED, FAILED):
        fields["completion_time"] = now
    status = replace(obj.status, **fields)
    if status == obj.status:
        return Decision(status)
    # The job waits for the phase and the workers to be shown, and for nothing else.
    may_wait = progress.phase == obj.status.phase and progress.workers in (None, _shown_workers(obj))
    return Decision(replace(status, last_reconcile_time=now), events=_events(progress), may_wait=may_wait)


def _shown_workers(obj: Scaler) -> tuple[str, ...]:
    return tuple(obj.status.to_delete_pods if isinstance(obj, ScaleIn) else obj.status.add_pods)


def _events(progress: _Progress) -> tuple[EmitEvent, ...]:
    if progress.phase not in (SUCCEEDED, FAILED):
        return ()
    last = progress.conditions[-1]
    succeeded = progress.phase == SUCCEEDED
    return (EmitEvent("Normal" if succeeded else "Warning", last.reason, last.message),)


def _job_name(obj: Scaler) -> str:
    spec = read_spec(obj)
    return "" if isinstance(spec, Problem) else spec.selector.name


def is_bound(obj: Scaler, uid: str) -> bool:
    """Return True if the job of this uid owns the scaler."""
    return any(owner.uid == uid for owner in obj.metadata.owner_references)


def _bound_to(obj: Scaler, job: str) -> str:
    """Return the uid of the TrainingJob of this name that owns the scaler; empty if none does."""
    kind, name = TrainingJob.resource.kind, job
    owners = (item for item in obj.metadata.owner_references if (item.kind, item.name) == (kind, name))
    return next((owner.uid for owner in owners), "")


def _bind(obj: Scaler, job: TrainingJob) -> Patch:
    """Make the job the owner, so that the scaler is deleted with it; its controller, unless it has one."""
    meta = obj.metadata
    owner = {**owner_reference(Owner.from_object(job)), "controller": meta.controller is None}
    existing = msgspec.to_builtins(meta.owner_references)
    patch = {"metadata": {"ownerReferences": [*existing, owner]}}
    return Patch(type(obj), meta.name, meta.namespace, meta.uid, patch)
