"""A user with exactly the rights that an operator lists for itself and for one API."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from argosy.engine.dynamic import dynamic_kind
from argosy.engine.objects import ApiObject
from argosy.kinds.meta import Json
from argosy.kinds.resource import Resource
from argosy.local.apiserver.kubeconfig import write_kubeconfig
from argosy.operator.apis.base import Api
from argosy.operator.rbac import CORE_RULES
from tests.support.operator_harness import Scene
from tests.support.servers import READER

RBAC = "rbac.authorization.k8s.io"


@asynccontextmanager
async def reader_with_rules(scene: Scene, api: Api) -> AsyncIterator[Path]:
    """Grant a user the rules that an operator with this API lists; yield the user's kubeconfig."""
    name = f"operator-{scene.namespace}"
    rules = [
        {"apiGroups": [rule.group], "resources": list(rule.resources), "verbs": list(rule.verbs)}
        for rule in (*CORE_RULES, *api.rules)
    ]
    role = _rbac_kind("ClusterRole")
    binding = _rbac_kind("ClusterRoleBinding")
    await scene.client.create(role, {"metadata": {"name": name}, "rules": rules})
    body: Json = {
        "metadata": {"name": name},
        "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": RBAC},
        "subjects": [{"kind": "User", "name": READER.name, "apiGroup": RBAC}],
    }
    await scene.client.create(binding, body)
    try:
        path = scene.server.folder / f"kubeconfig-{name}"
        write_kubeconfig(path, scene.server.url, scene.server.ca_file, READER.token)
        yield path
    finally:
        for kind in (binding, role):
            await scene.client.delete(kind, name)


def _rbac_kind(kind: str) -> type[ApiObject]:
    return dynamic_kind(Resource(RBAC, "v1", kind, f"{kind.lower()}s", namespaced=False))
