"""Deletes a machine from recorded values alone, and believes that it is gone only when its provider says so.

A creation that may have been sent, and was never seen to have had an effect, may still arrive: until it has
shown itself or some time has passed, an absent machine does not count as gone.
"""

from datetime import timedelta

from msgspec.structs import replace

from argosy.capacity.machine_plan import Context, MachinePlan, cut, event
from argosy.capacity.machine_record import MachineRecord, MachineState
from argosy.capacity.provider import NOT_FOUND, OperationKind
from argosy.capacity.reactions import DENIED, JOIN_ATTEMPTS_EXHAUSTED, JOIN_TIMEOUT, UNAVAILABLE
from argosy.plan.actions import CallStatus

DELETED = "Deleted"
"""Why a machine is deleted that nobody wants any more."""

HANGING_SECONDS = 120.0
"""A deletion that has shown nothing for so long is asked for again."""


def begin_removal(record: MachineRecord, context: Context, why: str) -> MachinePlan:
    """Record that the machine is deleted, and delete it."""
    going = replace(
        record,
        state=MachineState.GOING,
        going=why,
        going_at=context.now,
        tries=record.tries + 1,
        retry_at=None,
    )
    return remove(going, context)


def begin_timeout(record: MachineRecord, context: Context, progress: str) -> MachinePlan:
    """Give up a machine that was not ready in time."""
    seconds = context.settings.join_timeout
    message = cut(f"not ready after {seconds:g} s: {progress}")
    record = replace(
        record,
        join_attempts=record.join_attempts + 1,
        spot_failures=record.spot_failures + (1 if record.spot else 0),
        reason=JOIN_TIMEOUT,
        message=message,
    )
    plan = begin_removal(record, context, JOIN_TIMEOUT)
    return replace(plan, events=(event(JOIN_TIMEOUT, message, warning=True), *plan.events))


def release(record: MachineRecord, context: Context) -> MachinePlan:
    """Delete the machine because its object is deleted."""
    if not record.exists:
        return context.plan(replace(record, state=MachineState.GONE))
    if record.state is MachineState.GOING:
        return remove(replace(record, going=DELETED), context)
    return begin_removal(record, context, DELETED)


def remove(record: MachineRecord, context: Context) -> MachinePlan:
    """Ask for the deletion until the provider does not know the machine any more."""
    facts = context.facts
    if facts.abandon and record.going == DELETED and _is_refused(record, context):
        abandoned = event("InstanceAbandoned", f"{record.name} in {record.zone} was given up", warning=True)
        return context.plan(replace(record, state=MachineState.GONE), events=(abandoned,))
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
    reason = DENIED if result.status is CallStatus.REFUSED else UNAVAILABLE
    return context.plan(context.retry(record, reason, result.message))


def _await_operation(record: MachineRecord, context: Context, call_key: str) -> MachinePlan:
    """Wait until the deletion is done; then ask once more, to confirm that there is no such machine."""
    request_id = record.request_id(context.uid, "delete")
    mine = [each for each in context.operations(record) if each.request_id == request_id]
    done = bool(mine) and mine[0].done
    if done and not mine[0].code and context.seen(record) is None:
        return remove(replace(record, tries=record.tries + 1, retry_at=None), context)
    if done and mine[0].code:
        again = context.retry(record, UNAVAILABLE, f"{mine[0].code}: {mine[0].message}")
        return context.plan(again)
    assert record.going_at is not None
    hangs_at = record.going_at + timedelta(seconds=HANGING_SECONDS * (record.tries + 1))
    if context.now >= hangs_at:
        return remove(replace(record, tries=record.tries + 1), context)
    call = context.call(record, "delete", context.provider.delete(record, context.uid))
    assert call.key == call_key
    return replace(context.plan(record, call), requeue_at=hangs_at)


def _absent(record: MachineRecord, context: Context) -> MachinePlan:
    """The provider does not know the machine: it is gone, unless its creation may still arrive."""
    assert record.going_at is not None
    settings = context.settings
    running = [
        each
        for each in context.operations(record)
        if each.kind is OperationKind.INSERT and not each.done and not record.confirmed
    ]
    settled_at = record.going_at + timedelta(seconds=settings.late_seconds)
    if running or (not record.confirmed and context.now < settled_at):
        wait = settled_at if context.now < settled_at else context.now + timedelta(seconds=5)
        return context.plan(replace(record, tries=record.tries + 1, retry_at=wait))
    deleted = event("InstanceDeleted", f"{record.name} in {record.zone} is deleted")
    gone = replace(record, state=_following_state(record, context), tries=0, retry_at=None, sent=False)
    if gone.state is MachineState.FAILED:
        text = cut(f"{record.join_attempts} machines were not ready in time; the last: {record.message}")
        blocked = context.facts.inputs_digest
        gone = replace(gone, reason=JOIN_ATTEMPTS_EXHAUSTED, message=text, blocked_by=blocked)
    return replace(context.plan(gone, events=(deleted,)), requeue_at=context.now)


def _following_state(record: MachineRecord, context: Context) -> MachineState:
    """Return what a machine is after it was deleted."""
    if record.going != JOIN_TIMEOUT:
        return MachineState.GONE
    exhausted = record.join_attempts >= context.settings.max_join_attempts
    return MachineState.FAILED if exhausted else MachineState.WANTED


def _is_refused(record: MachineRecord, context: Context) -> bool:
    """Return True if the machine cannot be deleted with the credentials that there are."""
    if not context.facts.has_credentials or record.reason == DENIED:
        return True
    result = context.result(record, "delete")
    return result is not None and result.status in (CallStatus.REFUSED, CallStatus.NO_CREDENTIALS)
