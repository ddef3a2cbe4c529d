"""What a fresh local control plane must hold before anyone uses it: our kinds, the gang kind, our namespace.

Written with server-side apply, so that saying it again changes nothing and an upgrade brings new fields.
"""

from argosy.engine.client import Client
from argosy.kinds.catalog import OURS
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.labels import OPERATOR_NAMESPACE


async def install(client: Client) -> None:
    """Make the kinds and namespaces that the operator and its users expect."""
    for kind in OURS:
        await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
    await client.apply(Namespace, {"metadata": {"name": OPERATOR_NAMESPACE}}, force=True)
