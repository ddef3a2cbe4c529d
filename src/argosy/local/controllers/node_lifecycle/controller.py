"""The node lifecycle controller: watches Leases and heartbeats, sets conditions and taints, evicts pods.

A reconcile handles one node and is requeued for when the node would have been silent for too long, or when
the next pod must be evicted; a healthy node causes no work in between.
"""

import asyncio
import time
from datetime import datetime

import msgspec

from argosy.engine.cache import Change
from argosy.engine.client import PatchType
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Lease
from argosy.local.controllers.api_types import Node, Pod, StatusCondition, Taint
from argosy.local.controllers.informers import ControllerContext, gather_errors
from argosy.local.controllers.node_lifecycle.health import (
    NodeHealth,
    desired_taints,
    eviction_time,
    last_heartbeat,
    observe,
    ready_status,
    unknown_conditions,
)
from argosy.local.controllers.node_lifecycle.running_time import RunningTime
from argosy.local.processes import NODE_MONITOR_GRACE_SECONDS

PROMPT_ANSWER_SECONDS = 1.0
"""An API server that takes longer than this to answer may not have heard the nodes either."""

LEASE_NAMESPACE = "kube-node-lease"

log = Logger(__name__)


class NodeLifecycleController:
    def __init__(
        self,
        context: ControllerContext,
        *,
        grace: float = NODE_MONITOR_GRACE_SECONDS,
        longest_toleration: float | None = None,
    ) -> None:
        self._context = context
        self._grace = grace
        self._max_toleration = longest_toleration
        self._health: dict[str, NodeHealth] = {}
        self._running = RunningTime(time.monotonic)
        self._controller: Controller[str] = Controller("nodes", self._reconcile)
        context.nodes.subscribe(self._node_changed)
        context.leases.subscribe(self._lease_changed)
        context.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._running.run())
            tasks.create_task(self._controller.run())

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._observe(change.new)
            self._controller.enqueue(change.new.metadata.name)
        elif change.old is not None:
            self._health.pop(change.old.metadata.name, None)

    def _lease_changed(self, change: Change[Lease]) -> None:
        name = change.new.metadata.name if change.new is not None else ""
        node = self._context.nodes.get("", name)
        if node is not None:
            self._observe(node)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        node = self._context.nodes.get("", pod.spec.node_name) if pod is not None else None
        if node is not None and (ready_status(node) != "True" or _has_no_execute(node.spec.taints)):
            self._controller.enqueue(node.metadata.name)

    def _observe(self, node: Node) -> NodeHealth:
        name = node.metadata.name
        lease = self._context.leases.get(LEASE_NAMESPACE, name)
        renewed = lease.spec.renew_time if lease is not None else None
        previous, now = self._health.get(name), self._running.seconds()
        health = self._health[name] = observe(previous, renewed, last_heartbeat(node), now)
        return health

    def _silent_seconds(self, node: Node) -> float:
        """Return the seconds of running time since the node's last heartbeat."""
        return self._running.seconds() - self._observe(node).observed_at

    async def _is_still_silent(self, node: Node) -> bool:
        """Return True if the node's Lease, fetched from the API server, is still outdated.

        If it does not answer promptly, the node may have been unable to reach it either, and its silence is
        counted from now.
        """
        name, started = node.metadata.name, time.monotonic()
        try:
            self._context.leases.put(await self._context.client.get(Lease, name, LEASE_NAMESPACE))
        except NotFound:
            pass
        except ApiError:
            self._restart_silence(node)
            raise
        if time.monotonic() - started > PROMPT_ANSWER_SECONDS:
            self._restart_silence(node)
        return self._silent_seconds(node) >= self._grace

    def _restart_silence(self, node: Node) -> None:
        health = msgspec.structs.replace(self._observe(node), observed_at=self._running.seconds())
        self._health[node.metadata.name] = health

    async def _reconcile(self, name: str) -> Requeue | None:
        node = self._context.nodes.get("", name)
        if node is None or node.metadata.deletion_timestamp is not None:
            return None
        now = self._context.clock.now().replace(microsecond=0)
        left = self._grace - self._silent_seconds(node)
        try:
            if left <= 0 and (changed := unknown_conditions(node, now)) and await self._is_still_silent(node):
                log.warning("node is silent", node=name)
                node = await self._mark_unknown(node, changed)
            wanted = desired_taints(node, now)
            if wanted != node.spec.taints:
                node = await self._set_taints(node, wanted)
        except (NotFound, Conflict):
            return Requeue(after=0.2)
        pods = [pod for pod in self._context.pods.by("node", name) if not pod.finished]
        if ready_status(node) != "True":
            await self._mark_pods_unready(pods, now)
        next_leave = await self._evict_due_pods(node, pods)
        left = self._grace - self._silent_seconds(node)
        waits = [seconds for seconds in (left if left > 0 else None, next_leave) if seconds is not None]
        return Requeue(after=min(waits)) if waits else None

    async def _mark_unknown(self, node: Node, changed: list[StatusCondition]) -> Node:
        patch = {"status": {"conditions": [_without_empty(condition) for condition in changed]}}
        self._context.events.event(
            node, "Normal", "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady"
        )
        written = await self._context.client.patch(
            Node, node.metadata.name, patch, type=PatchType.STRATEGIC, subresource="status"
        )
        self._context.nodes.put(written)
        return written

    async def _set_taints(self, node: Node, wanted: list[Taint]) -> Node:
        meta = node.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"taints": [_without_empty(taint) for taint in wanted] or None},
        }
        written = await self._context.client.patch(Node, meta.name, patch)
        self._context.nodes.put(written)
        return written

    async def _mark_pods_unready(self, pods: list[Pod], now: datetime) -> None:
        stale = [
            pod
            for pod in pods
            if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
        ]
        for problem in await gather_errors(self._mark_pod_unready(pod, now) for pod in stale):
            raise problem

    async def _mark_pod_unready(self, pod: Pod, now: datetime) -> None:
        self._context.events.event(pod, "Warning", "NodeNotReady", "Node is not ready")
        await self._set_pod_condition(pod, {"type": "Ready", "status": "False", "lastTransitionTime": now})

    async def _evict_due_pods(self, node: Node, pods: list[Pod]) -> float | None:
        """Evict the pods that are due; return the seconds until the next one is."""
        if not _has_no_execute(node.spec.taints):
            return None
        now = self._context.clock.now()
        upcoming: list[float] = []
        due: list[Pod] = []
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                when = eviction_time(pod, node.spec.taints, now, self._max_toleration)
                if when is not None and when <= now:
                    due.append(pod)
                elif when is not None:
                    upcoming.append((when - now).total_seconds())
        for problem in await gather_errors(self._evict_pod(pod, now.replace(microsecond=0)) for pod in due):
            raise problem
        return min(upcoming, default=None)

    async def _evict_pod(self, pod: Pod, now: datetime) -> None:
        meta = pod.metadata
        text = f"Marking for deletion Pod {meta.namespace}/{meta.name}"
        self._context.events.event(pod, "Normal", "TaintManagerEviction", text)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": now,
        }
        await self._set_pod_condition(pod, condition)
        try:
            await self._context.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return

    async def _set_pod_condition(self, pod: Pod, condition: dict[str, object]) -> None:
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            written = await self._context.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            return
        self._context.pods.put(written)


def _has_no_execute(taints: list[Taint]) -> bool:
    return any(taint.effect == "NoExecute" for taint in taints)


def _without_empty(part: Taint | StatusCondition) -> dict[str, object]:
    encoded: dict[str, object] = msgspec.to_builtins(part)
    return {name: value for name, value in encoded.items() if value not in (None, "")}
