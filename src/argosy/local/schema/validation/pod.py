"""Validates pods and pod templates."""

from collections.abc import Iterator, Sequence
from typing import cast

from argosy.local.schema.codec.quantity import value_of
from argosy.local.schema.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_str
from argosy.local.schema.validation.containers import (
    container_part_errors,
    field_source_errors,
    node_affinity_errors,
    security_errors,
)
from argosy.local.schema.validation.metadata import map_errors
from argosy.local.schema.validation.names import (
    env_name_problems,
    is_label,
    is_qualified_name,
    is_variable_name,
    label_problems,
    port_name_problems,
    port_problems,
    qualified_name_problems,
    subdomain_problems,
)
from argosy.local.schema.validation.sysctls import sysctl_errors
from argosy.local.schema.validation.volumes import mount_errors, source_errors

RESTART_POLICIES = ("Always", "OnFailure", "Never")
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
PROTOCOLS = ("SCTP", "TCP", "UDP")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
STANDARD_RESOURCES = ("cpu", "memory", "ephemeral-storage")
MUST_HAVE_ONE_SOURCE = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
)
_UPDATABLE = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` "
    "(allow it to be set to 1 if it was previously negative)"
)


def get_list(owner: Json, field: str) -> Sequence[Json]:
    """Return the objects of a list, which decoding has checked to contain nothing else."""
    return cast("Sequence[Json]", owner.get(field) or ())


def pod_spec_errors(spec: Json, path: str = "spec") -> Iterator[FieldError]:
    """Yield all errors of a pod spec."""
    volumes = get_list(spec, "volumes")
    volume_names: set[object] = set()
    if volumes:
        yield from _volume_errors(volumes, f"{path}.volumes", volume_names)
    containers = get_list(spec, "containers")
    if not containers:
        yield required(f"{path}.containers")
    names: set[object] = set()
    yield from _container_list_errors(containers, f"{path}.containers", volume_names, names)
    if "initContainers" in spec:
        yield from _container_list_errors(
            get_list(spec, "initContainers"), f"{path}.initContainers", volume_names, names, init=True
        )
    policy = spec.get("restartPolicy")
    if not policy:
        yield required(f"{path}.restartPolicy")
    elif policy not in RESTART_POLICIES:
        yield not_supported(f"{path}.restartPolicy", policy, RESTART_POLICIES)
    if spec.get("dnsPolicy") not in DNS_POLICIES:
        yield not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy", ""), DNS_POLICIES)
    for field in ("hostname", "subdomain"):
        if spec.get(field) and not is_label(get_str(spec, field)):
            yield from invalid_each(f"{path}.{field}", spec[field], label_problems(get_str(spec, field)))
    for field in ("serviceAccountName", "nodeName", "priorityClassName"):
        if spec.get(field) and not is_label(get_str(spec, field)):  # most are simple names
            yield from invalid_each(f"{path}.{field}", spec[field], subdomain_problems(get_str(spec, field)))
    deadline = spec.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and not 1 <= deadline <= 2147483647:
        yield invalid(
            f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"
        )
    if spec.get("dnsPolicy") == "None" and not isinstance(spec.get("dnsConfig"), dict):
        yield required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
    yield from security_errors(get_map(spec, "securityContext"), f"{path}.securityContext")
    yield from sysctl_errors(spec, f"{path}.securityContext.sysctls")
    yield from node_affinity_errors(
        get_map(spec, "affinity", "nodeAffinity"), f"{path}.affinity.nodeAffinity"
    )
    for index, gate in enumerate(get_list(spec, "schedulingGates")):
        name = get_str(gate, "name")
        yield from invalid_each(f"{path}.schedulingGates[{index}]", name, qualified_name_problems(name))
    if "nodeSelector" in spec:
        yield from map_errors(spec["nodeSelector"], f"{path}.nodeSelector")
    if "tolerations" in spec:
        yield from _toleration_errors(get_list(spec, "tolerations"), f"{path}.tolerations")


def template_spec_errors(spec: Json, path: str) -> Iterator[FieldError]:
    """Yield all errors of the spec of a pod template."""
    yield from pod_spec_errors(spec, path)
    if spec.get("ephemeralContainers"):
        yield forbidden(f"{path}.ephemeralContainers", "ephemeral containers not allowed in pod template")


def new_pod_errors(pod: Json) -> Iterator[FieldError]:
    """Yield the errors of fields that a new pod must not have."""
    spec = get_map(pod, "spec")
    if spec.get("ephemeralContainers"):
        yield forbidden("spec.ephemeralContainers", "cannot be set on create")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        yield forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared")


def pod_update_errors(new: Json, old: Json) -> Iterator[FieldError]:
    """Yield the errors of a change of immutable fields of a pod."""
    after, before = get_map(new, "spec"), get_map(old, "spec")
    for field in ("containers", "initContainers"):
        if len(get_list(after, field)) != len(get_list(before, field)):
            yield forbidden(f"spec.{field}", "pod updates may not add or remove containers")
            return
    deadline, previous = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if isinstance(deadline, int) and deadline < 0:
        yield invalid("spec.activeDeadlineSeconds", deadline, "must be between 0 and 2147483647, inclusive")
        return
    if isinstance(deadline, int) and isinstance(previous, int) and deadline > previous:
        yield invalid("spec.activeDeadlineSeconds", deadline, "must be less than or equal to previous value")
        return
    if previous is not None and deadline is None:
        message = "must not update from a positive integer to nil value"
        yield invalid("spec.activeDeadlineSeconds", None, message)
    if "tolerations" in before:
        kept = [_without_toleration_seconds(toleration) for toleration in get_list(after, "tolerations")]
        existing = [_without_toleration_seconds(toleration) for toleration in get_list(before, "tolerations")]
        if any(toleration not in kept for toleration in existing):
            message = "existing toleration can not be modified except its tolerationSeconds"
            yield forbidden("spec.tolerations", message)
    gates = [get_str(gate, "name") for gate in get_list(before, "schedulingGates")]
    for index, gate in enumerate(get_list(after, "schedulingGates")):
        if (name := get_str(gate, "name")) not in gates:
            message = f"only deletion is allowed, but found new scheduling gate '{name}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", message)
    if before.get("schedulingGates"):
        chosen = get_map(after, "nodeSelector")
        if any(chosen.get(key) != value for key, value in get_map(before, "nodeSelector").items()):
            message = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
            yield invalid("spec.nodeSelector", after.get("nodeSelector"), message)
    if _immutable_fields(after, before) != _immutable_fields(before, before):
        yield forbidden("spec", f"pod updates may not change fields other than {_UPDATABLE}")


def _without_toleration_seconds(toleration: Json) -> Json:
    """Return a toleration without its duration."""
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _immutable_fields(spec: Json, before: Json) -> Json:
    """Return the immutable part of a pod spec."""
    skipped = ("activeDeadlineSeconds", "tolerations", "schedulingGates")
    fixed = {key: value for key, value in spec.items() if key not in skipped}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{k: v for k, v in c.items() if k != "image"} for c in get_list(spec, field)]
    period = before.get("terminationGracePeriodSeconds")
    if isinstance(period, int) and period < 0:
        fixed.pop("terminationGracePeriodSeconds", None)
    if before.get("schedulingGates"):
        fixed.pop("nodeSelector", None)
        affinity = get_map(spec, "affinity")
        if "nodeAffinity" in affinity:
            fixed["affinity"] = {key: value for key, value in affinity.items() if key != "nodeAffinity"}
        if "nodeAffinity" in affinity and not fixed["affinity"]:
            fixed.pop("affinity")
    return fixed


def _container_list_errors(
    containers: Sequence[Json], path: str, volumes: set[object], names: set[object], *, init: bool = False
) -> Iterator[FieldError]:
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        yield from _unique_name_errors(container, where, names)
        if not get_str(container, "name"):
            if "" in names:
                yield duplicate(f"{where}.name", "")
            if not init:
                names.add("")
        yield from _container_errors(container, where, volumes, init)


def _unique_name_errors(item: Json, path: str, names: set[object]) -> Iterator[FieldError]:
    """Yield the errors of the name of a container or volume, and add it to `names`, where it must be new."""
    name = get_str(item, "name")
    if not name:
        yield required(f"{path}.name")
        return
    if not is_label(name):
        yield from invalid_each(f"{path}.name", name, label_problems(name))
    if name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)


def _container_errors(container: Json, path: str, volumes: set[object], init: bool) -> Iterator[FieldError]:
    image = get_str(container, "image")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    if "ports" in container:
        yield from _port_errors(get_list(container, "ports"), f"{path}.ports")
    for index, variable in enumerate(get_list(container, "env")):
        name = variable.get("name")
        if not (isinstance(name, str) and is_variable_name(name)) or "valueFrom" in variable:
            yield from _variable_errors(variable, f"{path}.env[{index}]")
    if "volumeMounts" in container:
        yield from mount_errors(get_list(container, "volumeMounts"), f"{path}.volumeMounts", volumes)
    policy = container.get("imagePullPolicy")
    if policy not in PULL_POLICIES:
        yield not_supported(f"{path}.imagePullPolicy", policy or "", PULL_POLICIES)
    resources = get_map(container, "resources")
    if resources:
        yield from resource_errors(resources, f"{path}.resources")
    restart = container.get("restartPolicy")
    yield from container_part_errors(container, path, allows_probes=not init or restart == "Always")
    if restart is not None and restart != "Always" and init:
        yield not_supported(f"{path}.restartPolicy", restart, ("Always",))


def _port_errors(ports: Sequence[Json], path: str) -> Iterator[FieldError]:
    names: set[object] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name = get_str(port, "name")
        if name:
            problems = port_name_problems(name)
            yield from invalid_each(f"{where}.name", name, problems)
            if not problems and name in names:
                yield duplicate(f"{where}.name", name)
            names.add(name)
        if not port.get("containerPort"):
            yield required(f"{where}.containerPort")
        for field in ("containerPort", "hostPort"):
            if number := port.get(field):
                yield from invalid_each(f"{where}.{field}", number, port_problems(number))
        if port.get("protocol") not in PROTOCOLS:
            yield not_supported(f"{where}.protocol", port.get("protocol", ""), PROTOCOLS)


def _variable_errors(variable: Json, path: str) -> Iterator[FieldError]:
    name = get_str(variable, "name")
    if not name:
        yield required(f"{path}.name")
    elif not is_variable_name(name):
        yield from invalid_each(f"{path}.name", name, env_name_problems(name))
    source = variable.get("valueFrom")
    if isinstance(source, dict):
        if isinstance(source.get("fieldRef"), dict):
            yield from field_source_errors(get_map(source, "fieldRef"), f"{path}.valueFrom.fieldRef")
        sources = [key for key in source if source[key] is not None]
        if not sources:
            yield invalid(f"{path}.valueFrom", "", MUST_HAVE_ONE_SOURCE)
        elif variable.get("value"):
            yield invalid(f"{path}.valueFrom", "", "may not be specified when `value` is not empty")
        elif len(sources) > 1:
            yield invalid(f"{path}.valueFrom", "", "may not have more than one field specified at a time")


def resource_errors(resources: Json, path: str) -> Iterator[FieldError]:
    """Yield the errors of limits and requests: of names, of amounts, and of requests above limits."""
    limits, requests = get_map(resources, "limits"), get_map(resources, "requests")
    for name, amount in limits.items():
        yield from _amount_errors(name, amount, f"{path}.limits[{name}]")
    for name, amount in requests.items():
        limit = limits.get(name)
        if limit is None and not _may_overcommit(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        if isinstance(limit, str) and isinstance(amount, str) and _exceeds(name, amount, limit):
            words = "must be less than or equal to" if _may_overcommit(name) else "must be equal to"
            yield invalid(f"{path}.requests", amount, f"{words} {name} limit of {limit}")
        yield from _amount_errors(name, amount, f"{path}.requests[{name}]")


def _exceeds(name: str, amount: str, limit: str) -> bool:
    if _may_overcommit(name):
        return amount != limit and value_of(amount) > value_of(limit)
    return amount != limit


def _may_overcommit(name: str) -> bool:
    return name in STANDARD_RESOURCES or "/" not in name or name.startswith("kubernetes.io/")


def _amount_errors(name: str, amount: object, path: str) -> Iterator[FieldError]:
    if not is_qualified_name(name):
        yield from invalid_each(path, name, qualified_name_problems(name))
    elif "/" not in name and name not in STANDARD_RESOURCES and not name.startswith("hugepages-"):
        yield invalid(path, name, "must be a standard resource type or fully qualified")
        yield invalid(path, name, "must be a standard resource for containers")
    if isinstance(amount, str):
        value = value_of(amount)
        if value < 0:
            yield invalid(path, amount, "must be greater than or equal to 0")
        elif "/" in name and value != value.to_integral_value():
            yield invalid(path, amount, "must be an integer")


def _volume_errors(volumes: Sequence[Json], path: str, names: set[object]) -> Iterator[FieldError]:
    """Yield the errors of volumes; the names of valid volumes are added to `names`."""
    for index, volume in enumerate(volumes):
        where = f"{path}[{index}]"
        kinds = sorted((key for key in volume if key != "name"), key=_volume_order)
        message = "may not specify more than 1 volume type"
        errors = [forbidden(f"{where}.{extra}", message) for extra in kinds[1:]]
        errors += source_errors({kind: volume[kind] for kind in kinds[:1]}, where)
        errors += _unique_name_errors(volume, where, set(names))
        if not errors:
            names.add(volume.get("name"))
        yield from errors


_VOLUMES = ("emptyDir", "hostPath", "secret", "nfs", "persistentVolumeClaim", "downwardAPI", "configMap")


def _volume_order(kind: str) -> int:
    """Return the order in which Kubernetes looks for the type of a volume; other types are errors."""
    return _VOLUMES.index(kind) if kind in _VOLUMES else len(_VOLUMES)


def _toleration_errors(tolerations: Sequence[Json], path: str) -> Iterator[FieldError]:
    for index, toleration in enumerate(tolerations):
        where = f"{path}[{index}]"
        operator, key, effect = (str(toleration.get(field, "")) for field in ("operator", "key", "effect"))
        if key:
            if not is_qualified_name(key):
                yield from invalid_each(f"{where}.key", key, qualified_name_problems(key))
        elif operator != "Exists":
            message = (
                'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            )
            yield invalid(f"{where}.operator", operator, message)
        if operator not in ("", "Equal", "Exists"):
            yield not_supported(f"{where}.operator", operator, ("Equal", "Exists"))
        if operator == "Exists" and toleration.get("value"):
            yield invalid(
                f"{where}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'"
            )
        if effect and effect not in EFFECTS:
            yield not_supported(f"{where}.effect", effect, EFFECTS)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(f"{where}.effect", effect, message)
