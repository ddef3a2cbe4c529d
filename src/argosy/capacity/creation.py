"""Creates a wanted machine: chooses a zone, records it, looks for the machine, and sends the creation.

The Record says where and under which id a machine is requested before it is looked for, and that a creation
may have been sent before it is sent. A repeated request has the same id, and a machine that is there already
is adopted by its exact name.
"""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.capacity import reasons
from argosy.capacity.catalog import Prices
from argosy.capacity.join import (
    TOKEN_DRIVER,
    TOKEN_NAMESPACE,
    TOKEN_ROLE,
    CreateToken,
    choose_token_id,
    token_secret,
)
from argosy.capacity.machine_plan import CLOCK_SKEW, Context, MachinePlan, cut, event
from argosy.capacity.machine_record import Cooldown, MachineRecord, MachineSpec, MachineState, region_of
from argosy.capacity.provider import NOT_FOUND, ObservedMachine, ObservedOperation, OperationKind
from argosy.capacity.reactions import Reaction, reaction_to, reaction_to_result
from argosy.capacity.zones import choose_zone, order_zones
from argosy.plan.actions import Call, CallResult, CallStatus, SecretRef

_EVENTS = {reasons.ZONE_EXHAUSTED, reasons.QUOTA_EXCEEDED, reasons.PERMISSION_DENIED}
"""Reasons that are reported as events too."""


class ExistingMachine(Struct, frozen=True):
    """The machine exists."""

    record: MachineRecord
    adopted: bool


def request(record: MachineRecord, context: Context) -> MachinePlan:
    """Choose a zone and record it."""
    facts = context.facts
    spec = facts.spec
    if spec is None or facts.join is None:
        return context.plan(replace(record, retry_at=None, reason=reasons.PROVISIONING, message=""))
    if facts.name_taken_by:
        message = f"{facts.name_taken_by} of the name {facts.name} exists already"
        return context.plan(replace(record, reason=reasons.NAME_CONFLICT, message=message))
    if context.waits(record):
        return context.plan(record)
    spot = spec.spot and not 0 < facts.on_demand_after <= record.spot_failures
    candidates = order_zones(spec, facts.policy, facts.offers, spot=spot)
    if record.deletion_reason:  # the last machine did not become ready in its zone: that one comes last
        candidates = tuple(sorted(candidates, key=lambda candidate: candidate.zone == record.zone))
    cooldowns = tuple(cooldown for cooldown in record.cooldowns if cooldown.until > context.now)
    zone = choose_zone(candidates, (*cooldowns, *facts.policy.cooldowns), facts.policy.used, context.now)
    if not zone:
        return context.plan(_without_capacity(record, context))
    prices = facts.offers.get(zone, Prices(None, None))
    requested = replace(
        _clean(record),
        state=MachineState.REQUESTED,
        provider=context.provider.driver,
        name=facts.name,
        project=spec.project,
        zone=zone,
        attempt=record.attempt + 1,
        spot=spot,
        digest=spec.digest,
        price=_dollars(prices.price(spot=spot)),
        on_demand_price=_dollars(prices.on_demand),
        requested_at=context.now,
        cooldowns=cooldowns,
        credentials=facts.credentials,
        token_id=_token_id(record, context),
        reason=reasons.PROVISIONING,
        message=f"requesting {spec.machine_type} in {zone}",
    )
    plan = context.plan(requested, context.call(requested, "find", context.provider.find(requested)))
    message = f"requesting {_describe(spec, spot=spot)} {facts.name} in {zone}"
    return replace(plan, events=(event(reasons.INSTANCE_REQUESTED, message),))


