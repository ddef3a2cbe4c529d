"""Cluster addresses and node ports of services: handed out once each, kept while the service lives."""

import ipaddress
import secrets
from collections.abc import Iterable

from argosy.local.apiserver.api import SERVICE_RANGE, Call
from argosy.local.apiserver.objects import ensure
from argosy.local.apiserver.options import invalid_error
from argosy.local.apiserver.status import internal
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.names import address_problems
from argosy.local.schema.reading import parts, strings, text

KUBERNETES_ADDRESS = "10.96.0.1"
_NODE_PORTS = range(30000, 32768)


def admit_service(call: Call, service: Json, old: Json | None) -> None:
    """Give a service the addresses that its type asks for."""
    spec = ensure(service, "spec")
    kind = text(spec, "type") or "ClusterIP"
    if kind == "ExternalName":
        for field in ("clusterIP", "clusterIPs"):
            spec.pop(field, None)
        return
    _cluster_address(call, service, spec, old)
    if kind in ("NodePort", "LoadBalancer"):
        _node_ports(call, spec, old)
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    ensure(service, "status").setdefault("loadBalancer", {})


def _cluster_address(call: Call, service: Json, spec: Json, old: Json | None) -> None:
    before = text(old or {}, "spec", "clusterIP")
    wanted = text(spec, "clusterIP") or next(iter(strings(spec, "clusterIPs")), "")
    if not wanted and before and text(old or {}, "spec", "type") != "ExternalName":
        wanted = before
    if wanted == "None" or (wanted and wanted == before):
        pass
    elif wanted:
        _check(call, service, wanted)
    else:
        wanted = _free(call)
        _check_owner(text(service, "metadata", "name"), wanted)
    spec["clusterIP"], spec["clusterIPs"] = wanted, [wanted]


def _check_owner(name: str, address: str) -> None:
    """Kubernetes keeps an object for each address, which names its service, before it looks at that one."""
    problem = "Required value" if not name else ""
    for part in ("/", "%"):
        if part in name:
            problem = f"Invalid value: \"{name}\": may not contain '{part}'"
    if name in (".", ".."):
        problem = f"Invalid value: \"{name}\": may not be '{name}'"
    if problem:
        held = f'IPAddress.networking.k8s.io "{address}"'
        told = f"failed to allocate IP: {held} is invalid: spec.parentRef.name: {problem}"
        raise invalid_error("", "Service", name, [invalid("spec.clusterIPs", [""], told)])


def _check(call: Call, service: Json, wanted: str) -> None:
    if problems := address_problems(wanted):
        errors = [invalid("spec.clusterIPs[0]", wanted, problem) for problem in problems]
        raise invalid_error("", "Service", text(service, "metadata", "name"), errors)
    inside = ipaddress.ip_address(wanted) in ipaddress.ip_network(SERVICE_RANGE)
    problem = ""
    if not inside:
        problem = (
            f"failed to allocate IP {wanted}: the provided IP ({wanted}) is not in the valid range. "
            f"The range of valid IPs is {SERVICE_RANGE}"
        )
    elif wanted in _taken(call):
        problem = f"failed to allocate IP {wanted}: provided IP is already allocated"
    if problem:
        error = invalid("spec.clusterIPs", [wanted], problem)
        raise invalid_error("", "Service", text(service, "metadata", "name"), [error])


def _free(call: Call) -> str:
    network = ipaddress.ip_network(SERVICE_RANGE)
    taken = {*_taken(call), KUBERNETES_ADDRESS}
    for _ in range(10_000):
        address = str(network[secrets.randbelow(network.num_addresses - 2) + 1])
        if address not in taken:
            return address
    raise internal("failed to allocate a serviceIP: range is full")


def _taken(call: Call) -> set[str]:
    return {text(service, "spec", "clusterIP") for service in _services(call)}


def _services(call: Call) -> Iterable[Json]:
    for stored in call.api.store.collection("services").listed(None):
        yield stored.decoded()


def _node_ports(call: Call, spec: Json, old: Json | None) -> None:
    kept = {text(port, "name"): port.get("nodePort") for port in parts(old or {}, "spec", "ports")}
    taken = {port.get("nodePort") for service in _services(call) for port in parts(service, "spec", "ports")}
    for port in parts(spec, "ports"):
        if port.get("nodePort"):
            continue
        number = kept.get(text(port, "name"))
        if not number:
            number = next(n for n in (secrets.choice(_NODE_PORTS) for _ in range(100_000)) if n not in taken)
        port["nodePort"] = number
        taken.add(number)
