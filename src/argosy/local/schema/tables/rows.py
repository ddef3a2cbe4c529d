"""The rows of built-in kinds in tables: a function per kind, with cells in the order of its columns."""

from collections.abc import Callable
from datetime import datetime

from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import (
    age,
    condition,
    containers,
    created,
    cut,
    default_name,
    human_duration,
    labels_text,
    name,
    parse_time,
    selector_text,
)
from argosy.local.schema.unstructured import is_integer, number, part, parts, text, texts


def replicas(item: Json, now: datetime) -> list[object]:
    spec = part(item, "spec")
    names, images = containers(part(spec, "template", "spec"))
    selector = spec.get("selector")
    shown = selector_text(selector) if item.get("kind") != "ReplicationController" else labels_text(selector)
    return [
        name(item),
        number(spec, "replicas"),
        number(item, "status", "replicas"),
        number(item, "status", "readyReplicas"),
        created(item, now),
        names,
        images,
        shown,
    ]


def daemon_set(item: Json, now: datetime) -> list[object]:
    template = part(item, "spec", "template", "spec")
    counts = (
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    )
    return [
        name(item),
        *(number(item, "status", count) for count in counts),
        labels_text(template.get("nodeSelector")),
        created(item, now),
        *containers(template),
        selector_text(part(item, "spec").get("selector")),
    ]


def deployment(item: Json, now: datetime) -> list[object]:
    return [
        name(item),
        f"{number(item, 'status', 'readyReplicas')}/{number(item, 'spec', 'replicas')}",
        number(item, "status", "updatedReplicas"),
        number(item, "status", "availableReplicas"),
        created(item, now),
        *containers(part(item, "spec", "template", "spec")),
        selector_text(part(item, "spec").get("selector")),
    ]


def stateful_set(item: Json, now: datetime) -> list[object]:
    ready = f"{number(item, 'status', 'readyReplicas')}/{number(item, 'spec', 'replicas')}"
    return [name(item), ready, created(item, now), *containers(part(item, "spec", "template", "spec"))]


def job(item: Json, now: datetime) -> list[object]:
    spec, status = part(item, "spec"), part(item, "status")
    succeeded = number(status, "succeeded")
    if is_integer(spec.get("completions")):
        completions = f"{succeeded}/{spec['completions']}"
    else:
        parallelism = number(spec, "parallelism")
        completions = f"{succeeded}/1 of {parallelism}" if parallelism > 1 else f"{succeeded}/1"
    started, ended = parse_time(status.get("startTime")), parse_time(status.get("completionTime"))
    duration = "" if started is None else human_duration(((ended or now) - started).total_seconds())
    return [
        name(item),
        _job_status(item),
        completions,
        duration,
        created(item, now),
        *containers(part(spec, "template", "spec")),
        selector_text(spec.get("selector")),
    ]


