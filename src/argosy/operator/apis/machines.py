"""Registers MachinePool with an operator, and lists the rights that it needs."""

from typing import TYPE_CHECKING, Final

from argosy.kinds.kubernetes import Node
from argosy.kinds.machinepool import MachinePool
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.operator.rbac import PolicyRule, kind_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.manager import Manager

RULES: Final = (
    *kind_rules(MachinePool, owns=(ProvisionedInstance,)),
    PolicyRule(
        scope="cluster",
        resources=(Node.resource.plural,),
        verbs=("patch",),
        reason="nodes of machines that a MachinePool does not need any more are closed for new pods",
    ),
)


def add_machine_pools(manager: "Manager") -> None:
    """Serve MachinePool."""
    from argosy.dialects.machines.observed import NODE_INDEX, pods_by_node
    from argosy.dialects.machines.reconciler import MachinePoolReconciler
    from argosy.dialects.spot.pods import ClusterPod
    from argosy.reconcile.runner import ReconciledKind

    manager.add_kind(
        ReconciledKind(
            kind=MachinePool,
            reconciler=MachinePoolReconciler(manager.notices, sees_all_pods=not manager.namespace),
            needed={Node: {}, ClusterPod: {NODE_INDEX: pods_by_node}},
            on_demand=frozenset({ClusterPod}),
        )
    )
