"""Lists the rights that node agents need. They are no part of the operator, but installed with it."""

from typing import Final

from argosy.kinds.kubernetes import Node, Pod, Secret
from argosy.kinds.migration import CheckpointBackup
from argosy.operator.rbac import READ, PolicyRule

RULES: Final = (
    PolicyRule(
        scope="agent",
        resources=(Node.resource.plural,),
        verbs=(*READ, "patch"),
        reason="annotations, taint and label of the agent's own node",
    ),
    PolicyRule(
        scope="agent",
        resources=(f"{Node.resource.plural}/checkpoint",),
        verbs=("create",),
        reason="checkpoints of containers, by the kubelet",
    ),
    PolicyRule(
        scope="agentJobs",
        resources=(Pod.resource.plural,),
        verbs=(*READ, "delete"),
        reason="delete: pods that are to stop after their checkpoint",
    ),
    PolicyRule(
        scope="agentJobs",
        group=CheckpointBackup.resource.group,
        resources=(CheckpointBackup.resource.plural, f"{CheckpointBackup.resource.plural}/status"),
        verbs=(*READ, "patch"),
        reason="status and finalizer",
    ),
    PolicyRule(
        scope="agentJobs",
        resources=(Secret.resource.plural,),
        verbs=("get",),
        reason="logins of registries that backups name; never listed",
    ),
)
