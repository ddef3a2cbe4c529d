"""Which EndpointSlices a Service should have. Pure.

An endpoint stays in the slice where it is, so that one pod's change rewrites one slice; slices hold a
hundred. Pods for which a named port resolves differently go into different slices, because a slice has one
list of ports.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from argosy.local.controllers.kinds import Pod
from argosy.local.networking import (
    Endpoint,
    EndpointConditions,
    EndpointPort,
    EndpointSlice,
    Service,
    ServicePort,
    TargetRef,
)

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
SERVICE_NAME = "kubernetes.io/service-name"
HEADLESS = "service.kubernetes.io/headless"
RESERVED = (MANAGED_BY, SERVICE_NAME, HEADLESS)
MOST_ENDPOINTS = 100

Ports = tuple[EndpointPort, ...]


class Wanted(Struct):
    """One slice as it should be; `name` is empty for one that is to be made."""

    ports: Ports
    endpoints: list[Endpoint]
    labels: dict[str, str]
    name: str = ""


class Plan(Struct):
    write: list[Wanted] = field(default_factory=list)
    delete: list[EndpointSlice] = field(default_factory=list)


def decide(
    service: Service, pods: Iterable[Pod], slices: Sequence[EndpointSlice], zones: Mapping[str, str]
) -> Plan:
    labels = slice_labels(service)
    groups = _groups(service, pods, zones)
    plan = Plan()
    spare = [
        piece for piece in slices if tuple(piece.ports or ()) not in groups or piece.address_type != "IPv4"
    ]
    for ports, endpoints in groups.items():
        held = [piece for piece in slices if tuple(piece.ports or ()) == ports and piece not in spare]
        for wanted in _fill(ports, endpoints, held, labels):
            if not wanted.name and spare:
                wanted.name = spare.pop().metadata.name
            plan.write.append(wanted)
        kept = {wanted.name for wanted in plan.write}
        plan.delete += [piece for piece in held if piece.metadata.name not in kept]
    plan.delete += spare
    known = {piece.metadata.name: piece for piece in slices}
    plan.write = [wanted for wanted in plan.write if not _same(wanted, known.get(wanted.name))]
    return plan


def manages(service: Service) -> bool:
    return bool(service.spec.selector) and service.spec.type != "ExternalName"


def slice_labels(service: Service) -> dict[str, str]:
    labels = {key: value for key, value in service.metadata.labels.items() if key not in RESERVED}
    if service.spec.cluster_ip == "None":
        labels[HEADLESS] = ""
    return labels | {SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}


def endpoint_of(service: Service, pod: Pod, zone: str = "") -> Endpoint:
    meta = pod.metadata
    serving = any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)
    terminating = meta.deletion_timestamp is not None
    ready = service.spec.publish_not_ready_addresses or (serving and not terminating)
    named = pod.spec.hostname and pod.spec.subdomain == service.metadata.name
    return Endpoint(
        addresses=(pod.status.pod_ip,),
        conditions=EndpointConditions(ready, serving, terminating),
        hostname=pod.spec.hostname if named else "",
        target_ref=TargetRef("Pod", meta.name, meta.namespace, meta.uid),
        node_name=pod.spec.node_name,
        zone=zone,
    )


def _groups(
    service: Service, pods: Iterable[Pod], zones: Mapping[str, str]
) -> dict[Ports, dict[str, Endpoint]]:
    groups: dict[Ports, dict[str, Endpoint]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if pod.finished or not pod.status.pod_ip:
            continue
        ports = _ports(service, pod)
        if not ports and service.spec.ports:
            continue
        endpoint = endpoint_of(service, pod, zones.get(pod.spec.node_name, ""))
        groups.setdefault(ports, {})[pod.metadata.uid] = endpoint
    return groups or {(): {}}


def _ports(service: Service, pod: Pod) -> Ports:
    found = ((port, _number(port, pod)) for port in service.spec.ports)
    return tuple(
        EndpointPort(port.name, number, port.protocol, port.app_protocol) for port, number in found if number
    )


def _number(port: ServicePort, pod: Pod) -> int:
    """The pod's port behind a service port: itself, a number, or the name of a container's port."""
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


def _fill(
    ports: Ports, endpoints: dict[str, Endpoint], held: Sequence[EndpointSlice], labels: dict[str, str]
) -> list[Wanted]:
    left = dict(endpoints)
    filled = []
    for piece in held:
        stay = [
            left.pop(known.target_ref.uid)
            for known in piece.endpoints or ()
            if known.target_ref is not None and known.target_ref.uid in left
        ]
        filled.append(Wanted(ports, stay, labels, piece.metadata.name))
    fresh = list(left.values())
    for wanted in filled:
        room = MOST_ENDPOINTS - len(wanted.endpoints)
        wanted.endpoints += fresh[:room]
        del fresh[:room]
    while fresh or not filled:
        filled.append(Wanted(ports, fresh[:MOST_ENDPOINTS], labels))
        del fresh[:MOST_ENDPOINTS]
    used = [wanted for wanted in filled if wanted.endpoints]
    return used or filled[:1]


def _same(wanted: Wanted, known: EndpointSlice | None) -> bool:
    return (
        known is not None
        and tuple(known.ports or ()) == wanted.ports
        and (known.endpoints or []) == wanted.endpoints
        and known.metadata.labels == wanted.labels
    )
