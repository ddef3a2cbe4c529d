"""Allocates cluster IPs and node ports of Services."""

import ipaddress
import secrets
from collections.abc import Iterable, Iterator

from argosy.local.apiserver.api import SERVICE_RANGE, Call
from argosy.local.apiserver.options import invalid_error
from argosy.local.apiserver.status import internal
from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_map, get_maps, get_str, get_strings
from argosy.local.schema.validation.service import address_errors, has_node_ports, node_ports

KUBERNETES_ADDRESS = "10.96.0.1"
_NODE_PORTS = range(30000, 32768)


def allocate_new(call: Call, service: Json) -> None:
    """Allocate the address and the node ports that the type of a new Service needs."""
    spec = ensure(service, "spec")
    if get_str(spec, "clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if get_str(spec, "type") == "ExternalName":
        return
    _choose_families(service, None)
    _allocate_address(call, service)
    if has_node_ports(spec):
        _node_ports(call, service, None)


def allocate_changed(call: Call, service: Json, old: Json) -> None:
    """Keep the allocations of a changed Service, and add those that its new type needs."""
    spec, before = ensure(service, "spec"), get_map(old, "spec")
    named, was_named = (get_str(item, "type") == "ExternalName" for item in (spec, before))
    if not named and not was_named:
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and before.get(field):
                spec[field] = before[field]
    _match_addresses(spec, before)
    if named:
        return
    _choose_families(service, old)
    if was_named:
        _allocate_address(call, service)
    if has_node_ports(spec):
        _node_ports(call, service, old)


def _match_addresses(spec: Json, before: Json) -> None:
    """Set clusterIPs to a changed clusterIP."""
    address, addresses = get_str(spec, "clusterIP"), get_strings(spec, "clusterIPs")
    was_address, was_addresses = get_str(before, "clusterIP"), get_strings(before, "clusterIPs")
    if was_addresses and not addresses and address == was_address:
        spec["clusterIPs"] = addresses = was_addresses
    if address == was_address or addresses != was_addresses:
        return
    if address:
        spec["clusterIPs"] = [address]
    else:
        spec.pop("clusterIPs", None)


def _choose_families(service: Json, old: Json | None) -> None:
    """Set the IP families: only IPv4 is supported, but a Service without addresses can have both."""
    spec, before = get_map(service, "spec"), get_map(old, "spec")
    is_unrestricted = get_str(spec, "clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        default = "RequireDualStack" if is_unrestricted else "SingleStack"
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or default
    policy = get_str(spec, "ipFamilyPolicy")
    _raise_invalid(service, address_errors(spec))
    families, had = get_strings(spec, "ipFamilies"), get_strings(before, "ipFamilies")
    if policy == "SingleStack" and families == had:
        families = families[:1]
    _raise_invalid(service, _policy_errors(policy, families, had))
    if not is_unrestricted:
        _raise_invalid(service, _family_errors(policy, families))
    families = families or ["IPv4"]
    if is_unrestricted and policy != "SingleStack" and len(families) == 1:
        families = [*families, "IPv6" if families == ["IPv4"] else "IPv4"]
    spec["ipFamilies"] = families


def _raise_invalid(service: Json, errors: Iterable[FieldError]) -> None:
    if listed := list(errors):
        raise invalid_error("", "Service", get_str(service, "metadata", "name"), listed)


def _policy_errors(policy: str, families: list[str], had: list[str]) -> Iterator[FieldError]:
    if policy == "SingleStack" and len(families) == 2:
        message = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        yield invalid("spec.ipFamilyPolicy", policy, message)
    elif policy != "SingleStack" and len(families) == 1 and len(had) == 2:
        message = "must be 'SingleStack' to release the secondary IP family"
        yield invalid("spec.ipFamilyPolicy", policy, message)


def _family_errors(policy: str, families: list[str]) -> Iterator[FieldError]:
    if policy == "RequireDualStack":
        message = "this cluster is not configured for dual-stack services"
        yield invalid("spec.ipFamilyPolicy", policy, message)
    for index, family in enumerate(families):
        if family != "IPv4":
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")


def _allocate_address(call: Call, service: Json) -> None:
    spec = get_map(service, "spec")
    wanted = next(iter(get_strings(spec, "clusterIPs")), "")
    if wanted == "None":
        return
    if wanted:
        _check(call, service, wanted)
    else:
        wanted = _free_address(call)
    spec["clusterIP"], spec["clusterIPs"] = wanted, [wanted]


def _check(call: Call, service: Json, wanted: str) -> None:
    inside = ipaddress.ip_address(wanted) in ipaddress.ip_network(SERVICE_RANGE)
    problem = ""
    if not inside:
        problem = (
            f"failed to allocate IP {wanted}: the provided IP ({wanted}) is not in the valid range. "
            f"The range of valid IPs is {SERVICE_RANGE}"
        )
    elif wanted in _used_addresses(call):
        problem = f"failed to allocate IP {wanted}: provided IP is already allocated"
    if problem:
        error = invalid("spec.clusterIPs", [wanted], problem)
        raise invalid_error("", "Service", get_str(service, "metadata", "name"), [error])


def _free_address(call: Call) -> str:
    network = ipaddress.ip_network(SERVICE_RANGE)
    taken = {*_used_addresses(call), KUBERNETES_ADDRESS}
    for _ in range(10_000):
        address = str(network[secrets.randbelow(network.num_addresses - 2) + 1])
        if address not in taken:
            return address
    raise internal("failed to allocate a serviceIP: range is full")


def _used_addresses(call: Call) -> set[str]:
    return {get_str(service, "spec", "clusterIP") for service in _services(call)}


def _services(call: Call) -> Iterable[Json]:
    for stored in call.api.store.collection("services").listed(None):
        yield stored.decoded()


def _node_ports(call: Call, service: Json, old: Json | None) -> None:
    """Allocate node ports; a port keeps the node port of the old port with its name, if that is free."""
    spec, before = get_map(service, "spec"), get_map(old, "spec")
    kept: dict[str, object] = {}
    if has_node_ports(before):
        used = node_ports(before) & node_ports(spec)
        named = {get_str(port, "name"): port.get("nodePort") for port in get_maps(before, "ports")}
        kept = {name: number for name, number in named.items() if number not in used}
    taken = {port.get("nodePort") for other in _services(call) for port in get_maps(other, "spec", "ports")}
    for port in get_maps(spec, "ports"):
        if not port.get("nodePort"):
            port["nodePort"] = kept.get(get_str(port, "name")) or _free_port(taken)
        taken.add(port["nodePort"])


def _free_port(taken: set[object]) -> int:
    tries = (secrets.choice(_NODE_PORTS) for _ in range(100_000))
    return next(number for number in tries if number not in taken)
