"""Shows which cluster this is, for the labels of its machines."""

from msgspec import Struct

from argosy.capacity.provider import ClusterIdentity
from argosy.engine.client import Client
from argosy.kinds.kubernetes import Namespace
from argosy.plan.drivers import Credentials, Refusal

NAMESPACE = "kube-system"


class ClusterIdentityDriver:
    """The driver `cluster`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        raise Refusal("NotSupported", "the cluster is only looked at")

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        return ClusterIdentity((await self._client.get(Namespace, NAMESPACE)).metadata.uid)
