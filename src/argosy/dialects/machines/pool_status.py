"""The status of a MachinePool."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from argosy.capacity import pool_reasons as reasons
from argosy.capacity.pool_record import Leaving, PoolRecord, Slot, Why
from argosy.dialects.machines.observed import false_condition, is_ready
from argosy.dialects.machines.pool_spec import selector
from argosy.dialects.spot.conditions import Stated, update_conditions
from argosy.dialects.spot.reasons import TERMINAL_INSTANCE_REASONS
from argosy.kinds.machinepool import MachinePool, MachinePoolStatus
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import ActionResult
from argosy.workload.capacity import parse_hourly_price


def pool_status(
    pool: MachinePool,
    record: PoolRecord,
    instances: Mapping[str, ProvisionedInstance],
    problem: str,
    failures: Iterable[ActionResult],
    now: datetime,
) -> MachinePoolStatus:
    """Return the whole status."""
    named = [slot for slot in record.slots if slot.machine]
    ready = [slot for slot in named if _is_ready(slot, instances)]
    stated = [_accepted(problem), _ready(pool, record, instances, ready, failures)]
    return MachinePoolStatus(
        replicas=len(named),
        ready=len(ready),
        provisioning=len(named) - len(ready),
        noticed=_count(record.leaving, instances, Why.LOST),
        draining=_count(record.leaving, instances, Why.SURPLUS),
        cost_per_hour=total_price(instance.status.price_per_hour for instance in instances.values()),
        selector=selector(pool),
        conditions=update_conditions(pool.status.conditions, stated, pool.metadata.generation, now),
        observed_generation=pool.metadata.generation,
        argosy=_encode(record),
    )


def total_price(prices: Iterable[str]) -> str:
    """Return the sum of the prices that can be read; empty if none can."""
    amounts = [price for text in prices if (price := parse_hourly_price(text)) is not None]
    return f"{sum(amounts):.3f}" if amounts else ""


def _accepted(problem: str) -> Stated:
    if problem:
        return Stated(reasons.ACCEPTED, "False", reasons.INVALID_SPEC, problem)
    return Stated(reasons.ACCEPTED, "True", reasons.ACCEPTED)


def _ready(
    pool: MachinePool,
    record: PoolRecord,
    instances: Mapping[str, ProvisionedInstance],
    ready: list[Slot],
    failures: Iterable[ActionResult],
) -> Stated:
    """Return the condition Ready; its reason is first of all a problem that does not solve itself."""
    count = f"{len(ready)} of {len(record.slots)} machines are ready"
    if pool.metadata.deletion_timestamp is not None:
        return Stated(reasons.READY, "False", reasons.DELETING, f"{len(record.leaving)} machines are left")
    if len(ready) == len(record.slots):
        return Stated(reasons.READY, "True", reasons.ALL_READY, count)
    rejected = next((f for f in failures if f.kind == ProvisionedInstance.resource.kind), None)
    if rejected is not None:
        return Stated(reasons.READY, "False", reasons.MACHINE_REJECTED, f"{count}; {rejected.message}")
    unready = [
        (slot.machine, condition)
        for slot in record.slots
        if slot.machine in instances and (condition := false_condition(instances[slot.machine])) is not None
    ]
    unready.sort(key=lambda pair: pair[1].reason not in TERMINAL_INSTANCE_REASONS)
    for machine, condition in unready:
        text = f"; {condition.message or machine}"
        return Stated(reasons.READY, "False", condition.reason or reasons.PROVISIONING, count + text)
    waiting = [slot.not_before for slot in record.slots if slot.not_before is not None]
    text = f"; the next is requested at {min(waiting):%H:%M:%S} UTC, after short lives" if waiting else ""
    return Stated(reasons.READY, "False", reasons.PROVISIONING, count + text)


def _is_ready(slot: Slot, instances: Mapping[str, ProvisionedInstance]) -> bool:
    return slot.machine in instances and is_ready(instances[slot.machine])


def _count(leaving: Iterable[Leaving], instances: Mapping[str, ProvisionedInstance], why: Why) -> int:
    return sum(1 for machine in leaving if machine.why is why and machine.machine in instances)


def _encode(record: PoolRecord) -> dict[str, object]:
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, object])
