"""Installs what a new local control plane needs: CRDs and the operator's namespace.

The CRD of Volcano's PodGroup is always among them: the local scheduler schedules such groups.

Uses server-side apply, so that running it again changes nothing and an upgrade adds new fields.
"""

import asyncio
from collections.abc import Iterable

from argosy.engine.client import Client
from argosy.kinds.crd import crd_for
from argosy.kinds.crd_options import CustomResource
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.volcano import VolcanoPodGroupCrd


async def install(client: Client, custom_resources: Iterable[type[CustomResource]]) -> None:
    """Create the CRDs and namespaces that the operator and its users expect."""
    kinds: list[type[CustomResource]] = [*custom_resources, VolcanoPodGroupCrd]
    namespace = {"metadata": {"name": OPERATOR_NAMESPACE}}
    await asyncio.gather(
        client.apply(Namespace, namespace, force=True),
        *(client.apply(CustomResourceDefinition, crd_for(kind), force=True) for kind in kinds),
    )
