"""Makes bootstrap tokens with which one machine each joins the cluster, and deletes them.

They are Secrets in kube-system, of the form that Kubernetes prescribes. The label with the uid of the object
that a token is made for, which only this driver sets, tells it from others: those are neither changed nor
deleted. The annotation for allowed namespaces lets the creation of that object's machine use it.
"""

import secrets
import string

from msgspec import Struct

from argosy.capacity.join import TOKEN_NAMESPACE, CreateToken, DeleteToken, token_secret
from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, Conflict, NotFound
from argosy.kinds import labels
from argosy.kinds.kubernetes import Secret, SecretMetadata
from argosy.plan.drivers import Credentials, Refusal

_ALPHABET = string.ascii_lowercase + string.digits


class BootstrapTokens:
    """The driver `bootstrap-tokens`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        match request:
            case CreateToken():
                await self._create(request)
            case DeleteToken():
                await self._delete(request)
            case _:
                raise Refusal("NotSupported", f"unknown request {type(request).__name__}")
        return None

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        raise Refusal("NotSupported", "bootstrap tokens are not looked at")

    async def _create(self, request: CreateToken) -> None:
        try:
            await self._client.create(Secret, _body(request), TOKEN_NAMESPACE)
        except AlreadyExists:
            if await self._existing(request.id, request.uid) is None:
                raise Refusal("NAME_CONFLICT", f"the token {request.id} belongs to another object") from None

    async def _delete(self, request: DeleteToken) -> None:
        existing = await self._existing(request.id, request.uid)
        if existing is None:
            return
        meta = existing.metadata
        try:
            await self._client.delete(SecretMetadata, meta.name, TOKEN_NAMESPACE, uid=meta.uid)
        except (NotFound, Conflict):
            pass

    async def _existing(self, token_id: str, uid: str) -> SecretMetadata | None:
        """Return the token's Secret if it was made for this object."""
        try:
            secret = await self._client.get(SecretMetadata, token_secret(token_id), TOKEN_NAMESPACE)
        except NotFound:
            return None
        return secret if secret.metadata.labels.get(labels.UID) == uid else None


def _body(request: CreateToken) -> dict[str, object]:
    return {
        "metadata": {
            "name": token_secret(request.id),
            "labels": {labels.MANAGED_BY: labels.MANAGER, labels.UID: request.uid},
            "annotations": {labels.ALLOWED_NAMESPACES: request.namespace},
        },
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "token-id": request.id,
            "token-secret": "".join(secrets.choice(_ALPHABET) for _ in range(16)),
            "expiration": request.expires,
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
            "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
        },
    }
