"""Resolves the backends of services for DNS and the proxy. Pure over three collections.

Backends come from EndpointSlices. While the slices do not yet contain a pod that the service selects, the pod
itself is used, so that a name works as soon as its pod has an address.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from argosy.local.node.pod_types import Pod
from argosy.local.service_types import EndpointSlice, Service, ServicePort

SERVICE_LABEL = "kubernetes.io/service-name"


class Backend(NamedTuple):
    address: str
    hostname: str
    ready: bool
    ports: dict[str, int]
    """Target port by the service port's name."""


class ServiceDirectory(NamedTuple):
    """Services, EndpointSlices and pods; the callables read caches."""

    service: Callable[[str, str], Service | None]
    slices: Callable[[str, str], Iterable[EndpointSlice]]
    pods: Callable[[str], Iterable[Pod]]

    def backends(self, service: Service, *, ready_only: bool = True) -> list[Backend]:
        """Return the backends of a service, sorted and without duplicates."""
        meta = service.metadata
        backends = _from_slices(self.slices(meta.namespace, meta.name))
        if service.spec.selector:
            addresses = {backend.address for backend in backends}
            backends += [
                b for b in _from_pods(service, self.pods(meta.namespace)) if b.address not in addresses
            ]
        ready_only = ready_only and not service.spec.publish_not_ready_addresses
        return sorted(backend for backend in backends if backend.ready or not ready_only)


def _from_slices(slices: Iterable[EndpointSlice]) -> list[Backend]:
    backends: dict[str, Backend] = {}
    for endpoint_slice in slices:
        ports = {port.name or "": port.port for port in endpoint_slice.ports or [] if port.port is not None}
        for endpoint in endpoint_slice.endpoints or []:
            ready = endpoint.conditions.ready is not False
            for address in endpoint.addresses[:1]:
                held = backends.get(address)
                merged = {**held.ports, **ports} if held else ports
                backends[address] = Backend(address, endpoint.hostname or "", ready, merged)
    return list(backends.values())


def _from_pods(service: Service, pods: Iterable[Pod]) -> list[Backend]:
    wanted = service.spec.selector.items()
    return [
        Backend(
            pod.status.pod_ip,
            pod.spec.hostname if pod.spec.subdomain == service.metadata.name and pod.spec.hostname else "",
            _is_ready(pod),
            {port.name: target_port(pod, port) for port in service.spec.ports},
        )
        for pod in pods
        if pod.status.pod_ip
        and not pod.finished
        and pod.metadata.deletion_timestamp is None
        and wanted <= pod.metadata.labels.items()
    ]


def target_port(pod: Pod, port: ServicePort) -> int:
    target = port.target_port or port.port
    if isinstance(target, int):
        return target
    if target.isdigit():
        return int(target)
    named = (p.container_port for c in pod.spec.containers for p in c.ports if p.name == target)
    return next(named, 0)


def _is_ready(pod: Pod) -> bool:
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in pod.status.conditions)
