"""What is done to the Node of a VM: it is labelled, priced, and deleted when its VM is gone."""

from collections.abc import Iterator

from argosy.capacity.machine_record import MachineRecord, MachineState
from argosy.dialects.spot import names
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import HOURLY_PRICE, MACHINE_POOL
from argosy.kinds.spot import INSTANCE_LABEL
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Action, Patch, Remove


def node_actions(obj: ProvisionedInstance, machine: MachineRecord, node: Node | None) -> Iterator[Action]:
    """Label the Node of the machine, with its price, and delete it when the machine was deleted."""
    if node is None or node.metadata.uid != machine.node_uid:
        return
    meta = node.metadata
    gone = machine.state in (MachineState.WANTED, MachineState.FAILED) or (
        machine.state is MachineState.DELETED and obj.metadata.deletion_timestamp is not None
    )
    if gone:
        yield Remove(Node, meta.name, meta.uid)
    elif machine.exists and meta.labels.get(INSTANCE_LABEL) != machine.name:
        price = {"annotations": {HOURLY_PRICE: machine.price}} if machine.price else {}
        marks = {"labels": {INSTANCE_LABEL: machine.name, **_pool_label(obj)}, **price}
        yield Patch(Node, meta.name, "", meta.uid, {"metadata": marks})


def _pool_label(obj: ProvisionedInstance) -> dict[str, str]:
    """Return the label by which pods choose the nodes of a pool; the namespace is that of the object."""
    pool = obj.metadata.labels.get(MACHINE_POOL)
    return {MACHINE_POOL: names.label_value(f"{obj.metadata.namespace}.{pool}")} if pool else {}
