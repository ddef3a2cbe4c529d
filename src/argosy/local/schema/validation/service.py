"""Validates Services, and drops the fields that a Service with a new type does not have.

The addresses of a Service are validated twice: before one is allocated, and with the other fields.
"""

from collections.abc import Iterator

from argosy.local.schema.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    unsupported,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_texts
from argosy.local.schema.validation.metadata import map_errors
from argosy.local.schema.validation.names import (
    address_problems,
    label_problems,
    port_name_problems,
    port_problems,
    qualified_name_problems,
    subdomain_problems,
)
from argosy.local.schema.validation.pod import PROTOCOLS

SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
AFFINITIES = ("ClientIP", "None")
TRAFFIC_POLICIES = ("Cluster", "Local")
MAX_AFFINITY_SECONDS = 86400
_NOT_NAMED = "may not be set for ExternalName services"


def service_errors(obj: Json) -> Iterator[FieldError]:
    """Yield all errors of a Service."""
    spec = get_map(obj, "spec")
    kind = get_str(spec, "type")
    if not get_maps(spec, "ports") and kind != "ExternalName" and not is_headless(spec):
        yield required("spec.ports")
    if is_headless(spec) and kind in ("NodePort", "LoadBalancer"):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        yield from _external_name_errors(spec)
    yield from _port_errors(get_maps(spec, "ports"), kind)
    yield from map_errors(spec.get("selector"), "spec.selector")
    yield from _affinity_errors(spec)
    yield from address_errors(spec)
    if kind not in SERVICE_TYPES:
        yield not_supported("spec.type", kind, SERVICE_TYPES)
    yield from _traffic_errors(spec)


def service_change(new: Json, old: Json) -> Iterator[FieldError]:
    """Yield the errors of a change of the cluster IP."""
    after, before = get_map(new, "spec"), get_map(old, "spec")
    if "ExternalName" in (get_str(before, "type"), get_str(after, "type")):
        return
    now, was = get_texts(after, "clusterIPs"), get_texts(before, "clusterIPs")
    if was and not now:
        yield invalid("spec.clusterIPs[0]", None, "primary clusterIP can not be unset")
    elif was and now[0] != was[0]:
        yield invalid("spec.clusterIPs[0]", now, "may not change once set")


def is_headless(spec: Json) -> bool:
    return get_texts(spec, "clusterIPs") == ["None"]


def is_external(spec: Json) -> bool:
    """Return True if a Service is reachable from outside the cluster."""
    kind = get_str(spec, "type")
    return kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def has_node_ports(spec: Json) -> bool:
    return get_str(spec, "type") in ("NodePort", "LoadBalancer")


def address_errors(spec: Json) -> Iterator[FieldError]:
    """Yield the errors of the addresses of a Service, of their families and of the family policy."""
    if get_str(spec, "type") == "ExternalName":
        return
    single, addresses = get_str(spec, "clusterIP"), get_texts(spec, "clusterIPs")
    if single and not addresses:
        yield required("spec.clusterIPs")
    elif single and addresses[0] != single:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    elif addresses and not single:
        yield invalid("spec.clusterIPs", addresses, "must be empty when `clusterIP` is not specified")
    families = get_texts(spec, "ipFamilies")
    for index, family in enumerate(families):
        if family not in FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        if family in families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    policy = spec.get("ipFamilyPolicy")
    yield from unsupported("spec.ipFamilyPolicy", policy, FAMILY_POLICIES)
    if addresses[:1] == ["None"] and len(addresses) > 1:
        yield invalid("spec.clusterIPs", addresses, "'None' must be the first and only value")
    for index, address in enumerate(addresses):
        if (index, address) != (0, "None"):
            yield from invalid_each(f"spec.clusterIPs[{index}]", address, address_problems(address))
    if len(addresses) > 2:
        yield invalid("spec.clusterIPs", addresses, "may only hold up to 2 values")


