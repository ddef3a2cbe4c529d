"""Saves a checkpoint before replicas leave a job that runs on without them.

A new size of a role, and a scale operation, wait here. The replicas are chosen when the checkpoint is
ordered, and recorded together with the order; they leave in the change of the Record that follows its answer.
A checkpoint that is late is not waited for. Replicas whose pods do not run are lost already: nothing is saved
for them.

A program that was asked to stop does not train on, so replicas that were asked always leave, or are replaced
in place if another new size keeps them.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.workload import checkpoint_messages, messages, reasons
from argosy.workload.checkpoint_record import PlannedScaleIn
from argosy.workload.current_pods import current_pods
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.operation import Operation
from argosy.workload.record import Record
from argosy.workload.recoveries import with_scale_in
from argosy.workload.restarts.replacement import with_replaced_in_place
from argosy.workload.saves import can_save, is_in_force, with_shared_order

Replicas = Mapping[str, IndexSet]
"""Replicas by role."""


def save_before_leaving(
    workload: Workload, record: Record, observed: Observed, leaving: Replicas, now: datetime
) -> Record | None:
    """Return the record in which replicas of a role that is resized wait for a checkpoint; None if they leave
    now."""
    planned = record.scale_in
    if planned is not None:
        waits = is_in_force(record, planned.epoch, now)
        return record if waits and _may_save(record, observed, _asked(record)) else None
    if not should_save(workload, record, observed, leaving):
        return None
    assert workload.checkpoint
    by = now + timedelta(seconds=workload.checkpoint.suspend_grace)
    stop = {name: indexes.encode() for name, indexes in sorted(leaving.items()) if indexes}
    identity = f"resize/{workload.generation}"
    record = with_shared_order(record, identity, reasons.RESIZED, by, now, stop)
    assert record.order
    return replace(record, scale_in=PlannedScaleIn(record.order.epoch, now, stop))


def save_before_scale_in(
    workload: Workload,
    record: Record,
    observed: Observed,
    operation: Operation,
    now: datetime,
    limit: datetime | None,
) -> Record | None:
    """Return the record in which the scale operation under way waits for a checkpoint; None if it need not.

    `limit` is when the operation must go on. Its replicas train until the launcher has left them, so they are
    not asked to stop, and the operation can still be cancelled.
    """
    if operation.epoch:
        return record if is_in_force(record, operation.epoch, now) else None
    if not should_save(workload, record, observed, {operation.role: operation.index_set}):
        return None
    assert workload.checkpoint
    by = now + timedelta(seconds=workload.checkpoint.suspend_grace)
    by = min(by, limit or by)
    if by <= now:
        return None
    record = with_shared_order(record, f"scale/{operation.id}", reasons.RESIZED, by, now, {})
    assert record.order
    return record.with_operation(replace(operation, epoch=record.order.epoch))


def with_scale_in_begun(record: Record, operation: Operation, now: datetime) -> Record:
    """Return the record with the recovery of a job whose replicas leave now, if it has saved before."""
    if not operation.epoch:
        return record
    source = f"ScaleIn/{operation.name}" if operation.name else "replicas"
    identity, since = f"scale/{operation.id}", operation.started_at
    return with_scale_in(record, identity, source, since, operation.epoch, now)


def should_save(workload: Workload, record: Record, observed: Observed, leaving: Replicas) -> bool:
    """Return True if a checkpoint can be saved before these replicas leave, and one of them trains."""
    return can_save(workload, record, observed) and _any_runs(record, observed, leaving)


def with_scale_in_done(before: Record, record: Record, now: datetime) -> Record:
    """Return the record in which replicas that were asked to leave have left, or are replaced in place."""
    planned = before.scale_in
    if planned is None:
        return record
    kept = {name: record.asked_to_leave(name) for name in planned.replicas}
    for name, indexes in kept.items():
        record = with_replaced_in_place(record, name, indexes)
    if any(kept.values()):
        names = [messages.replica_name(name, index) for name, indexes in kept.items() for index in indexes]
        record = record.with_history(now, reasons.RESIZED, checkpoint_messages.kept(names))
    record = with_scale_in(record, f"resize/{planned.epoch}", "spec.roles", planned.since, planned.epoch, now)
    return replace(record, scale_in=None)


def _may_save(record: Record, observed: Observed, asked: Replicas) -> bool:
    """Return True unless the job has stopped running, or all these replicas have ended.

    Their pods ran when they were asked. A list that does not show that is outdated, or they are created
    again.
    """
    ended = {
        (pod.role, pod.index)
        for name in asked
        for pod in current_pods(record, name, observed)
        if pod.ended or pod.terminating
    }
    return record.phase is Phase.RUNNING and any(
        (name, index) not in ended for name, indexes in asked.items() for index in indexes
    )


def _asked(record: Record) -> Replicas:
    names = record.scale_in.replicas if record.scale_in else ()
    return {name: record.asked_to_leave(name) for name in names}


def _any_runs(record: Record, observed: Observed, replicas: Replicas) -> bool:
    return any(
        pod.phase == "Running" and not pod.terminating and pod.index in indexes
        for name, indexes in replicas.items()
        if indexes
        for pod in current_pods(record, name, observed)
    )
