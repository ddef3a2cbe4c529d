"""Node lifecycle at work: listens to leases and heartbeats, marks, taints, evicts, and takes it all back.

A pass belongs to one node and wakes itself when the node would have been silent for too long, or when the
next pod must leave; a healthy node costs nothing in between.
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
from argosy.local.controllers.informers import Shared, each
from argosy.local.controllers.kinds import Node, NodeCondition, Pod, Taint
from argosy.local.controllers.node_lifecycle.eviction import leaves_at
from argosy.local.controllers.node_lifecycle.health import (
    Heard,
    heartbeat_of,
    listen,
    lost_conditions,
    ready_status,
    taints_for,
)
from argosy.local.controllers.node_lifecycle.running_time import RunningTime

GRACE = 40.0
PROMPT_SECONDS = 1.0
"""An API server that takes longer than this to answer may not have heard the nodes either."""

LEASES = "kube-node-lease"

log = Logger(__name__)


class NodeController:
    def __init__(
        self, shared: Shared, *, grace: float = GRACE, longest_toleration: float | None = None
    ) -> None:
        self._shared = shared
        self._grace = grace
        self._longest = longest_toleration
        self._heard: dict[str, Heard] = {}
        self._running = RunningTime(time.monotonic)
        self._controller: Controller[str] = Controller("nodes", self._pass)
        shared.nodes.subscribe(self._node_changed)
        shared.leases.subscribe(self._lease_changed)
        shared.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._running.run())
            tasks.create_task(self._controller.run())

    def _node_changed(self, change: Change[Node]) -> None:
        if change.new is not None:
            self._listen(change.new)
            self._controller.enqueue(change.new.metadata.name)
        elif change.old is not None:
            self._heard.pop(change.old.metadata.name, None)

    def _lease_changed(self, change: Change[Lease]) -> None:
        name = change.new.metadata.name if change.new is not None else ""
        node = self._shared.nodes.get("", name)
        if node is not None:
            self._listen(node)

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        node = self._shared.nodes.get("", pod.spec.node_name) if pod is not None else None
        if node is not None and (ready_status(node) != "True" or _evicting(node.spec.taints)):
            self._controller.enqueue(node.metadata.name)

    def _listen(self, node: Node) -> Heard:
        name = node.metadata.name
        lease = self._shared.leases.get(LEASES, name)
        renewed = lease.spec.renew_time if lease is not None else None
        known, now = self._heard.get(name), self._running.seconds()
        heard = self._heard[name] = listen(known, renewed, heartbeat_of(node), now)
        return heard

    def _silence(self, node: Node) -> float:
        """Seconds of running time since the node was last heard of."""
        return self._running.seconds() - self._listen(node).at

    async def _still_silent(self, node: Node) -> bool:
        """Ask the API server itself: its answer may be ahead of our watch.

        If it does not answer promptly, the node may have been unable to reach it, and its silence starts
        anew.
        """
        name, asked = node.metadata.name, time.monotonic()
        try:
            self._shared.leases.put(await self._shared.client.get(Lease, name, LEASES))
        except NotFound:
            pass
        except ApiError:
            self._restart_silence(node)
            raise
        if time.monotonic() - asked > PROMPT_SECONDS:
            self._restart_silence(node)
        return self._silence(node) >= self._grace

    def _restart_silence(self, node: Node) -> None:
        heard = msgspec.structs.replace(self._listen(node), at=self._running.seconds())
        self._heard[node.metadata.name] = heard

    async def _pass(self, name: str) -> Requeue | None:
        node = self._shared.nodes.get("", name)
        if node is None or node.metadata.deletion_timestamp is not None:
            return None
        now = self._shared.clock.now().replace(microsecond=0)
        left = self._grace - self._silence(node)
        try:
            if left <= 0 and (changed := lost_conditions(node, now)) and await self._still_silent(node):
                log.warning("node is silent", node=name)
                node = await self._mark(node, changed)
            wanted = taints_for(node, now)
            if wanted != node.spec.taints:
                node = await self._taint(node, wanted)
        except (NotFound, Conflict):
            return Requeue(after=0.2)
        pods = [pod for pod in self._shared.pods.by("node", name) if not pod.finished]
        if ready_status(node) != "True":
            await self._unready(pods, now)
        next_leave = await self._evict(node, pods)
        left = self._grace - self._silence(node)
        waits = [seconds for seconds in (left if left > 0 else None, next_leave) if seconds is not None]
        return Requeue(after=min(waits)) if waits else None

    async def _mark(self, node: Node, changed: list[NodeCondition]) -> Node:
        patch = {"status": {"conditions": [_encoded(condition) for condition in changed]}}
        self._shared.events.event(
            node, "Normal", "NodeNotReady", f"Node {node.metadata.name} status is now: NodeNotReady"
        )
        written = await self._shared.client.patch(
            Node, node.metadata.name, patch, type=PatchType.STRATEGIC, subresource="status"
        )
        self._shared.nodes.put(written)
        return written

    async def _taint(self, node: Node, wanted: list[Taint]) -> Node:
        meta = node.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "spec": {"taints": [_encoded(taint) for taint in wanted] or None},
        }
        written = await self._shared.client.patch(Node, meta.name, patch)
        self._shared.nodes.put(written)
        return written

    async def _unready(self, pods: list[Pod], now: datetime) -> None:
        stale = [
            pod
            for pod in pods
            if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
        ]
        for problem in await each(self._mark_pod(pod, now) for pod in stale):
            raise problem

    async def _mark_pod(self, pod: Pod, now: datetime) -> None:
        self._shared.events.event(pod, "Warning", "NodeNotReady", "Node is not ready")
        await self._condition(pod, {"type": "Ready", "status": "False", "lastTransitionTime": now})

    async def _evict(self, node: Node, pods: list[Pod]) -> float | None:
        """Evicts who must go now; the seconds until the next must."""
        if not _evicting(node.spec.taints):
            return None
        now = self._shared.clock.now()
        upcoming: list[float] = []
        due: list[Pod] = []
        for pod in pods:
            if pod.metadata.deletion_timestamp is None:
                when = leaves_at(pod, node.spec.taints, now, self._longest)
                if when is not None and when <= now:
                    due.append(pod)
                elif when is not None:
                    upcoming.append((when - now).total_seconds())
        for problem in await each(self._evict_one(pod, now.replace(microsecond=0)) for pod in due):
            raise problem
        return min(upcoming, default=None)

    async def _evict_one(self, pod: Pod, now: datetime) -> None:
        meta = pod.metadata
        text = f"Marking for deletion Pod {meta.namespace}/{meta.name}"
        self._shared.events.event(pod, "Normal", "TaintManagerEviction", text)
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": now,
        }
        await self._condition(pod, condition)
        try:
            await self._shared.client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (NotFound, Conflict):
            return

    async def _condition(self, pod: Pod, condition: dict[str, object]) -> None:
        meta = pod.metadata
        patch = {"metadata": {"uid": meta.uid}, "status": {"conditions": [condition]}}
        try:
            written = await self._shared.client.patch(
                Pod, meta.name, patch, meta.namespace, type=PatchType.STRATEGIC, subresource="status"
            )
        except (NotFound, Conflict):
            return
        self._shared.pods.put(written)


def _evicting(taints: list[Taint]) -> bool:
    return any(taint.effect == "NoExecute" for taint in taints)


def _encoded(part: Taint | NodeCondition) -> dict[str, object]:
    encoded: dict[str, object] = msgspec.to_builtins(part)
    return {name: value for name, value in encoded.items() if value not in (None, "")}
