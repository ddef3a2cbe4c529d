"""Cluster addresses and node ports of services: handed out once each, kept while the service lives."""

import ipaddress
import secrets
from collections.abc import Iterable, Iterator

from argosy.local.apiserver.api import SERVICE_RANGE, Call
from argosy.local.apiserver.options import invalid_error
from argosy.local.apiserver.status import internal
from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, part, parts, strings, text
from argosy.local.schema.validation.service import address_errors, has_node_ports, node_ports

KUBERNETES_ADDRESS = "10.96.0.1"
_NODE_PORTS = range(30000, 32768)


def begin_create(call: Call, service: Json, *, dry: bool) -> None:
    """Give a new service the addresses and node ports that its type asks for."""
    spec = ensure(service, "spec")
    if text(spec, "clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if text(spec, "type") == "ExternalName":
        return
    _choose_families(service, None)
    _give_address(call, service, dry=dry)
    if has_node_ports(spec):
        _node_ports(call, service, None)


def begin_update(call: Call, service: Json, old: Json, *, dry: bool) -> None:
    """Keep what a changed service was given, and give it what its new type asks for."""
    spec, before = ensure(service, "spec"), part(old, "spec")
    named, was_named = (text(one, "type") == "ExternalName" for one in (spec, before))
    if not named and not was_named:
        for field in ("clusterIP", "clusterIPs"):
            if not spec.get(field) and before.get(field):
                spec[field] = before[field]
    _match_addresses(spec, before)
    if named:
        return
    _choose_families(service, old)
    if was_named:
        _give_address(call, service, dry=dry)
    if has_node_ports(spec):
        _node_ports(call, service, old)


def _match_addresses(spec: Json, before: Json) -> None:
    """Who changes the one address means the list of addresses too."""
    address, addresses = text(spec, "clusterIP"), strings(spec, "clusterIPs")
    was_address, was_addresses = text(before, "clusterIP"), strings(before, "clusterIPs")
    if was_addresses and not addresses and address == was_address:
        spec["clusterIPs"] = addresses = was_addresses
    if address == was_address or addresses != was_addresses:
        return
    if address:
        spec["clusterIPs"] = [address]
    else:
        spec.pop("clusterIPs", None)


def _choose_families(service: Json, old: Json | None) -> None:
    """Families of addresses: only IPv4 is given here, and what has no address may be of both."""
    spec, before = part(service, "spec"), part(old, "spec")
    open_to_all = text(spec, "clusterIP") == "None" and not spec.get("selector")
    if spec.get("ipFamilyPolicy") is None:
        default = "RequireDualStack" if open_to_all else "SingleStack"
        spec["ipFamilyPolicy"] = before.get("ipFamilyPolicy") or default
    policy = text(spec, "ipFamilyPolicy")
    _refuse(service, address_errors(spec))
    families, had = strings(spec, "ipFamilies"), strings(before, "ipFamilies")
    if policy == "SingleStack" and families == had:
        families = families[:1]
    _refuse(service, _policy_errors(policy, families, had))
    if not open_to_all:
        _refuse(service, _family_errors(policy, families))
    families = families or ["IPv4"]
    if open_to_all and policy != "SingleStack" and len(families) == 1:
        families = [*families, "IPv6" if families == ["IPv4"] else "IPv4"]
    spec["ipFamilies"] = families


def _refuse(service: Json, errors: Iterable[FieldError]) -> None:
    if found := list(errors):
        raise invalid_error("", "Service", text(service, "metadata", "name"), found)


def _policy_errors(policy: str, families: list[str], had: list[str]) -> Iterator[FieldError]:
    if policy == "SingleStack" and len(families) == 2:
        told = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified"
        yield invalid("spec.ipFamilyPolicy", policy, told)
    elif policy != "SingleStack" and len(families) == 1 and len(had) == 2:
        told = "must be 'SingleStack' to release the secondary IP family"
        yield invalid("spec.ipFamilyPolicy", policy, told)


def _family_errors(policy: str, families: list[str]) -> Iterator[FieldError]:
    if policy == "RequireDualStack":
        told = "this cluster is not configured for dual-stack services"
        yield invalid("spec.ipFamilyPolicy", policy, told)
    for index, family in enumerate(families):
        if family != "IPv4":
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")


def _give_address(call: Call, service: Json, *, dry: bool) -> None:
    spec = part(service, "spec")
    wanted = next(iter(strings(spec, "clusterIPs")), "")
    if wanted == "None":
        return
    if wanted:
        _check(call, service, wanted)
    else:
        wanted = _free(call)
        if not dry:
            _check_owner(text(service, "metadata", "name"), wanted)
    spec["clusterIP"], spec["clusterIPs"] = wanted, [wanted]


def _check_owner(name: str, address: str) -> None:
    """Kubernetes keeps an object for each address, which names its service, before it looks at that one."""
    problem = "Required value" if not name else ""
    for character in ("/", "%"):
        if character in name:
            problem = f"Invalid value: \"{name}\": may not contain '{character}'"
    if name in (".", ".."):
        problem = f"Invalid value: \"{name}\": may not be '{name}'"
    if problem:
        held = f'IPAddress.networking.k8s.io "{address}"'
        told = f"failed to allocate IP: {held} is invalid: spec.parentRef.name: {problem}"
        raise invalid_error("", "Service", name, [invalid("spec.clusterIPs", [""], told)])


def _check(call: Call, service: Json, wanted: str) -> None:
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


def _node_ports(call: Call, service: Json, old: Json | None) -> None:
    """A port keeps the node port that one of its name had, unless another port took that."""
    spec, before = part(service, "spec"), part(old, "spec")
    kept: dict[str, object] = {}
    if has_node_ports(before):
        used = node_ports(before) & node_ports(spec)
        named = {text(port, "name"): port.get("nodePort") for port in parts(before, "ports")}
        kept = {name: number for name, number in named.items() if number not in used}
    taken = {port.get("nodePort") for one in _services(call) for port in parts(one, "spec", "ports")}
    for port in parts(spec, "ports"):
        if not port.get("nodePort"):
            port["nodePort"] = kept.get(text(port, "name")) or _free_port(taken)
        taken.add(port["nodePort"])


def _free_port(taken: set[object]) -> int:
    tries = (secrets.choice(_NODE_PORTS) for _ in range(100_000))
    return next(number for number in tries if number not in taken)