def drop_by_type(new: Json, old: Json) -> None:
    """Drop fields of the old type from a Service with a new type, unless they were changed too."""
    after, before = get_map(new, "spec"), get_map(old, "spec")
    kind, was = get_str(after, "type"), get_str(before, "type")
    if was != "ExternalName" and kind == "ExternalName":
        if all(after.get(field) == before.get(field) for field in ("clusterIP", "clusterIPs")):
            after.pop("clusterIP", None)
            after.pop("clusterIPs", None)
        _drop_same(after, before, "ipFamilies", "ipFamilyPolicy")
    if has_node_ports(before) and not has_node_ports(after) and node_ports(after) <= node_ports(before):
        for port in get_maps(after, "ports"):
            port.pop("nodePort", None)
    if was == "LoadBalancer" and kind != "LoadBalancer":
        _drop_same(after, before, "allocateLoadBalancerNodePorts", "loadBalancerClass")
    if is_external(before) and not is_external(after):
        _drop_same(after, before, "externalTrafficPolicy")
    if kind != "LoadBalancer" and "loadBalancer" in get_map(new, "status"):
        new["status"] = {**get_map(new, "status"), "loadBalancer": {}}


def node_ports(spec: Json) -> set[object]:
    return {port["nodePort"] for port in get_maps(spec, "ports") if port.get("nodePort")}


def _drop_same(after: Json, before: Json, *fields: str) -> None:
    for field in fields:
        if after.get(field) == before.get(field):
            after.pop(field, None)


def _external_name_errors(spec: Json) -> Iterator[FieldError]:
    """Yield the errors of an ExternalName Service, which has no addresses."""
    for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(field):
            yield forbidden(f"spec.{field}", _NOT_NAMED)
    name = get_str(spec, "externalName").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    else:
        yield from invalid_each("spec.externalName", name, subdomain_problems(name))


def _affinity_errors(spec: Json) -> Iterator[FieldError]:
    affinity = get_str(spec, "sessionAffinity")
    if affinity not in AFFINITIES:
        yield not_supported("spec.sessionAffinity", affinity, AFFINITIES)
    seconds = get_map(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds")
    if affinity == "ClientIP" and isinstance(seconds, int) and not 0 < seconds <= MAX_AFFINITY_SECONDS:
        where = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        yield invalid(where, seconds, f"must be greater than 0 and less than {MAX_AFFINITY_SECONDS}")


def _traffic_errors(spec: Json) -> Iterator[FieldError]:
    kind, external = get_str(spec, "type"), get_str(spec, "externalTrafficPolicy")
    if external and not is_external(spec):
        message = "may only be set for externally-accessible services"
        yield invalid("spec.externalTrafficPolicy", external, message)
    elif external and external not in TRAFFIC_POLICIES:
        yield not_supported("spec.externalTrafficPolicy", external, TRAFFIC_POLICIES)
    internal = spec.get("internalTrafficPolicy")
    yield from unsupported("spec.internalTrafficPolicy", internal, TRAFFIC_POLICIES)
    if kind == "LoadBalancer":
        return
    for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if spec.get(field) is not None:
            yield forbidden(f"spec.{field}", "may only be used when `type` is 'LoadBalancer'")


def _port_errors(ports: list[Json], kind: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        yield from _service_port_errors(port, f"spec.ports[{index}]", names, many=len(ports) > 1)
        if port.get("nodePort") and kind == "ClusterIP":
            yield forbidden(f"spec.ports[{index}].nodePort", "may not be used when `type` is 'ClusterIP'")
    used: set[tuple[object, ...]] = set()
    for index, port in enumerate(ports):
        protocol = port.get("protocol")
        outer = ("outside", protocol, port.get("nodePort"))
        if port.get("nodePort") and outer in used:
            yield duplicate(f"spec.ports[{index}].nodePort", port["nodePort"])
        inner = ("inside", protocol, port.get("port"))
        if inner in used:
            yield duplicate(f"spec.ports[{index}]", port.get("port"))
        used |= {outer, inner}


def _service_port_errors(port: Json, where: str, names: set[str], *, many: bool) -> Iterator[FieldError]:
    name, target, protocol = get_str(port, "name"), port.get("targetPort"), port.get("protocol")
    if not name and many:
        yield required(f"{where}.name")
    elif name:
        yield from invalid_each(f"{where}.name", name, label_problems(name))
        if name in names:
            yield duplicate(f"{where}.name", name)
        names.add(name)
    yield from invalid_each(f"{where}.port", port.get("port"), port_problems(port.get("port")))
    if protocol not in PROTOCOLS:
        yield not_supported(f"{where}.protocol", protocol or "", PROTOCOLS)
    problems = port_name_problems(target) if isinstance(target, str) else port_problems(target)
    yield from invalid_each(f"{where}.targetPort", target, problems)
    if isinstance(own := port.get("appProtocol"), str):
        yield from invalid_each(f"{where}.appProtocol", own, qualified_name_problems(own))
