"""Collects what the choice of a zone for a VM depends on from its job and the other VMs of the job or pool.

Both are read from what is recorded in their statuses, so that another operator process chooses the same.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from argosy.capacity.machine_record import Cooldown, MachineRecord, MachineState
from argosy.capacity.zone_rates import ZoneRate, decayed_rates
from argosy.capacity.zones import Strategy, ZonePolicy
from argosy.kinds.machinepool import MachinePool
from argosy.kinds.spot import REPLICA_LABEL, Recovery, SpotInstanceJob
from argosy.kinds.spot_machines import ProvisionedInstance, ProvisionedInstanceSpec

T = TypeVar("T")

_CHOOSING_STATES = (MachineState.WANTED, MachineState.REQUESTED, MachineState.FAILED)


def is_choosing(record: MachineRecord) -> bool:
    """Return True while a zone may be chosen, so that the other VMs of the job matter."""
    return record.state in _CHOOSING_STATES


def buying_rules(obj: ProvisionedInstance, job: SpotInstanceJob | None) -> Recovery | ProvisionedInstanceSpec:
    """Return what says where and how a VM is bought: its job; without one, the VM itself."""
    return job.spec.recovery if job is not None else obj.spec


def recorded_rates(buyer: SpotInstanceJob | MachinePool | None) -> tuple[ZoneRate, ...]:
    """Return how often VMs of a job or a pool were preempted."""
    raw = buyer.status.argosy.get("zone_rates") if buyer is not None else None
    return _converted(raw, tuple[ZoneRate, ...]) or ()


def zone_policy(
    obj: ProvisionedInstance,
    job: SpotInstanceJob | None,
    siblings: Iterable[ProvisionedInstance],
    rates: Sequence[ZoneRate],
    digest: str,
    now: datetime,
) -> ZonePolicy:
    """Return the policy of the job; without one, that of the VM itself.

    `digest` is that of the machine that is wanted: that a zone has no room for another one says nothing.
    """
    others = [each for each in siblings if each.metadata.uid != obj.metadata.uid]
    strategy = buying_rules(obj, job).strategy
    lost = _last_lost(obj, others)
    return ZonePolicy(
        strategy=Strategy(strategy) if strategy in list(Strategy) else Strategy.FAILOVER,
        lost_zone=_last_zone(lost) if lost is not None else "",
        used=_zones_in_use(others),
        rates=decayed_rates(rates, now),
        cooldowns=tuple(_cooldowns(others, digest)),
    )


def _last_lost(obj: ProvisionedInstance, others: Sequence[ProvisionedInstance]) -> ProvisionedInstance | None:
    """Return the VM that this one replaces."""
    index = obj.metadata.labels.get(REPLICA_LABEL)
    lost = [
        each
        for each in others
        if index is not None
        and each.metadata.labels.get(REPLICA_LABEL) == index
        and each.status.preemption_notice
    ]
    return max(lost, key=lambda each: each.metadata.name, default=None)


def _last_zone(obj: ProvisionedInstance) -> str:
    zone = _recorded_machine(obj).get("zone")
    return zone if isinstance(zone, str) else obj.status.zone


def _zones_in_use(others: Iterable[ProvisionedInstance]) -> dict[str, int]:
    """Return how many other VMs of the same job are in each zone."""
    used: dict[str, int] = {}
    for each in others:
        if each.status.zone and each.status.state != "TERMINATED":
            used[each.status.zone] = used.get(each.status.zone, 0) + 1
    return used


def _cooldowns(others: Iterable[ProvisionedInstance], digest: str) -> Iterator[Cooldown]:
    """Yield the zones and regions that had no room for another VM like this one."""
    for each in others:
        machine = _recorded_machine(each)
        if machine.get("cooldowns") and machine.get("digest") == digest:
            yield from _converted(machine["cooldowns"], tuple[Cooldown, ...]) or ()


def _recorded_machine(obj: ProvisionedInstance) -> Mapping[str, object]:
    machine = obj.status.argosy.get("machine")
    return machine if isinstance(machine, dict) else {}


def _converted(raw: object, kind: type[T]) -> T | None:
    """Return a part of a Record; None if it is not there, or of another version of the operator."""
    try:
        return msgspec.convert(raw, kind) if raw is not None else None
    except msgspec.ValidationError:
        return None
