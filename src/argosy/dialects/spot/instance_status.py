"""The status of a ProvisionedInstance, from the Record of its machine and what is seen of it."""

from datetime import datetime

import msgspec
from msgspec import Struct

from argosy.capacity import reasons
from argosy.capacity.machine_plan import NodeFacts
from argosy.capacity.machine_record import MachineState
from argosy.capacity.provider import ObservedMachine
from argosy.dialects.spot.conditions import Stated, update_conditions
from argosy.dialects.spot.instance_inputs import Checked
from argosy.dialects.spot.instance_record import InstanceRecord
from argosy.kinds.spot_machines import ProvisionedInstance, ProvisionedInstanceStatus

PENDING, TERMINATED = "PENDING", "TERMINATED"

_OVER = (MachineState.DELETED, MachineState.LOST)


class Shown(Struct, frozen=True, kw_only=True):
    """What a status is made of."""

    record: InstanceRecord
    seen: ObservedMachine | None
    node: NodeFacts | None
    template: Checked
    credentials: Checked
    join: Checked
    needs_gpus: int
    withdrawn: bool
    """Whether the notice is taken back now. One that is only missing because a Record was lost stays."""
    now: datetime


def instance_status(obj: ProvisionedInstance, shown: Shown) -> ProvisionedInstanceStatus:
    """Return the whole status."""
    record, seen, before = shown.record.machine, shown.seen, obj.status
    noticed = ProvisionedInstanceStatus() if shown.withdrawn else before
    is_new = record.state in (MachineState.WANTED, MachineState.REQUESTED, MachineState.FAILED)
    notice = record.notice
    return ProvisionedInstanceStatus(
        instance_id=seen.id if seen else "" if is_new else before.instance_id,
        instance_name=record.name,
        internal_ip=seen.internal_ip if seen else "" if is_new else before.internal_ip,
        external_ip=seen.external_ip if seen else "" if is_new else before.external_ip,
        creation_time=seen.created if seen else None if is_new else before.creation_time,
        state=_state(shown, before.state),
        node_name=record.node,
        joined_cluster=bool(record.node),
        preemption_notice=noticed.preemption_notice or notice is not None,
        conditions=update_conditions(
            before.conditions, _conditions(shown), obj.metadata.generation, shown.now
        ),
        project=record.project,
        zone=record.zone if record.exists or record.state is MachineState.REQUESTED else "",
        provisioning_model=("SPOT" if record.spot else "STANDARD") if record.attempt else "",
        price_per_hour=record.price if record.exists else "",
        on_demand_price_per_hour=record.on_demand_price if record.exists else "",
        notice_time=notice.at if notice else noticed.notice_time,
        notice_source=notice.source if notice else noticed.notice_source,
        deadline=notice.deadline if notice else noticed.deadline,
        cause=notice.cause if notice else noticed.cause,
        attempts=record.attempt,
        argosy=_encode(shown.record),
    )


def _state(shown: Shown, before: str) -> str:
    """Return PENDING before there is a VM, then its status, and TERMINATED when there is none any more."""
    record = shown.record.machine
    if shown.seen is not None and record.exists:
        return shown.seen.status
    if record.state in (MachineState.WANTED, MachineState.REQUESTED, MachineState.FAILED):
        return PENDING
    if record.state is MachineState.DELETED:
        return TERMINATED
    return before or PENDING


def _conditions(shown: Shown) -> list[Stated]:
    stated = [
        *_checked(reasons.CREDENTIALS_READY, shown.credentials),
        *_checked(reasons.JOIN_CONFIG_READY, shown.join if shown.template.ready else Checked()),
        _provisioned(shown),
        _node_ready(shown),
    ]
    record = shown.record.machine
    if record.notice is not None:
        over = record.state in _OVER or record.state is MachineState.DELETING
        text = f"noticed by {record.notice.source}"
        stated.append(Stated(reasons.LOST, "True" if over else "False", record.notice.cause, text))
    if shown.withdrawn:
        stated.append(Stated(reasons.LOST, "False", reasons.NOTICE_WITHDRAWN))
    return stated


def _checked(kind: str, checked: Checked) -> list[Stated]:
    if checked.ready is None:
        return []
    return [Stated(kind, "True" if checked.ready else "False", checked.reason, checked.message)]


def _provisioned(shown: Shown) -> Stated:
    record = shown.record.machine
    if record.running_at is not None and record.state not in (
        MachineState.WANTED,
        MachineState.FAILED,
        MachineState.DELETED,
        MachineState.LOST,
        MachineState.DELETING,
    ):
        return Stated(reasons.PROVISIONED, "True", reasons.RUNNING, f"{record.name} runs in {record.zone}")
    if record.state in (MachineState.WANTED, MachineState.REQUESTED):
        for checked in (shown.template, shown.credentials, shown.join):
            if checked.ready is False:
                return Stated(reasons.PROVISIONED, "False", checked.reason, checked.message)
    if record.state is MachineState.DELETED:
        return Stated(reasons.PROVISIONED, "False", reasons.GONE, record.message)
    return Stated(reasons.PROVISIONED, "False", record.reason or reasons.PROVISIONING, record.message)


def _node_ready(shown: Shown) -> Stated:
    record, node = shown.record.machine, shown.node
    if record.state in (MachineState.DELETED, MachineState.LOST):
        return Stated(reasons.NODE_READY, "False", reasons.LOST, "the VM is lost")
    if node is None:
        reason = record.reason if record.reason not in ("", reasons.PROVISIONING) else reasons.NODE_MISSING
        return Stated(reasons.NODE_READY, "False", reason, record.message)
    if not node.ready:
        return Stated(
            reasons.NODE_READY, "False", reasons.NODE_NOT_READY, f"Node {node.name}: {node.message}"
        )
    if node.gpus < shown.needs_gpus:
        text = f"Node {node.name} offers {node.gpus} of {shown.needs_gpus} nvidia.com/gpu"
        return Stated(reasons.NODE_READY, "False", reasons.GPU_MISSING, text)
    if record.state is not MachineState.READY:
        return Stated(reasons.NODE_READY, "False", reasons.NODE_PODS_NOT_READY, record.message)
    return Stated(reasons.NODE_READY, "True", reasons.READY, f"Node {node.name} is ready")


def _encode(record: InstanceRecord) -> dict[str, object]:
    encoded = msgspec.to_builtins(record)
    assert isinstance(encoded, dict)
    return encoded
