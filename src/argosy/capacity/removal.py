"""Decides how a machine is deleted: by its Record alone, until the provider answers that it does not exist.

That answer is not enough for a machine whose creation may have been sent and has had no effect yet, since the
request may still arrive. Then the deletion is repeated until the creation has had an effect, or too much time
has passed for it.
"""

from datetime import timedelta

from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.machine_plan import Context, MachinePlan, cut, event
from argosy.capacity.machine_record import MachineRecord, MachineState
from argosy.capacity.provider import NOT_FOUND, OperationKind
from argosy.plan.actions import CallStatus

UNWANTED = "Unwanted"
"""Why a machine is deleted: its object is deleted."""

REPEAT_DELETION_SECONDS = 120.0
"""A deletion that is not done after this time is requested again."""


def begin_removal(record: MachineRecord, context: Context, why: str) -> MachinePlan:
    """Return the plan that records the deletion of the machine, and begins it."""
    deleting = replace(
        record,
        state=MachineState.DELETING,
        deletion_reason=why,
        deleting_since=context.now,
        tries=record.tries + 1,
        retry_at=None,
    )
    return remove(deleting, context)


def begin_removal_after_timeout(record: MachineRecord, context: Context, progress: str) -> MachinePlan:
    """Begin to delete a machine that was not ready in time; `progress` says how far it has come."""
    seconds = context.settings.join_timeout
    message = cut(f"not ready after {seconds:g} s: {progress}")
    record = replace(
        record,
        join_attempts=record.join_attempts + 1,
        spot_failures=record.spot_failures + (1 if record.spot else 0),
        reason=reasons.JOIN_TIMEOUT,
        message=message,
    )
    plan = begin_removal(record, context, reasons.JOIN_TIMEOUT)
    return replace(plan, events=(event(reasons.JOIN_TIMEOUT, message, warning=True), *plan.events))


def release(record: MachineRecord, context: Context) -> MachinePlan:
    """Begin to delete the machine, or continue, because its object is deleted."""
    if not record.exists:
        return context.plan(replace(record, state=MachineState.DELETED))
    if record.state is MachineState.DELETING:
        return remove(replace(record, deletion_reason=UNWANTED), context)
    return begin_removal(record, context, UNWANTED)


def remove(record: MachineRecord, context: Context) -> MachinePlan:
    """Request the deletion until the provider answers that there is no such machine."""
    facts = context.facts
    if facts.abandon and record.deletion_reason == UNWANTED and _is_refused(record, context):
        abandoned = event(
            reasons.INSTANCE_ABANDONED, f"{record.name} in {record.zone} was given up", warning=True
        )
        return context.plan(replace(record, state=MachineState.DELETED), events=(abandoned,))
    if not facts.has_credentials:
        return context.plan(record)
    if context.waits(record):
        return context.plan(record)
    result = context.result(record, "delete")
    call = context.call(record, "delete", context.provider.delete(record, context.uid))
    if result is None:
        return context.plan(record, call)
    if result.status is CallStatus.DONE:
        return _await_operation(record, context, call_key=call.key)
    if result.status is CallStatus.REFUSED and result.code == NOT_FOUND:
        return _handle_absence(record, context)
    reason = reasons.PERMISSION_DENIED if result.status is CallStatus.REFUSED else reasons.CLOUD_UNAVAILABLE
    return context.plan(context.retry(record, reason, result.message))


def _await_operation(record: MachineRecord, context: Context, call_key: str) -> MachinePlan:
    """Wait until the deletion is done; then request it again, to learn whether there is no such machine."""
    request_id = record.request_id(context.uid, "delete")
    operations = context.operations(record)
    deletion = next((operation for operation in operations if operation.request_id == request_id), None)
    if deletion is not None and deletion.done:
        if deletion.code:
            message = f"{deletion.code}: {deletion.message}"
            return context.plan(context.retry(record, reasons.CLOUD_UNAVAILABLE, message))
        if context.machine(record) is None:
            return remove(replace(record, tries=record.tries + 1, retry_at=None), context)
    assert record.deleting_since is not None
    repeat_at = record.deleting_since + timedelta(seconds=REPEAT_DELETION_SECONDS * (record.tries + 1))
    if context.now >= repeat_at:
        return remove(replace(record, tries=record.tries + 1), context)
    call = context.call(record, "delete", context.provider.delete(record, context.uid))
    assert call.key == call_key
    return replace(context.plan(record, call), requeue_at=repeat_at)


def _handle_absence(record: MachineRecord, context: Context) -> MachinePlan:
    """Record that there is no such machine, or look again later if its creation may still arrive."""
    assert record.deleting_since is not None
    settings = context.settings
    is_inserting = not record.confirmed and any(
        operation.kind is OperationKind.INSERT and not operation.done
        for operation in context.operations(record)
    )
    settled_at = record.deleting_since + timedelta(seconds=settings.late_seconds)
    if is_inserting or (not record.confirmed and context.now < settled_at):
        wait = settled_at if context.now < settled_at else context.now + timedelta(seconds=5)
        return context.plan(replace(record, tries=record.tries + 1, retry_at=wait))
    deleted = event(reasons.INSTANCE_DELETED, f"{record.name} in {record.zone} is deleted")
    gone = replace(record, state=_following_state(record, context), tries=0, retry_at=None, sent=False)
    if gone.state is MachineState.FAILED:
        text = cut(f"{record.join_attempts} machines were not ready in time; the last: {record.message}")
        blocked = context.facts.inputs_digest
        gone = replace(gone, reason=reasons.JOIN_ATTEMPTS_EXHAUSTED, message=text, blocked_by=blocked)
    return replace(context.plan(gone, events=(deleted,)), requeue_at=context.now)


def _following_state(record: MachineRecord, context: Context) -> MachineState:
    """Return the state after the deletion: Wanted or Failed if the machine was not ready in time."""
    if record.deletion_reason != reasons.JOIN_TIMEOUT:
        return MachineState.DELETED
    exhausted = record.join_attempts >= context.settings.max_join_attempts
    return MachineState.FAILED if exhausted else MachineState.WANTED


def _is_refused(record: MachineRecord, context: Context) -> bool:
    """Return True if there are no credentials, or the provider refuses the deletion with those there are."""
    if not context.facts.has_credentials or record.reason == reasons.PERMISSION_DENIED:
        return True
    result = context.result(record, "delete")
    return result is not None and result.status in (CallStatus.REFUSED, CallStatus.NO_CREDENTIALS)
