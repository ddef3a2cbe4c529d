"""Installs what a new local control plane needs: the CRDs, the PodGroup CRD and the operator's namespace.

Uses server-side apply, so that running it again changes nothing and an upgrade adds new fields.
"""

import asyncio

from argosy.engine.client import Client
from argosy.kinds.crd import CUSTOM_RESOURCES, crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.labels import OPERATOR_NAMESPACE


async def install(client: Client) -> None:
    """Make the kinds and namespaces that the operator and its users expect."""
    namespace = {"metadata": {"name": OPERATOR_NAMESPACE}}
    await asyncio.gather(
        client.apply(Namespace, namespace, force=True),
        *(client.apply(CustomResourceDefinition, crd_for(kind), force=True) for kind in CUSTOM_RESOURCES),
    )
