"""The PropagationPolicies by which Karmada brings CheckpointBackups to the clusters that they are for.

A CheckpointBackup for a member cluster is a template: Karmada copies it there, without its owner, and the
node agents of that cluster execute the copy. These policies place objects of their own namespace only. What
places Namespaces and CRDs could place anything anywhere, so administrators do that themselves (see
`docs/users/checkpointbackup.md`).
"""

import re
from typing import ClassVar, Final

from msgspec import Struct

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.resource import Resource
from argosy.kinds.text import shorten
from argosy.plan.children import Child

MAX_BACKUPS: Final = 10_000
"""Of a StatefulMigration with member clusters: their pods may be counted by numbers in specs alone."""
_MAX_NAME_CHARS: Final = 253
_CLUSTER_NAME: Final = re.compile(r"(?=.{1,48}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
"""Names that Karmada accepts for its clusters."""


class PropagationPolicy(Struct):
    """Karmada's PropagationPolicy, of which the operator reads the metadata only."""

    resource: ClassVar[Resource] = Resource(
        "policy.karmada.io", "v1alpha1", "PropagationPolicy", "propagationpolicies"
    )

    metadata: ObjectMeta


def can_be_member(cluster: str) -> bool:
    """Return True if a member cluster of Karmada may have this name."""
    return _CLUSTER_NAME.fullmatch(cluster) is not None


def policy_child(backup: Child, namespace: str, cluster: str) -> Child:
    """Return the policy that places a backup in one member cluster and nowhere else."""
    resource = CheckpointBackup.resource
    selector = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "namespace": namespace,
        "name": backup.name,
    }
    spec = {
        "resourceSelectors": [selector],
        "placement": {"clusterAffinity": {"clusterNames": [cluster]}},
    }
    return Child(PropagationPolicy, shorten(f"{backup.name}-policy", _MAX_NAME_CHARS), {"spec": spec})
