"""Deletes pods that no node will ever finish: their node does not exist, or they were deleted unscheduled.

A node may be registered again under the same name, so its pods are kept for a quarantine period.
"""

from argosy.engine.cache import Change
from argosy.engine.client import PatchType
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.local.controllers.api_types import Node, Pod
from argosy.local.controllers.informers import ControllerContext, gather_errors

QUARANTINE_SECONDS = 40.0


class PodGarbageCollector:
    def __init__(self, context: ControllerContext, quarantine: float = QUARANTINE_SECONDS) -> None:
        self._context = context
        self._quarantine = quarantine
        self._missing_nodes: dict[str, float] = {}
        """Nodes that pods name and that are not there, and since when."""
        self._controller: Controller[str] = Controller("pods", self._reconcile)
        context.pods.subscribe(self._pod_changed)
        context.nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        for pod in self._context.pods:
            self._pod_changed(Change(None, pod))
        await self._controller.run()

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            return
        name = pod.spec.node_name
        if name and self._context.nodes.synced and self._context.nodes.get("", name) is None:
            self._controller.enqueue(name)
        if not name and pod.metadata.deletion_timestamp is not None:
            self._controller.enqueue("")

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is None and change.old is not None:
            self._controller.enqueue(change.old.metadata.name)

    async def _reconcile(self, node: str) -> Requeue | None:
        if not node:
            stuck = [
                pod
                for pod in self._context.pods
                if not pod.spec.node_name
                and pod.metadata.deletion_timestamp is not None
                and pod.metadata.deletion_grace_period_seconds
            ]
            await self._remove_all(stuck)
            return None
        if self._context.nodes.get("", node) is not None or not self._context.pods.by("node", node):
            self._missing_nodes.pop(node, None)
            return None
        now = self._context.clock.monotonic()
        left = self._missing_nodes.setdefault(node, now) + self._quarantine - now
        if left > 0:
            return Requeue(after=left)
        try:
            await self._context.client.get(Node, node)
        except NotFound:
            pods = [pod for pod in self._context.pods.by("node", node) if not _is_force_deleted(pod)]
            await self._remove_all(pods)
            return None
        return Requeue(after=1.0)

    async def _remove_all(self, pods: list[Pod]) -> None:
        for problem in await gather_errors(self._remove(pod) for pod in pods):
            raise problem

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        try:
            if not pod.finished:
                await self._fail(pod)
            await self._context.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid, grace_seconds=0)
        except (NotFound, Conflict):
            return

    async def _fail(self, pod: Pod) -> None:
        meta = pod.metadata
        status: dict[str, object] = {"phase": "Failed"}
        if pod.spec.node_name:
            condition = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists",
                "lastTransitionTime": self._context.clock.now().replace(microsecond=0),
            }
            status["conditions"] = [condition]
        patch = {"metadata": {"uid": meta.uid}, "status": status}
        await self._context.client.patch(
            Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
        )


def _is_force_deleted(pod: Pod) -> bool:
    """Return True if the pod was force-deleted already and only a finalizer keeps it."""
    return pod.metadata.deletion_timestamp is not None and not pod.metadata.deletion_grace_period_seconds
