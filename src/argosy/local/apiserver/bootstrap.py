"""Creates what every cluster has: namespaces, the `kubernetes` Service, default roles."""

import asyncio

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.bootstrap_roles import cluster_role_bindings, cluster_roles
from argosy.local.apiserver.new_object import create_internally, create_namespace_defaults
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.services import KUBERNETES_ADDRESS
from argosy.local.schema.model import Json

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_RBAC = "rbac.authorization.k8s.io"


async def bootstrap(api: Api) -> None:
    """Create the objects that do not exist."""
    wanted: list[tuple[Served, Json]] = [
        (api.registry.builtin("", "namespaces"), _namespace(name)) for name in _NAMESPACES
    ]
    wanted += [(api.registry.builtin(_RBAC, "clusterroles"), role) for role in cluster_roles()]
    wanted += [
        (api.registry.builtin(_RBAC, "clusterrolebindings"), binding) for binding in cluster_role_bindings()
    ]
    wanted.append((api.registry.builtin("", "services"), _kubernetes_service()))
    await asyncio.gather(*[create_internally(api, served, obj) for served, obj in wanted])
    await asyncio.gather(
        *[
            create_namespace_defaults(api, stored.name)
            for stored in api.store.collection("namespaces").listed("")
        ]
    )


def _namespace(name: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _kubernetes_service() -> Json:
    return {
        "metadata": {
            "name": "kubernetes",
            "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": KUBERNETES_ADDRESS,
            "clusterIPs": [KUBERNETES_ADDRESS],
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "sessionAffinity": "None",
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
        },
        "status": {"loadBalancer": {}},
    }