def create(record: MachineRecord, context: Context) -> MachinePlan | ExistingMachine:
    """Look for the recorded machine, and create it if it is not there."""
    if machine := context.machine(record):
        return _take_over(record, machine, context, adopted=context.result(record, "insert") is None)
    operation = _insertion(record, context)
    if operation is not None and operation.done and operation.code:
        return _handle_refusal(record, context, operation.code, operation.message)
    if operation is not None and not operation.done:
        return _wait(record, context)
    if context.facts.spec is None or context.facts.join is None:
        return context.plan(record) if not record.sent else _wait(record, context)
    if context.waits(record):
        return context.plan(record)
    if not record.sent and record.digest != context.facts.spec.digest:
        return request(replace(record, state=MachineState.WANTED), context)
    result = context.result(record, "find")
    find = context.call(record, "find", context.provider.find(record))
    if result is None:
        return context.plan(record, find)
    if result.status is CallStatus.DONE and isinstance(result.value, ObservedMachine):
        return _take_over(record, result.value, context, adopted=True)
    if result.status is not CallStatus.REFUSED or result.code != NOT_FOUND:
        return _failed_call(record, context, result)
    if operation is not None:  # it was created, and is gone already
        return ExistingMachine(replace(record, confirmed=True), adopted=False)
    return _insert(record, context, find)


def _insert(record: MachineRecord, context: Context, find: Call) -> MachinePlan:
    """Send the creation; its answer stays until the view shows what it has led to."""
    facts = context.facts
    assert facts.spec is not None
    assert facts.join is not None
    secrets = dict(facts.secrets)
    calls = [find]
    if record.token_id:
        token = CreateToken(record.token_id, context.uid, facts.namespace, _token_expiry(record, context))
        key = context.key(record, "token")
        calls.append(Call(key, TOKEN_DRIVER, token))
        made = facts.results.get(key)
        if made is None:
            return context.plan(record, *calls)
        if made.status is not CallStatus.DONE:
            return context.plan(context.retry(record, reasons.PROVISIONING, made.message))
        secrets[TOKEN_ROLE] = SecretRef(token_secret(record.token_id), TOKEN_NAMESPACE)
    result = context.result(record, "insert")
    if result is None or result.status is CallStatus.DONE:
        join = replace(facts.join, token_id=record.token_id)
        body = context.provider.create(record, facts.spec, facts.identity, join)
        insert = context.call(record, "insert", body, secrets)
        started = result.value if result is not None else None
        if isinstance(started, ObservedOperation) and started.done and started.code:
            return _handle_refusal(record, context, started.code, started.message)
        sent = record if record.sent else replace(record, sent=True, requested_at=context.now)
        return _wait(replace(sent, retry_at=None), context, *calls, insert)
    return _failed_call(record, context, result)


def _wait(record: MachineRecord, context: Context, *calls: Call) -> MachinePlan:
    """Wait until the view shows more, and at most until the machine should have joined."""
    assert record.requested_at is not None
    deadline = record.requested_at + timedelta(seconds=context.settings.join_timeout)
    plan = context.plan(record, *calls)
    return replace(plan, requeue_at=max(deadline, context.now + timedelta(seconds=1)))


def _failed_call(record: MachineRecord, context: Context, result: CallResult) -> MachinePlan:
    if result.status is CallStatus.REFUSED:
        return _handle_refusal(record, context, result.code, result.message)
    outcome = reaction_to_result(result)
    return context.plan(context.retry(record, outcome.reason, result.message))


def _handle_refusal(record: MachineRecord, context: Context, code: str, message: str) -> MachinePlan:
    """Decide what a refusal of this attempt means for the next one."""
    outcome = reaction_to(code)
    if outcome.reaction is not Reaction.FIND:
        record = replace(record, refusals=record.refusals + 1, refusal=code)
    if outcome.reaction in (Reaction.RETRY, Reaction.FIND):
        return context.plan(context.retry(record, outcome.reason, f"{code}: {message}"))
    text = cut(f"{record.zone}: {code}: {message}")
    events = [event(outcome.reason, text, warning=True)] if outcome.reason in _EVENTS else []
    settings = context.settings
    failures = record.spot_failures + (1 if record.spot else 0)
    wanted = replace(
        record,
        state=MachineState.WANTED,
        sent=False,
        spot_failures=failures,
        reason=outcome.reason,
        message=text,
    )
    if outcome.reaction is Reaction.FAIL:
        return context.plan(_fail(wanted, context), events=events)
    if outcome.reaction is Reaction.NEXT_REGION:
        until = context.now + timedelta(seconds=settings.quota_cooldown)
        cooldown = Cooldown(region_of(record.zone), until, is_region=True)
    else:
        cooldown = Cooldown(record.zone, context.now + timedelta(seconds=settings.zone_cooldown))
    wanted = replace(wanted, cooldowns=(*record.cooldowns, cooldown), deletion_reason="")
    plan = request(wanted, context)
    return replace(plan, events=(*events, *plan.events))