def _job_status(item: Json) -> str:
    if condition(item, "Complete") == "True":
        return "Complete"
    if condition(item, "Failed") == "True":
        return "Failed"
    if part(item, "metadata").get("deletionTimestamp"):
        return "Terminating"
    for kind in ("Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if condition(item, kind) == "True":
            return kind
    return "Running"


def cron_job(item: Json, now: datetime) -> list[object]:
    spec, status = part(item, "spec"), part(item, "status")
    last = status.get("lastScheduleTime")
    suspend = spec.get("suspend")
    active = status.get("active")
    job = part(spec, "jobTemplate", "spec")
    return [
        name(item),
        text(spec, "schedule"),
        text(spec, "timeZone") or "<none>",
        "<unset>" if suspend is None else str(suspend),
        len(active) if isinstance(active, list) else 0,
        age(last, now) if last else "<none>",
        created(item, now),
        *containers(part(job, "template", "spec")),
        selector_text(job.get("selector")),
    ]


def service(item: Json, now: datetime) -> list[object]:
    spec = part(item, "spec")
    ports = [
        f"{port.get('port')}:{port['nodePort']}/{port.get('protocol')}"
        if port.get("nodePort")
        else f"{port.get('port')}/{port.get('protocol')}"
        for port in parts(spec, "ports")
    ]
    addresses = texts(spec, "clusterIPs")
    return [
        name(item),
        text(spec, "type"),
        addresses[0] if addresses else "<none>",
        _external_address(item),
        ",".join(ports) or "<none>",
        created(item, now),
        labels_text(spec.get("selector")),
    ]


def _external_address(item: Json) -> str:
    spec = part(item, "spec")
    external = texts(spec, "externalIPs")
    match text(spec, "type"):
        case "ClusterIP" | "NodePort":
            return ",".join(external) or "<none>"
        case "LoadBalancer":
            balanced = _balanced(item)
            return ",".join([*([balanced] if balanced else []), *external]) or "<pending>"
        case "ExternalName":
            return text(spec, "externalName")
    return "<unknown>"


def _balanced(item: Json) -> str:
    found = {text(i, "ip") or text(i, "hostname") for i in parts(item, "status", "loadBalancer", "ingress")}
    return ",".join(sorted(found - {""}))


def ingress(item: Json, now: datetime) -> list[object]:
    spec = part(item, "spec")
    hosts = [text(rule, "host") for rule in parts(spec, "rules") if rule.get("host")]
    return [
        name(item),
        text(spec, "ingressClassName") or "<none>",
        cut(hosts, empty="*"),
        _balanced(item),
        "80, 443" if spec.get("tls") else "80",
        created(item, now),
    ]


def ingress_class(item: Json, now: datetime) -> list[object]:
    spec = part(item, "spec")
    parameters = part(spec, "parameters")
    shown = "<none>"
    if parameters:
        group = text(parameters, "apiGroup")
        shown = f"{text(parameters, 'kind')}{'.' + group if group else ''}/{text(parameters, 'name')}"
    marked = default_name(item, "ingressclass.kubernetes.io/is-default-class")
    return [marked, text(spec, "controller"), shown, created(item, now)]


def endpoints(item: Json, now: datetime) -> list[object]:
    found: list[str] = []
    for subset in parts(item, "subsets"):
        addresses = [text(a, "ip") for a in parts(subset, "addresses")]
        ports = parts(subset, "ports")
        if not ports:
            found += addresses
        for port in ports:
            found += [
                f"[{address}]:{port.get('port')}" if ":" in address else f"{address}:{port.get('port')}"
                for address in addresses
            ]
    none = "" if item.get("subsets") else "<none>"
    return [name(item), cut(found, empty=none), created(item, now)]


def endpoint_slice(item: Json, now: datetime) -> list[object]:
    ports = [str(port.get("port") or port.get("name") or "*") for port in parts(item, "ports")]
    addresses = [address for endpoint in parts(item, "endpoints") for address in texts(endpoint, "addresses")]
    return [name(item), text(item, "addressType"), cut(ports), cut(addresses), created(item, now)]


def node(item: Json, now: datetime) -> list[object]:
    ready = condition(item, "Ready")
    status = ["Unknown" if not ready else "Ready" if ready == "True" else "NotReady"]
    if part(item, "spec").get("unschedulable"):
        status.append("SchedulingDisabled")
    info = part(item, "status", "nodeInfo")
    kernel = text(info, "kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name(item),
        ",".join(status),
        ",".join(_roles(part(item, "metadata", "labels"))) or "<none>",
        created(item, now),
        text(info, "kubeletVersion"),
        _address(item, "InternalIP"),
        _address(item, "ExternalIP"),
        text(info, "osImage") or "<unknown>",
        kernel,
        text(info, "containerRuntimeVersion") or "<unknown>",
    ]


def _roles(labels: Json) -> list[str]:
    prefix = "node-role.kubernetes.io/"
    found = {key.removeprefix(prefix) for key in labels if key.startswith(prefix)}
    found.add(str(labels.get("kubernetes.io/role", "")))
    return sorted(found - {""})


def _address(item: Json, type: str) -> str:
    addresses = parts(item, "status", "addresses")
    return next((text(a, "address") for a in addresses if a.get("type") == type), "<none>")


def event(item: Json, now: datetime) -> list[object]:
    """The row of an event of either group; their fields have different names."""
    regarding = part(item, "regarding") or part(item, "involvedObject")
    series = part(item, "series")
    first = item.get("firstTimestamp") or item.get("deprecatedFirstTimestamp") or item.get("eventTime")
    last = item.get("lastTimestamp") or item.get("deprecatedLastTimestamp") or first
    count = number(item, "count") or number(item, "deprecatedCount") or 1
    if series:
        last, count = series.get("lastObservedTime"), number(series, "count")
    kind, target = text(regarding, "kind").lower(), text(regarding, "name")
    return [
        age(last, now),
        text(item, "type"),
        text(item, "reason"),
        f"{kind}/{target}" if target else kind,
        text(regarding, "fieldPath"),
        _source(item),
        (text(item, "message") or text(item, "note")).strip(),
        age(first, now),
        count,
        name(item),
    ]


def _source(item: Json) -> str:
    source = part(item, "source") or part(item, "deprecatedSource")
    component = text(source, "component")
    host = text(source, "host")
    if not component:
        component = text(item, "reportingComponent") or text(item, "reportingController")
        host = text(item, "reportingInstance")
    return f"{component}, {host}" if host else component


def binding(item: Json, now: datetime) -> list[object]:
    subjects = parts(item, "subjects")
    users = [text(s, "name") for s in subjects if s.get("kind") == "User"]
    groups = [text(s, "name") for s in subjects if s.get("kind") == "Group"]
    accounts = [
        f"{text(s, 'namespace')}/{text(s, 'name')}" for s in subjects if s.get("kind") == "ServiceAccount"
    ]
    role = f"{text(item, 'roleRef', 'kind')}/{text(item, 'roleRef', 'name')}"
    return [name(item), role, created(item, now), ", ".join(users), ", ".join(groups), ", ".join(accounts)]


def quota(item: Json, now: datetime) -> list[object]:
    used = part(item, "status", "used")
    requests: list[str] = []
    limits: list[str] = []
    for resource, hard in sorted(part(item, "status", "hard").items()):
        (limits if resource.startswith("limits.") else requests).append(
            f"{resource}: {used.get(resource, '0')}/{hard}"
        )
    return [name(item), ", ".join(requests), ", ".join(limits), created(item, now)]


def count_of(*path: str) -> Callable[[Json], int]:
    def count(item: Json) -> int:
        found = part(item, *path[:-1]).get(path[-1])
        return len(found) if isinstance(found, list | dict) else 0

    return count


def simple(*cells: Callable[[Json], object]) -> Callable[[Json, datetime], list[object]]:
    """A row of name, cells and age, which most kinds have."""
    return lambda item, now: [name(item), *(cell(item) for cell in cells), created(item, now)]


def text_of(*path: str, empty: str = "") -> Callable[[Json], str]:
    return lambda item: text(item, *path) or empty


def amount_of(*path: str) -> Callable[[Json], str]:
    return lambda item: str(part(item, *path[:-1]).get(path[-1], "N/A"))


def data_count(item: Json) -> int:
    return count_of("data")(item) + count_of("binaryData")(item)


def priority(item: Json, now: datetime) -> list[object]:
    default = item.get("globalDefault", False)
    return [name(item), number(item, "value"), default, created(item, now), text(item, "preemptionPolicy")]


def revision(item: Json, now: datetime) -> list[object]:
    owners = parts(item, "metadata", "ownerReferences")
    owner = next((o for o in owners if o.get("controller")), None)
    shown = "<none>"
    if owner is not None:
        group = text(owner, "apiVersion").rpartition("/")[0]
        kind = text(owner, "kind").lower() + (f".{group}" if group else "")
        shown = f"{kind}/{text(owner, 'name')}"
    return [name(item), shown, number(item, "revision"), created(item, now)]


def pod_template(item: Json, now: datetime) -> list[object]:  # noqa: ARG001 - the shape every row function has
    template = part(item, "template")
    labels = labels_text(part(template, "metadata").get("labels"))
    return [name(item), *containers(part(template, "spec")), labels]


def autoscaler(item: Json, now: datetime) -> list[object]:
    spec = part(item, "spec")
    target = part(spec, "scaleTargetRef")
    minimum = spec.get("minReplicas")
    return [
        name(item),
        f"{text(target, 'kind')}/{text(target, 'name')}",
        _metrics(item),
        "<unset>" if minimum is None else str(minimum),
        number(spec, "maxReplicas"),
        number(item, "status", "currentReplicas"),
        created(item, now),
    ]


def _metrics(item: Json) -> str:
    """Current and target values of resource metrics; other metrics are not shown."""
    shown: list[str] = []
    current = parts(item, "status", "currentMetrics")
    for index, metric in enumerate(parts(item, "spec", "metrics")):
        source = part(metric, "resource") or part(metric, "containerResource")
        status = current[index] if index < len(current) else {}
        found = part(part(status, "resource") or part(status, "containerResource"), "current")
        target = part(source, "target")
        if "averageValue" in target:
            values = f"{found.get('averageValue', '<unknown>')}/{target['averageValue']}"
        else:
            have = f"{found['averageUtilization']}%" if "averageUtilization" in found else "<unknown>"
            want = f"{target['averageUtilization']}%" if "averageUtilization" in target else "<auto>"
            values = f"{have}/{want}"
        shown.append(f"{text(source, 'name')}: {values}" if source else "<unknown type>")
    if len(shown) > 2:
        return f"{', '.join(shown[:2])} + {len(shown) - 2} more..."
    return ", ".join(shown) or "<none>"
