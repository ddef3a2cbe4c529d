"""What a MachinePool sees of its machines: their ProvisionedInstances, their nodes, and the pods there."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from argosy.capacity import reasons
from argosy.capacity.pool import PoolMachine, PoolNode
from argosy.dialects.spot.instance_nodes import pool_label_value
from argosy.dialects.spot.instance_status import PENDING, TERMINATED
from argosy.dialects.spot.losses import TAKEN_CAUSES
from argosy.dialects.spot.names import machine_name
from argosy.dialects.spot.pods import ClusterPod
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import MACHINE_POOL
from argosy.kinds.machinepool import MAX_REPLICAS, MachinePool
from argosy.kinds.spot import INSTANCE_LABEL, REPLICA_LABEL
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.kinds.status_condition import StatusCondition
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import Inputs, Matching, Need, Ref
from argosy.workload.announcements import NoticeRules, end_annotations, find_announcement

NODE_INDEX = "pool-node"
"""Index of pods that have not ended, and that are not on every node, by their node."""

MAX_STAMP = 9_999_999_999
"""Higher numbers at the end of a name are none of ours, which are times in seconds."""

_ON_EVERY_NODE = frozenset({"DaemonSet", "Node"})
"""Kinds of owners of pods that belong to a node, and leave with it."""


def pods_by_node(obj: KubernetesObject) -> Iterable[str]:
    """Index of pods that a machine is kept for."""
    if not isinstance(obj, ClusterPod) or not obj.spec.node_name or obj.has_ended:
        return ()
    controller = obj.metadata.controller
    return () if controller is not None and controller.kind in _ON_EVERY_NODE else (obj.spec.node_name,)


def needs_of(node: str) -> Iterable[Need]:
    """Return what a pool looks at of a node."""
    return Ref(Node, node), Matching(ClusterPod, NODE_INDEX, node)


def machine_of(instance: ProvisionedInstance) -> PoolMachine:
    """Return what the object of a machine says."""
    status = instance.status
    over = status.state == TERMINATED
    problem = ""
    if status.preemption_notice or over:
        source = f", reported by {status.notice_source}" if status.notice_source else ""
        problem = f"{status.cause or 'Unknown'}{source}"
    return PoolMachine(
        name=instance.metadata.name,
        uid=instance.metadata.uid,
        index=_number(instance.metadata.labels.get(REPLICA_LABEL, ""), MAX_REPLICAS - 1),
        stamp=_number(instance.metadata.name.rpartition("-")[2], MAX_STAMP) or 0,
        deleting=instance.metadata.deletion_timestamp is not None,
        zone=status.zone,
        exists=status.state not in ("", PENDING),
        node=status.node_name,
        ready=is_ready(instance),
        problem=problem,
        preempted=bool(problem) and status.cause in TAKEN_CAUSES,
        over=over,
        deadline=status.deadline,
        name_taken=_false(instance, reasons.PROVISIONED) == reasons.NAME_CONFLICT,
    )


def nodes_of(
    names: Iterable[str], pool: MachinePool, inputs: Inputs, rules: NoticeRules
) -> dict[str, PoolNode | None]:
    """Return the observed nodes by name; None for one that does not exist.

    Their names are read from statuses, which tenants may be able to write. Only the labels of a Node say that
    it is a machine of the pool.
    """
    label = pool_label_value(pool.metadata.namespace, pool.metadata.name)
    owned = (instance.metadata.name for instance in inputs.owned(ProvisionedInstance))
    machines = {(label, machine_name(name)): name for name in owned}
    return {name: _node_of(name, machines, inputs, rules) for name in names}


def _node_of(
    name: str, machines: Mapping[tuple[str, str], str], inputs: Inputs, rules: NoticeRules
) -> PoolNode | None:
    """Return the observed node, with the machine whose labels it has."""
    node = inputs.get(Ref(Node, name))
    if node is None:
        return None
    labelled = node.metadata.labels
    machine = machines.get((labelled.get(MACHINE_POOL, ""), labelled.get(INSTANCE_LABEL, "")), "")
    announced = find_announcement(node, rules)
    ends_at = announced.deadline if announced is not None else None
    pods = len(inputs.all(Matching(ClusterPod, NODE_INDEX, name)))
    return PoolNode(node.metadata.uid, machine, node.spec.unschedulable, ends_at, pods)


def drain_patch(until: datetime) -> dict[str, object]:
    """Return what announces the end of a node to the jobs there, and closes it for new pods."""
    annotations = end_annotations(until, labels.MACHINE_POOL_SOURCE)
    return {"metadata": {"annotations": annotations}, "spec": {"unschedulable": True}}


def is_ready(instance: ProvisionedInstance) -> bool:
    return any(c.type == reasons.NODE_READY and c.status == "True" for c in instance.status.conditions)


def false_condition(instance: ProvisionedInstance) -> StatusCondition | None:
    """Return why a machine is not a ready node yet."""
    kinds = (reasons.PROVISIONED, reasons.NODE_READY)
    return next((c for c in instance.status.conditions if c.type in kinds and c.status == "False"), None)


def _number(text: str, highest: int) -> int | None:
    """Return a number that a user may have changed; None if it is not one of ours."""
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(highest)):
        return None
    return int(text) if int(text) <= highest else None


def _false(instance: ProvisionedInstance, kind: str) -> str:
    return next((c.reason for c in instance.status.conditions if c.type == kind and c.status == "False"), "")
