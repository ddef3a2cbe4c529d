"""Deletes a machine from recorded values alone. It counts as deleted only when its provider confirms that.

A creation that may have been sent, and has had no effect yet, may still arrive: until it has had one, or some
time has passed, a machine that the provider does not know does not count as deleted.
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

HANGING_SECONDS = 120.0
"""A deletion that has shown nothing for so long is asked for again."""


def begin_removal(record: MachineRecord, context: Context, why: str) -> MachinePlan:
    """Record that the machine is deleted, and delete it."""
    deleting = replace(
        record,
        state=MachineState.DELETING,
        deletion_reason=why,
        deleting_since=context.now,
        tries=record.tries + 1,
        retry_at=None,
    )
    return remove(deleting, context)


def begin_timeout(record: MachineRecord, context: Context, progress: str) -> MachinePlan:
    """Give up a machine that was not ready in time."""
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
    """Delete the machine because its object is deleted."""
    if not record.exists:
        return context.plan(replace(record, state=MachineState.DELETED))
    if record.state is MachineState.DELETING:
        return remove(replace(record, deletion_reason=UNWANTED), context)
    return begin_removal(record, context, UNWANTED)


def remove(record: MachineRecord, context: Context) -> MachinePlan:
    """Ask for the deletion until the provider does not know the machine any more."""
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
        return _absent(record, context)
    reason = reasons.PERMISSION_DENIED if result.status is CallStatus.REFUSED else reasons.CLOUD_UNAVAILABLE
    return context.plan(context.retry(record, reason, result.message))


def _await_operation(record: MachineRecord, context: Context, call_key: str) -> MachinePlan:
    """Wait until the deletion is done; then ask once more, to confirm that there is no such machine."""
    request_id = record.request_id(context.uid, "delete")
    mine = [each for each in context.operations(record) if each.request_id == request_id]
    done = bool(mine) and mine[0].done
    if done and not mine[0].code and context.machine(record) is None:
        return remove(replace(record, tries=record.tries + 1, retry_at=None), context)
    if done and mine[0].code:
        again = context.retry(record, reasons.CLOUD_UNAVAILABLE, f"{mine[0].code}: {mine[0].message}")
        return context.plan(again)
    assert record.deleting_since is not None
    hangs_at = record.deleting_since + timedelta(seconds=HANGING_SECONDS * (record.tries + 1))
    if context.now >= hangs_at:
        return remove(replace(record, tries=record.tries + 1), context)
    call = context.call(record, "delete", context.provider.delete(record, context.uid))
    assert call.key == call_key
    return replace(context.plan(record, call), requeue_at=hangs_at)


def _absent(record: MachineRecord, context: Context) -> MachinePlan:
    """The provider does not know the machine: it is gone, unless its creation may still arrive."""
    assert record.deleting_since is not None
    settings = context.settings
    running = [
        each
        for each in context.operations(record)
        if each.kind is OperationKind.INSERT and not each.done and not record.confirmed
    ]
    settled_at = record.deleting_since + timedelta(seconds=settings.late_seconds)
    if running or (not record.confirmed and context.now < settled_at):
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
    """Return what a machine is after it was deleted."""
    if record.deletion_reason != reasons.JOIN_TIMEOUT:
        return MachineState.DELETED
    exhausted = record.join_attempts >= context.settings.max_join_attempts
    return MachineState.FAILED if exhausted else MachineState.WANTED


def _is_refused(record: MachineRecord, context: Context) -> bool:
    """Return True if the machine cannot be deleted with the credentials that there are."""
    if not context.facts.has_credentials or record.reason == reasons.PERMISSION_DENIED:
        return True
    result = context.result(record, "delete")
    return result is not None and result.status in (CallStatus.REFUSED, CallStatus.NO_CREDENTIALS)
