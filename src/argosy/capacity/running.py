"""Watches machines that exist: waits until they are ready nodes, and detects their loss.

The first notice of the end counts, whatever its source is: the status at the provider, an operation there, or
an announcement on the Node. While only the Node announces it, the announcement may be changed or withdrawn
there; what the provider says is final. A machine that is missing in the list of its zone counts as deleted
only after its provider was asked for exactly this machine.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.join import TOKEN_DRIVER, DeleteToken
from argosy.capacity.machine_plan import Context, MachinePlan, event
from argosy.capacity.machine_record import MachineNotice, MachineRecord, MachineSpec, MachineState
from argosy.capacity.provider import NOT_FOUND, ObservedMachine, OperationKind, Presence
from argosy.capacity.removal import begin_removal, begin_removal_after_timeout
from argosy.plan.actions import Call, CallStatus, EmitEvent

LOST = "Lost"
"""Why a machine is deleted: its provider has stopped it, or its node does not report any more."""

_CAUSES = {
    OperationKind.PREEMPTED: reasons.PREEMPTED,
    OperationKind.HOST_ERROR: reasons.HOST_ERROR,
    OperationKind.MAINTENANCE: reasons.MAINTENANCE,
    OperationKind.STOP: reasons.USER_STOPPED,
    OperationKind.DELETE: reasons.USER_STOPPED,
}


def watch(record: MachineRecord, context: Context) -> MachinePlan:
    """Decide about a machine that exists, or existed a moment ago."""
    events: list[EmitEvent] = []
    machine = context.machine(record)
    if machine is not None and machine.presence is Presence.RUNNING and record.running_at is None:
        record = replace(record, running_at=context.now)
        events.append(event(reasons.INSTANCE_RUNNING, f"{record.name} runs in {record.zone}"))
    record = _notice(record, machine, context, events)
    if machine is None and context.is_fresh(record.requested_at) and context.facts.zone.value is not None:
        return _confirm_absence(record, context, events)
    if machine is not None and machine.presence is Presence.LOST:
        return _handle_loss(record, machine, context, events)
    record = _join(record, context, events)
    silent_for = context.now - record.silent_since if record.silent_since else timedelta()
    limit = timedelta(seconds=context.settings.lease_loss_timeout)
    if silent_for >= limit and context.facts.has_credentials:
        record = _with_notice(record, context, "node", reasons.UNKNOWN, None, events)
        return _with_events(begin_removal(record, context, LOST), events)
    record, calls = _delete_token(record, context)
    record = _become_ready(record, context, events)
    if record.state is MachineState.READY:
        checked = record.silent_since + limit if record.silent_since else None
        return MachinePlan(record=record, calls=calls, events=tuple(events), requeue_at=checked)
    assert record.requested_at is not None
    deadline = record.requested_at + timedelta(seconds=context.settings.join_timeout)
    if context.now >= deadline:
        return _with_events(begin_removal_after_timeout(record, context, progress(record, context)), events)
    record = replace(record, reason=reasons.PROVISIONING, message=progress(record, context))
    times = [deadline, *_pod_deadlines(record, context)]
    return MachinePlan(record=record, calls=calls, events=tuple(events), requeue_at=min(times))


def _notice(
    record: MachineRecord, machine: ObservedMachine | None, context: Context, events: list[EmitEvent]
) -> MachineRecord:
    """Return the Record with the first notice of the machine's end, if there is one now."""
    if record.notice is not None and not record.notice.on_node:
        return record
    for operation in context.operations(record):
        if operation.kind in _CAUSES:
            return _with_notice(record, context, "operation", _CAUSES[operation.kind], None, events)
    if machine is not None and machine.presence in (Presence.NOTICED, Presence.LOST):
        return _with_notice(record, context, machine.status, reasons.UNKNOWN, None, events)
    return _follow_node(record, context, events)


def _follow_node(record: MachineRecord, context: Context, events: list[EmitEvent]) -> MachineRecord:
    """Return the Record with what the Node announces now; a Node that is not seen withdraws nothing."""
    before, announced = record.notice, context.facts.announcement
    if announced is None:
        if before is None or context.facts.node is None:
            return record
        text = f"{record.name}: {before.cause}, no longer reported by {before.source}"
        events.append(event(reasons.NOTICE_WITHDRAWN, text))
        return replace(record, notice=None)
    at = before.at if before is not None else context.now
    deadline = announced.deadline_after(at)
    if before is None:
        record = _with_notice(record, context, announced.source, announced.cause, deadline, events)
    return replace(
        record, notice=MachineNotice(announced.source, at, deadline, announced.cause, on_node=True)
    )


def _with_notice(
    record: MachineRecord,
    context: Context,
    source: str,
    cause: str,
    deadline: datetime | None,
    events: list[EmitEvent],
) -> MachineRecord:
    end = deadline or context.now + timedelta(seconds=context.settings.notice_seconds)
    if (recorded := record.notice) is not None:
        deadline = min(recorded.deadline, end) if recorded.on_node else recorded.deadline
        return replace(record, notice=replace(recorded, deadline=deadline, on_node=False))
    events.append(
        event(reasons.PREEMPTION_NOTICE, f"{record.name}: {cause}, reported by {source}", warning=True)
    )
    return replace(record, notice=MachineNotice(source, context.now, end, cause))


def improve_cause(record: MachineRecord, context: Context) -> MachineRecord:
    """Return the Record with the cause that an operation names, if only a status was known before."""
    if record.notice is None or record.notice.cause not in (reasons.UNKNOWN, reasons.NOT_FOUND):
        return record
    for operation in context.operations(record):
        if operation.kind in _CAUSES:
            return replace(record, notice=replace(record.notice, cause=_CAUSES[operation.kind]))
    return record


