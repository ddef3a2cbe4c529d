"""The endpoints controller at work: follows pods and services, writes the slices that differ."""

from collections.abc import Iterable

import msgspec

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import NotFound
from argosy.local.controllers.endpoints.decide import MANAGED_BY, MANAGER, Wanted, decide, manages
from argosy.local.controllers.informers import Shared, each
from argosy.local.controllers.kinds import Node, Pod
from argosy.local.networking import EndpointSlice, Service

ZONE = "topology.kubernetes.io/zone"
NAME_LIMIT = 246
FEW = 64


class EndpointsController:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._controller: Controller[Key] = Controller("endpoints", self._pass)
        shared.services.subscribe(self._service_changed)
        shared.pods.subscribe(self._pod_changed)
        shared.slices.subscribe(self._slice_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _service_changed(self, change: Change[Service]) -> None:
        service = change.new or change.old
        if service is not None:
            self._controller.enqueue(Key(service.metadata.namespace, service.metadata.name))

    def _slice_changed(self, change: Change[EndpointSlice]) -> None:
        piece = change.new or change.old
        if piece is not None and piece.metadata.labels.get(MANAGED_BY) == MANAGER:
            name = piece.metadata.labels.get("kubernetes.io/service-name", "")
            self._controller.enqueue(Key(piece.metadata.namespace, name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _matters(old) == _matters(new):
            return
        for pod in (old, new):
            if pod is not None:
                for service in self._services_of(pod):
                    self._controller.enqueue(Key(service.metadata.namespace, service.metadata.name))

    def _services_of(self, pod: Pod) -> Iterable[Service]:
        labels = pod.metadata.labels
        for key, value in labels.items():
            for service in self._shared.services.by("selector", f"{pod.metadata.namespace}|{key}={value}"):
                if _selects(service, pod):
                    yield service

    def _pods_of(self, service: Service) -> list[Pod]:
        best: tuple[Pod, ...] | None = None
        for key, value in service.spec.selector.items():
            found = self._shared.pods.by("label", f"{service.metadata.namespace}|{key}={value}")
            if best is None or len(found) < len(best):
                best = found
            if len(best) <= FEW:
                break
        return [pod for pod in best or () if _selects(service, pod)]

    async def _pass(self, key: Key) -> Requeue | None:
        service = self._shared.services.get(*key)
        if service is None or service.metadata.deletion_timestamp is not None or not manages(service):
            return None  # what is left of its slices belongs to the garbage collector
        slices = [
            piece
            for piece in self._shared.slices.by("service", f"{key.namespace}/{key.name}")
            if piece.metadata.labels.get(MANAGED_BY) == MANAGER and piece.metadata.deletion_timestamp is None
        ]
        pods = self._pods_of(service)
        plan = decide(service, pods, slices, self._zones(pods))
        problems = await each(self._write(service, wanted) for wanted in plan.write)
        problems += await each(self._delete(piece) for piece in plan.delete)
        for problem in problems:
            raise problem
        return None

    def _zones(self, pods: Iterable[Pod]) -> dict[str, str]:
        nodes: dict[str, Node | None] = {
            pod.spec.node_name: self._shared.nodes.get("", pod.spec.node_name) for pod in pods
        }
        return {name: node.metadata.labels.get(ZONE, "") for name, node in nodes.items() if node}

    async def _write(self, service: Service, wanted: Wanted) -> None:
        meta = service.metadata
        body: dict[str, object] = {
            "ports": msgspec.to_builtins(wanted.ports),
            "endpoints": msgspec.to_builtins(wanted.endpoints),
        }
        if wanted.name:
            known = self._shared.slices.get(meta.namespace, wanted.name)
            gone = dict.fromkeys(known.metadata.labels if known else (), None)
            body["metadata"] = {"labels": gone | wanted.labels}
            written = await self._shared.client.patch(EndpointSlice, wanted.name, body, meta.namespace)
        else:
            owner = {
                "apiVersion": "v1",
                "kind": "Service",
                "name": meta.name,
                "uid": meta.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
            body["addressType"] = "IPv4"
            body["metadata"] = {
                "generateName": f"{meta.name[:NAME_LIMIT]}-",
                "labels": wanted.labels,
                "ownerReferences": [owner],
            }
            written = await self._shared.client.create(EndpointSlice, body, meta.namespace)
        self._shared.slices.put(written)

    async def _delete(self, piece: EndpointSlice) -> None:
        meta = piece.metadata
        try:
            await self._shared.client.delete(EndpointSlice, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return


def _selects(service: Service, pod: Pod) -> bool:
    labels = pod.metadata.labels
    return manages(service) and all(labels.get(key) == value for key, value in service.spec.selector.items())


def _matters(pod: Pod) -> tuple[object, ...]:
    """What of a pod an endpoint shows."""
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    gone = pod.metadata.deletion_timestamp is not None
    return (pod.finished, pod.status.pod_ip, ready, gone, pod.spec.node_name, pod.metadata.labels)
