"""What a cluster has from its first moment: namespaces, the `kubernetes` service, default roles."""

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.create import create_internally
from argosy.local.apiserver.http import Request
from argosy.local.apiserver.objects import Json

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


async def bootstrap(api: Api) -> None:
    """Make what is missing."""
    namespaces = api.registry.find("", "v1", "namespaces")
    assert namespaces is not None
    for name in _NAMESPACES:
        await create_internally(api, namespaces, _namespace(name), _nobody())


def _namespace(name: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _nobody() -> Request:
    async def nothing() -> dict[str, object]:
        return {"type": "http.disconnect"}

    return Request({"path": "/", "headers": []}, nothing)