def _confirm_absence(record: MachineRecord, context: Context, events: list[EmitEvent]) -> MachinePlan:
    """Get the machine by its name before it counts as deleted."""
    if context.waits(record):
        return _with_events(context.plan(record), events)
    call = context.call(record, "confirm", context.provider.find(record))
    result = context.result(record, "confirm")
    if result is None:
        return _with_events(context.plan(record, call), events)
    if result.status is CallStatus.REFUSED and result.code == NOT_FOUND:
        record = _with_notice(record, context, "absence", reasons.NOT_FOUND, context.now, events)
        deleted = replace(improve_cause(record, context), state=MachineState.DELETED, tries=0, retry_at=None)
        record, calls = _delete_token(deleted, context)
        return MachinePlan(record=record, calls=calls, events=tuple(events))
    # It is there after all, or there was no answer: look again later.
    again = context.retry(record, record.reason, result.message or record.message)
    return _with_events(context.plan(again), events)


def _handle_loss(
    record: MachineRecord, machine: ObservedMachine, context: Context, events: list[EmitEvent]
) -> MachinePlan:
    """Wait until a machine that is stopping has stopped, then delete what is left of it."""
    lost = replace(improve_cause(record, context), state=MachineState.LOST)
    if machine.is_stopped and context.facts.has_credentials:
        return _with_events(begin_removal(lost, context, LOST), events)
    return _with_events(context.plan(lost), events)


def _join(record: MachineRecord, context: Context, events: list[EmitEvent]) -> MachineRecord:
    """Return the Record with what the Node shows."""
    node = context.facts.node
    if node is None or (record.node_uid and node.uid != record.node_uid):
        if record.node_uid and record.silent_since is None:
            return replace(record, silent_since=context.now)
        return record
    if not record.node_uid:
        events.append(event(reasons.NODE_JOINED, f"{record.name} joined as Node {node.name}"))
        record = replace(
            record, state=MachineState.JOINED, node=node.name, node_uid=node.uid, joined_at=context.now
        )
    if node.silent:
        return record if record.silent_since else replace(record, silent_since=context.now)
    return replace(record, silent_since=None) if record.silent_since else record


def _become_ready(record: MachineRecord, context: Context, events: list[EmitEvent]) -> MachineRecord:
    """Return the Record as Ready if the Node is, offers the GPUs, and has waited for pods of DaemonSets."""
    node = context.facts.node
    if record.state is not MachineState.JOINED or node is None or not node.ready:
        return record
    if node.gpus < context.facts.needs_gpus or node.pods_not_ready is None:
        return record
    if node.pods_not_ready:
        if any(at > context.now for at in _pod_deadlines(record, context)):
            return record
        pods = ", ".join(node.pods_not_ready[:5])
        events.append(
            event(reasons.NODE_PODS_NOT_READY, f"Node {node.name}: not ready: {pods}", warning=True)
        )
    events.append(event(reasons.NODE_READY, f"Node {node.name} is ready"))
    return replace(
        record,
        state=MachineState.READY,
        reason="",
        message="",
        join_attempts=0,
        spot_failures=0,
        no_capacity=0,
    )


def _pod_deadlines(record: MachineRecord, context: Context) -> Iterable[datetime]:
    """Return when pods of DaemonSets are not waited for any longer; nothing before the machine has joined."""
    if record.joined_at is None:
        return []
    return [record.joined_at + timedelta(seconds=context.settings.pods_ready_grace)]


def _delete_token(record: MachineRecord, context: Context) -> tuple[MachineRecord, tuple[Call, ...]]:
    """Delete the machine's own token once it has joined, or is gone."""
    is_used = record.node_uid or not record.exists
    if not record.token_id or not is_used or context.waits(record):
        return record, ()
    key = f"delete-token-{record.token_id}-{record.tries}"
    result = context.facts.results.get(key)
    if result is not None and result.status is CallStatus.DONE:
        return replace(record, token_id=""), ()
    if result is not None:
        return context.retry(record, record.reason, record.message), ()
    return record, (Call(key, TOKEN_DRIVER, DeleteToken(record.token_id, context.uid)),)


def progress(record: MachineRecord, context: Context) -> str:
    """Return how far the machine has come, and what may be missing."""
    spec, node, machine = context.facts.spec, context.facts.node, context.machine(record)
    where = f"{record.name} in {record.zone}"
    if record.running_at is None:
        return f"{where}: never RUNNING{f', now {machine.status}' if machine else ''}"
    if node is None:
        return f"{where}: RUNNING, but no Node has come{_hint(spec)}"
    if not node.ready:
        return f"{where}: Node {node.name} is not Ready{f': {node.message}' if node.message else ''}"
    if node.gpus < context.facts.needs_gpus:
        return f"{where}: Node {node.name} offers {node.gpus} of {context.facts.needs_gpus} nvidia.com/gpu"
    if node.pods_not_ready:
        return f"{where}: pods of DaemonSets are not ready: {', '.join(node.pods_not_ready[:5])}"
    return f"{where}: Node {node.name} is being checked"


def _hint(spec: MachineSpec | None) -> str:
    if spec is None:
        return ""
    driver = ", the GPU driver" if spec.gpu else ""
    return f"; vmImage {spec.image} or startupScript must bring kubeadm, a container runtime{driver}"


def _with_events(plan: MachinePlan, events: list[EmitEvent]) -> MachinePlan:
    return replace(plan, events=(*events, *plan.events))


def settle_token(record: MachineRecord, context: Context) -> MachinePlan:
    """Delete the token of a machine that is gone."""
    record, calls = _delete_token(record, context)
    return replace(context.plan(record), calls=calls)
