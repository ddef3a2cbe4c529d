"""Shows the pods of DaemonSets on a node that are not ready, while somebody waits for a new node.

Only the pods of that node are listed, and only for so long: most operators need no cache of all pods.
"""

from msgspec import Struct

from argosy.capacity.machine_plan import NodePods
from argosy.engine.client import Client
from argosy.kinds.kubernetes import Pod
from argosy.plan.drivers import Credentials, Refusal


class NodePodsDriver:
    """The driver `node-pods`, whose scopes are names of nodes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        raise Refusal("NotSupported", "pods of nodes are only looked at")

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        pods = await self._client.list(Pod, fields=f"spec.nodeName={scope}")
        waiting = [pod.metadata.name for pod in pods.items if _is_of_daemon_set(pod) and not _is_ready(pod)]
        return NodePods(tuple(sorted(waiting)))


def _is_of_daemon_set(pod: Pod) -> bool:
    controller = pod.metadata.controller
    return controller is not None and controller.kind == "DaemonSet"


def _is_ready(pod: Pod) -> bool:
    return any(item.type == "Ready" and item.status == "True" for item in pod.status.conditions)
