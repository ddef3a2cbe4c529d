"""Computes the EndpointSlices of a Service. Pure.

An endpoint stays in its slice, so that a change of one pod rewrites one slice; a slice has at most a hundred
endpoints. Pods for which a named port resolves to different numbers are in different slices, because a slice
has one list of ports.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from argosy.local.controllers.api_types import Pod
from argosy.local.service_types import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    ObjectReference,
    Service,
    ServicePort,
)

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
SERVICE_NAME = "kubernetes.io/service-name"
HEADLESS = "service.kubernetes.io/headless"
RESERVED = (MANAGED_BY, SERVICE_NAME, HEADLESS)
MAX_ENDPOINTS = 100

Ports = tuple[EndpointPort, ...]


class DesiredSlice(Struct):
    """A slice as it should be; `name` is empty if it has to be created."""

    ports: Ports
    endpoints: list[Endpoint]
    labels: dict[str, str]
    name: str = ""


class Plan(Struct):
    write: list[DesiredSlice] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)


def decide(
    service: Service, pods: Iterable[Pod], slices: Sequence[EndpointSlice], zones: Mapping[str, str]
) -> Plan:
    labels = slice_labels(service)
    groups = _endpoints_by_ports(service, pods, zones)
    plan = Plan()
    spare = [
        endpoint_slice
        for endpoint_slice in slices
        if tuple(endpoint_slice.ports or ()) not in groups or endpoint_slice.address_type != "IPv4"
    ]
    for ports, endpoints in groups.items():
        existing = [
            endpoint_slice
            for endpoint_slice in slices
            if tuple(endpoint_slice.ports or ()) == ports and endpoint_slice not in spare
        ]
        for desired in _fill_slices(ports, endpoints, existing, labels):
            if not desired.name and spare:
                desired.name = spare.pop().metadata.name
            plan.write.append(desired)
        kept = {desired.name for desired in plan.write}
        plan.delete += [
            endpoint_slice for endpoint_slice in existing if endpoint_slice.metadata.name not in kept
        ]
    plan.delete += spare
    by_name = {endpoint_slice.metadata.name: endpoint_slice for endpoint_slice in slices}
    plan.write = [desired for desired in plan.write if not _is_unchanged(desired, by_name.get(desired.name))]
    return plan


def is_managed(service: Service) -> bool:
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def slice_labels(service: Service) -> dict[str, str]:
    labels = {key: value for key, value in service.metadata.labels.items() if key not in RESERVED}
    if service.spec.cluster_ip == "None":
        labels[HEADLESS] = ""
    return labels | {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}


def build_endpoint(service: Service, pod: Pod, zone: str = "") -> Endpoint:
    meta = pod.metadata
    serving = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    terminating = meta.deletion_timestamp is not None
    ready = service.spec.publish_not_ready_addresses or (serving and not terminating)
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=(pod.status.pod_ip,),
        conditions=EndpointConditions(ready, serving, terminating),
        hostname=pod.spec.hostname if named else "",
        target_ref=ObjectReference("Pod", meta.name, meta.namespace, meta.uid),
        node_name=pod.spec.node_name,
        zone=zone,
    )


def _endpoints_by_ports(
    service: Service, pods: Iterable[Pod], zones: Mapping[str, str]
) -> dict[Ports, dict[str, Endpoint]]:
    groups: dict[Ports, dict[str, Endpoint]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if pod.finished or not pod.status.pod_ip:
            continue
        ports = _ports(service, pod)
        if not ports and service.spec.ports:
            continue
        endpoint = build_endpoint(service, pod, zones.get(pod.spec.node_name, ""))
        groups.setdefault(ports, {})[pod.metadata.uid] = endpoint
    return groups or {(): {}}


def _ports(service: Service, pod: Pod) -> Ports:
    target_ports = ((port, _target_port(port, pod)) for port in service.spec.ports)
    return tuple(
        EndpointPort(port.name, number, port.protocol, port.app_protocol)
        for port, number in target_ports
        if number
    )


def _target_port(port: ServicePort, pod: Pod) -> int:
    """Return the pod's port behind a service port, whose target is a number or the name of a port."""
    target = port.target_port
    if isinstance(target, int) or target.isdecimal():
        return int(target) or port.port
    containers = [
        *pod.spec.containers,
        *(c for c in pod.spec.init_containers if c.restart_policy == "Always"),
    ]
    for container in containers:
        for offered in container.ports:
            if offered.name == target and offered.protocol == port.protocol:
                return offered.container_port
    return 0


def _fill_slices(
    ports: Ports, endpoints: dict[str, Endpoint], existing: Sequence[EndpointSlice], labels: dict[str, str]
) -> list[DesiredSlice]:
    left = dict(endpoints)
    filled = []
    for endpoint_slice in existing:
        stay = [
            left.pop(existing.target_ref.uid)
            for existing in endpoint_slice.endpoints or ()
            if existing.target_ref is not None and existing.target_ref.uid in left
        ]
        filled.append(DesiredSlice(ports, stay, labels, endpoint_slice.metadata.name))
    fresh = list(left.values())
    for desired in filled:
        free_slots = MAX_ENDPOINTS - len(desired.endpoints)
        desired.endpoints += fresh[:free_slots]
        del fresh[:free_slots]
    while fresh or not filled:
        filled.append(DesiredSlice(ports, fresh[:MAX_ENDPOINTS], labels))
        del fresh[:MAX_ENDPOINTS]
    used = [desired for desired in filled if desired.endpoints]
    return used or filled[:1]


def _is_unchanged(desired: DesiredSlice, existing: EndpointSlice | None) -> bool:
    return (
        existing is not None
        and tuple(existing.ports or ()) == desired.ports
        and (existing.endpoints or []) == desired.endpoints
        and existing.metadata.labels == desired.labels
    )
