"""The endpoints controller: watches pods and services, and writes EndpointSlices that changed."""

from collections.abc import Iterable

import msgspec

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import NotFound
from argosy.local.controllers.api_types import Node, Pod
from argosy.local.controllers.endpoints.decide import MANAGED_BY, MANAGER, DesiredSlice, decide, is_managed
from argosy.local.controllers.informers import ControllerContext, gather_errors
from argosy.local.service_types import EndpointSlice, Service

ZONE = "topology.kubernetes.io/zone"
MAX_NAME_CHARS = 246
SMALL_INDEX = 64


class EndpointsController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._controller: Controller[Key] = Controller("endpoints", self._reconcile)
        context.services.subscribe(self._service_changed)
        context.pods.subscribe(self._pod_changed)
        context.endpoint_slices.subscribe(self._slice_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _service_changed(self, change: Change[Service]) -> None:
        service = change.new or change.old
        if service is not None:
            self._controller.enqueue(Key(service.metadata.namespace, service.metadata.name))

    def _slice_changed(self, change: Change[EndpointSlice]) -> None:
        endpoint_slice = change.new or change.old
        if endpoint_slice is not None and endpoint_slice.metadata.labels.get(MANAGED_BY) == MANAGER:
            name = endpoint_slice.metadata.labels.get("kubernetes.io/service-name", "")
            self._controller.enqueue(Key(endpoint_slice.metadata.namespace, name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and _endpoint_fields(old) == _endpoint_fields(new):
            return
        for pod in (old, new):
            if pod is not None:
                for service in self._services_of(pod):
                    self._controller.enqueue(Key(service.metadata.namespace, service.metadata.name))

    def _services_of(self, pod: Pod) -> Iterable[Service]:
        labels = pod.metadata.labels
        for key, value in labels.items():
            for service in self._context.services.by("selector", f"{pod.metadata.namespace}|{key}={value}"):
                if _selects(service, pod):
                    yield service

    def _pods_of(self, service: Service) -> list[Pod]:
        best: tuple[Pod, ...] | None = None
        for key, value in service.spec.selector.items():
            selected = self._context.pods.by("label", f"{service.metadata.namespace}|{key}={value}")
            if best is None or len(selected) < len(best):
                best = selected
            if len(best) <= SMALL_INDEX:
                break
        return [pod for pod in best or () if _selects(service, pod)]

    async def _reconcile(self, key: Key) -> Requeue | None:
        service = self._context.services.get(*key)
        if service is None or service.metadata.deletion_timestamp is not None or not is_managed(service):
            return None  # what is left of its slices belongs to the garbage collector
        slices = [
            endpoint_slice
            for endpoint_slice in self._context.endpoint_slices.by("service", f"{key.namespace}/{key.name}")
            if endpoint_slice.metadata.labels.get(MANAGED_BY) == MANAGER
            and endpoint_slice.metadata.deletion_timestamp is None
        ]
        pods = self._pods_of(service)
        plan = decide(service, pods, slices, self._zones(pods))
        problems = await gather_errors(self._write_slice(service, desired) for desired in plan.write)
        problems += await gather_errors(self._delete_slice(endpoint_slice) for endpoint_slice in plan.delete)
        for problem in problems:
            raise problem
        return None

    def _zones(self, pods: Iterable[Pod]) -> dict[str, str]:
        nodes: dict[str, Node | None] = {
            pod.spec.node_name: self._context.nodes.get("", pod.spec.node_name) for pod in pods
        }
        return {name: node.metadata.labels.get(ZONE, "") for name, node in nodes.items() if node}

    async def _write_slice(self, service: Service, desired: DesiredSlice) -> None:
        meta = service.metadata
        body: dict[str, object] = {
            "ports": msgspec.to_builtins(desired.ports),
            "endpoints": msgspec.to_builtins(desired.endpoints),
        }
        if desired.name:
            existing = self._context.endpoint_slices.get(meta.namespace, desired.name)
            removed_labels = dict.fromkeys(existing.metadata.labels if existing else (), None)
            body["metadata"] = {"labels": removed_labels | desired.labels}
            written = await self._context.client.patch(EndpointSlice, desired.name, body, meta.namespace)
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
                "generateName": f"{meta.name[:MAX_NAME_CHARS]}-",
                "labels": desired.labels,
                "ownerReferences": [owner],
            }
            written = await self._context.client.create(EndpointSlice, body, meta.namespace)
        self._context.endpoint_slices.put(written)

    async def _delete_slice(self, endpoint_slice: EndpointSlice) -> None:
        meta = endpoint_slice.metadata
        try:
            await self._context.client.delete(EndpointSlice, meta.name, meta.namespace, uid=meta.uid)
        except NotFound:
            return


def _selects(service: Service, pod: Pod) -> bool:
    labels = pod.metadata.labels
    return is_managed(service) and all(
        labels.get(key) == value for key, value in service.spec.selector.items()
    )


def _endpoint_fields(pod: Pod) -> tuple[object, ...]:
    """Return the fields of a pod on which its endpoint depends."""
    ready = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    terminating = pod.metadata.deletion_timestamp is not None
    return (pod.finished, pod.status.pod_ip, ready, terminating, pod.spec.node_name, pod.metadata.labels)
