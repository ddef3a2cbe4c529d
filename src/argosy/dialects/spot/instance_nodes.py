"""What is done to the Node of a VM: it is labelled, priced, and deleted when its VM is gone.

The end of a VM that its cloud reports is announced on the Node, so that all jobs there learn of it, where no
node agent has announced one as early.

The Record of a VM is part of a status, which tenants may be able to write. So a Node is only touched if what
they cannot write says that it is this VM: the name of the ProvisionedInstance and when that was created, and
the name, the provider id and the labels of the Node.
"""

from collections.abc import Iterator

from argosy.capacity.machine_record import MachineRecord, MachineState
from argosy.dialects.spot import names
from argosy.dialects.spot.instance_inputs import CLOCK_SKEW
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import HOURLY_PRICE, MACHINE_POOL, MACHINE_SOURCE
from argosy.kinds.meta import Json
from argosy.kinds.spot import INSTANCE_LABEL
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Action, Patch, Remove
from argosy.workload.announcements import end_annotations, is_announced


def node_actions(obj: ProvisionedInstance, machine: MachineRecord, node: Node | None) -> Iterator[Action]:
    """Label the Node of the machine, announce its end, and delete it when the machine was deleted."""
    if node is None or node.metadata.uid != machine.node_uid or not _may_be_node_of(obj, node):
        return
    meta = node.metadata
    gone = machine.state in (MachineState.WANTED, MachineState.FAILED) or (
        machine.state is MachineState.DELETED and obj.metadata.deletion_timestamp is not None
    )
    if gone:
        yield Remove(Node, meta.name, meta.uid)
    elif machine.exists and (marks := _marks(obj, machine, node)):
        yield Patch(Node, meta.name, "", meta.uid, {"metadata": marks})


def _marks(obj: ProvisionedInstance, machine: MachineRecord, node: Node) -> Json:
    """Return what the metadata of the Node lacks.

    An end is announced on the Node as it was read only: an agent may announce an earlier one at this moment.
    """
    marks: Json = {}
    annotations: dict[str, str] = {}
    if node.metadata.labels.get(INSTANCE_LABEL) != machine.name:
        marks["labels"] = {INSTANCE_LABEL: machine.name, **_pool_label(obj)}
        annotations = {HOURLY_PRICE: machine.price} if machine.price else {}
    notice = machine.notice
    if notice is not None and not notice.on_node and not is_announced(node, notice.deadline):
        annotations |= end_annotations(notice.deadline, MACHINE_SOURCE)
        marks["resourceVersion"] = node.metadata.resource_version
    return {**marks, "annotations": annotations} if annotations else marks


def _may_be_node_of(obj: ProvisionedInstance, node: Node) -> bool:
    """Return True if a Node can be the VM of an object, whatever the status of the object says."""
    name, created = names.machine_name(obj.metadata.name), node.metadata.creation_timestamp
    bought = obj.metadata.creation_timestamp
    if created is None or bought is None or created < bought - CLOCK_SKEW:
        return False
    called = node.spec.provider_id.rpartition("/")[2] or node.metadata.name
    return called == name and node.metadata.labels.get(INSTANCE_LABEL, name) == name


def pool_label_value(namespace: str, pool: str) -> str:
    """Return the value of the label of the nodes of a pool."""
    return names.label_value(f"{namespace}.{names.label_value(pool)}")


def _pool_label(obj: ProvisionedInstance) -> dict[str, str]:
    """Return the label by which pods choose the nodes of a pool; the namespace is that of the object."""
    pool = obj.metadata.labels.get(MACHINE_POOL)
    return {MACHINE_POOL: pool_label_value(obj.metadata.namespace, pool)} if pool else {}
