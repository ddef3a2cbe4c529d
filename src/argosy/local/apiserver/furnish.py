"""Gives a namespace, together with its creation, what its pods need."""

import asyncio

from argosy.local import furnishings
from argosy.local.apiserver.api import Api
from argosy.local.apiserver.fresh import create_internally


async def furnish(api: Api, namespace: str) -> None:
    """Make what is missing."""
    certificate = (api.state / "pki" / "ca.crt").read_text()
    await asyncio.gather(
        create_internally(api, api.registry.builtin("", "serviceaccounts"), furnishings.account(namespace)),
        create_internally(
            api, api.registry.builtin("", "configmaps"), furnishings.authority(namespace, certificate)
        ),
    )