def _fail(record: MachineRecord, context: Context) -> MachineRecord:
    return replace(
        record,
        state=MachineState.FAILED,
        sent=False,
        spot_failures=0,
        blocked_by=context.facts.inputs_digest,
        retry_at=None,
        tries=0,
    )


def reopen(record: MachineRecord, context: Context) -> MachinePlan:
    """Try a failed machine again if something has changed that may help."""
    if record.blocked_by == context.facts.inputs_digest or context.facts.spec is None:
        return context.plan(record)
    return request(replace(_clean(record), state=MachineState.WANTED, join_attempts=0), context)


def _take_over(
    record: MachineRecord, machine: ObservedMachine, context: Context, *, adopted: bool
) -> MachinePlan | ExistingMachine:
    if not _is_ours(record, machine, context):
        text = f"{record.zone}: a machine {record.name} of another object exists already"
        return context.plan(_fail(replace(record, reason=reasons.NAME_CONFLICT, message=text), context))
    return ExistingMachine(replace(record, sent=True, confirmed=True), adopted)


def _is_ours(record: MachineRecord, machine: ObservedMachine, context: Context) -> bool:
    """Return False for a machine of another object, or of nobody that was there before it was requested."""
    if machine.uid or machine.created is None or record.requested_at is None:
        return machine.uid in ("", context.uid)
    return machine.created >= record.requested_at - CLOCK_SKEW


def _dollars(price: float | None) -> str:
    return "" if price is None else f"{price:.4f}"


def _insertion(record: MachineRecord, context: Context) -> ObservedOperation | None:
    """Return the operation of this attempt's creation, as the view shows it."""
    request_id = record.request_id(context.uid)
    for operation in context.operations(record):
        if operation.kind is OperationKind.INSERT and operation.request_id == request_id:
            return operation
    return None


def _without_capacity(record: MachineRecord, context: Context) -> MachineRecord:
    """Return the Record if no zone is left: after a growing time all zones are asked again."""
    return replace(
        record,
        state=MachineState.WANTED,
        no_capacity=record.no_capacity + 1,
        retry_at=context.now + context.settings.no_capacity(record.no_capacity),
        cooldowns=tuple(cooldown for cooldown in record.cooldowns if cooldown.is_region),
        reason=reasons.NO_CAPACITY,
        message=record.message or "no zone is left",
    )


def _clean(record: MachineRecord) -> MachineRecord:
    """Return the Record without what belongs to an earlier attempt."""
    return replace(
        record,
        sent=False,
        confirmed=False,
        running_at=None,
        tries=0,
        retry_at=None,
        node="",
        node_uid="",
        joined_at=None,
        silent_since=None,
        deletion_reason="",
        deleting_since=None,
        blocked_by="",
        notice=None,
    )


def _token_id(record: MachineRecord, context: Context) -> str:
    """Return the machine's own token; it is kept until a machine that has received it is deleted."""
    if record.token_id or not context.facts.own_token:
        return record.token_id
    return choose_token_id(context.uid, record.attempt + 1)


def _token_expiry(record: MachineRecord, context: Context) -> str:
    assert record.requested_at is not None
    expiry = record.requested_at + timedelta(seconds=2 * context.settings.join_timeout)
    return expiry.strftime("%Y-%m-%dT%H:%M:%SZ")


def _describe(spec: MachineSpec, *, spot: bool) -> str:
    gpus = f" with {spec.gpu.count} {spec.gpu.type}" if spec.gpu else ""
    return f"{'spot' if spot else 'on-demand'} {spec.machine_type}{gpus}"
