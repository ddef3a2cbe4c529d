"""What the pods of a namespace need: a default service account, and the authority's certificate.

The server makes them itself, together with the namespace, so that a pod can be created right after it.
"""

import asyncio

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.fresh import create_internally
from argosy.local.schema.model import Json


async def furnish(api: Api, namespace: str) -> None:
    """Give a namespace what its pods need."""
    account: Json = {"metadata": {"name": "default", "namespace": namespace}}
    authority: Json = {
        "metadata": {
            "name": "kube-root-ca.crt",
            "namespace": namespace,
            "annotations": {
                "kubernetes.io/description": "Contains a CA bundle that can be used to verify the "
                "kube-apiserver when using internal endpoints such as the internal service IP or "
                "kubernetes.default.svc."
                " No other usage is guaranteed across distributions of Kubernetes clusters."
            },
        },
        "data": {"ca.crt": (api.state / "pki" / "ca.crt").read_text()},
    }
    await asyncio.gather(
        create_internally(api, api.registry.builtin("", "serviceaccounts"), account),
        create_internally(api, api.registry.builtin("", "configmaps"), authority),
    )
