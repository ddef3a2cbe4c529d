"""Values of table cells that need more than the text at a path."""

from collections.abc import Callable
from datetime import datetime

from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import condition, cut, human_duration, parse_time
from argosy.local.schema.unstructured import get_int, get_map, get_maps, get_str, get_texts, is_integer

_ACCESS_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def at(item: Json, path: str) -> object:
    """Return the value at a path such as `spec.selector`."""
    *steps, last = path.split(".")
    return get_map(item, *steps).get(last)


def format_value(value: object, unset: str = "<unset>") -> str:
    return unset if value is None else str(value)


def size(value: object) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def ready_replicas(item: Json) -> str:
    return f"{get_int(item, 'status', 'readyReplicas')}/{get_int(item, 'spec', 'replicas')}"


def job_status(item: Json) -> str:
    for kind in ("Complete", "Failed"):
        if condition(item, kind) == "True":
            return kind
    if get_map(item, "metadata").get("deletionTimestamp"):
        return "Terminating"
    others = ("Suspended", "FailureTarget", "SuccessCriteriaMet")
    return next((kind for kind in others if condition(item, kind) == "True"), "Running")


def job_completions(item: Json) -> str:
    succeeded, completions = get_int(item, "status", "succeeded"), at(item, "spec.completions")
    if is_integer(completions):
        return f"{succeeded}/{completions}"
    parallelism = get_int(item, "spec", "parallelism")
    return f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"


def job_duration(item: Json, now: datetime) -> str:
    started, ended = parse_time(at(item, "status.startTime")), parse_time(at(item, "status.completionTime"))
    return "" if started is None else human_duration(((ended or now) - started).total_seconds())


def cluster_ip(item: Json) -> str:
    return next(iter(get_texts(item, "spec", "clusterIPs")), "<none>")


def service_ports(item: Json) -> str:
    shown_ports = []
    for port in get_maps(item, "spec", "ports"):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown_ports.append(f"{port.get('port')}{node_port}/{port.get('protocol')}")
    return ",".join(shown_ports) or "<none>"


def external_address(item: Json) -> str:
    external = get_texts(item, "spec", "externalIPs")
    match get_str(item, "spec", "type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or "<none>"
        case "LoadBalancer":
            balanced = load_balancer(item)
            return ",".join([*([balanced] if balanced else []), *external]) or "<pending>"
        case "ExternalName":
            return get_str(item, "spec", "externalName")
    return "<unknown>"


def load_balancer(item: Json) -> str:
    ingress = get_maps(item, "status", "loadBalancer", "ingress")
    return ",".join(sorted({get_str(entry, "ip") or get_str(entry, "hostname") for entry in ingress} - {""}))


def slice_ports(item: Json) -> str:
    return cut([str(port.get("port") or port.get("name") or "*") for port in get_maps(item, "ports")])


def slice_addresses(item: Json) -> str:
    return cut(
        [address for endpoint in get_maps(item, "endpoints") for address in get_texts(endpoint, "addresses")]
    )


def node_status(item: Json) -> str:
    ready = condition(item, "Ready")
    status = "Unknown" if not ready else "Ready" if ready == "True" else "NotReady"
    return f"{status},SchedulingDisabled" if at(item, "spec.unschedulable") else status


def node_roles(item: Json) -> str:
    labels, prefix = get_map(item, "metadata", "labels"), "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    roles.add(str(labels.get("kubernetes.io/role", "")))
    return ",".join(sorted(roles - {""})) or "<none>"


def node_kernel(item: Json) -> str:
    info = get_map(item, "status", "nodeInfo")
    kernel, architecture = get_str(info, "kernelVersion") or "<unknown>", get_str(info, "architecture")
    return f"{kernel} ({architecture})" if architecture else kernel


def node_address(kind: str) -> Callable[[Json], str]:
    def read(item: Json) -> str:
        addresses = get_maps(item, "status", "addresses")
        return next(
            (get_str(address, "address") for address in addresses if address.get("type") == kind), "<none>"
        )

    return read


def event_target(item: Json) -> Json:
    """Return the object of an event; in this and other fields, both groups of events differ in names."""
    return get_map(item, "regarding") or get_map(item, "involvedObject")


def event_object(item: Json) -> str:
    kind, target = get_str(event_target(item), "kind").lower(), get_str(event_target(item), "name")
    return f"{kind}/{target}" if target else kind


def event_times(item: Json) -> tuple[object, object]:
    """Return when an event was seen first and last."""
    first = item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp") or item.get("eventTime")
    if series := get_map(item, "series"):
        return first, series.get("lastObservedTime")
    return first, item.get("lastTimestamp") or item.get("deprecatedLastTimestamp") or first


def event_count(item: Json) -> int:
    if series := get_map(item, "series"):
        return get_int(series, "count")
    return get_int(item, "count") or get_int(item, "deprecatedCount") or 1


def event_source(item: Json) -> str:
    source = get_map(item, "source") or get_map(item, "deprecatedSource")
    component, host = get_str(source, "component"), get_str(source, "host")
    if not component:
        component = get_str(item, "reportingComponent") or get_str(item, "reportingController")
        host = get_str(item, "reportingInstance")
    return f"{component}, {host}" if host else component


def subjects(item: Json, kind: str) -> str:
    named = [subject for subject in get_maps(item, "subjects") if subject.get("kind") == kind]
    prefix = kind == "ServiceAccount"
    return ", ".join(
        f"{get_str(s, 'namespace')}/{get_str(s, 'name')}" if prefix else get_str(s, "name") for s in named
    )


def quota(item: Json, *, limits: bool) -> str:
    used, hard = get_map(item, "status", "used"), sorted(get_map(item, "status", "hard").items())
    return ", ".join(
        f"{resource}: {used.get(resource, '0')}/{amount}"
        for resource, amount in hard
        if resource.startswith("limits.") is limits
    )


def access_modes(item: Json, field: str) -> str:
    modes = get_texts(item, field, "accessModes")
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in modes)


def storage_phase(item: Json) -> str:
    return "Terminating" if at(item, "metadata.deletionTimestamp") else get_str(item, "status", "phase")


def is_bound(item: Json) -> bool:
    return bool(at(item, "spec.volumeName"))


def claim_capacity(item: Json) -> str:
    return format_value(at(item, "status.capacity.storage"), "0") if is_bound(item) else ""
