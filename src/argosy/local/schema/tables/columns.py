"""The columns that `kubectl get` shows for built-in kinds, each with the function that returns its cell."""

from collections.abc import Callable, Mapping

from argosy.local.schema.model import Json
from argosy.local.schema.tables import values
from argosy.local.schema.tables.cells import (
    Cell,
    Column,
    age,
    containers,
    created,
    labels_text,
    name,
    selector_text,
)
from argosy.local.schema.unstructured import get_int, get_map, get_str

Field = tuple[Column, Cell]
Read = Callable[[Json], object]


def _field(
    title: str, read: str | Read, *, type: str = "string", wide: bool = False, empty: str = ""
) -> Field:
    """Return a column of the text at a path, or of the result of a function."""
    column = Column(name=title, type=type, priority=int(wide))
    if isinstance(read, str):
        steps = read.split(".")
        return column, lambda item, _now: get_str(item, *steps) or empty
    return column, lambda item, _now: read(item)


def _number(title: str, path: str, type: str = "integer") -> Field:
    return _field(title, lambda item: get_int(item, *path.split(".")), type=type)


def _size(title: str, *fields: str, type: str = "string") -> Field:
    """Return a column of the number of entries in some lists or maps."""
    return _field(title, lambda item: sum(values.size(item.get(field)) for field in fields), type=type)


def _selector(path: str, title: str = "Selector", *, wide: bool = True) -> Field:
    return _field(title, lambda item: selector_text(values.at(item, path)), wide=wide)


def _containers(index: int) -> Read:
    return lambda item: containers(get_map(item, "spec", "template", "spec"))[index]


NAME: Field = (Column(name="Name", format="name"), lambda item, _now: name(item))
AGE: Field = (Column(name="Age"), created)
_TEMPLATE = (
    _field("Containers", _containers(0), wide=True),
    _field("Images", _containers(1), wide=True),
    _selector("spec.selector"),
)
_EVENT: tuple[Field, ...] = (
    (Column(name="Last Seen"), lambda item, now: age(values.event_times(item)[1], now)),
    _field("Type", "type"),
    _field("Reason", "reason"),
    _field("Object", values.event_object),
    _field("Subobject", lambda item: get_str(values.event_target(item), "fieldPath"), wide=True),
    _field("Source", values.event_source, wide=True),
    _field("Message", lambda item: (get_str(item, "message") or get_str(item, "note")).strip()),
    (Column(name="First Seen", priority=1), lambda item, now: age(values.event_times(item)[0], now)),
    _field("Count", values.event_count, wide=True),
    (Column(name="Name", format="name", priority=1), lambda item, _now: name(item)),
)
_BINDING = (
    NAME,
    _field("Role", lambda item: f"{get_str(item, 'roleRef', 'kind')}/{get_str(item, 'roleRef', 'name')}"),
    AGE,
    _field("Users", lambda item: values.subjects(item, "User"), wide=True),
    _field("Groups", lambda item: values.subjects(item, "Group"), wide=True),
    _field("ServiceAccounts", lambda item: values.subjects(item, "ServiceAccount"), wide=True),
)
_WEBHOOKS = (NAME, _size("Webhooks", "webhooks", type="integer"), AGE)

_WORKLOADS: Mapping[tuple[str, str], tuple[Field, ...]] = {
    ("apps", "ReplicaSet"): (
        NAME,
        _number("Desired", "spec.replicas"),
        _number("Current", "status.replicas"),
        _number("Ready", "status.readyReplicas"),
        AGE,
        *_TEMPLATE,
    ),
    ("apps", "Deployment"): (
        NAME,
        _field("Ready", values.ready_replicas),
        _number("Up-to-date", "status.updatedReplicas", "string"),
        _number("Available", "status.availableReplicas", "string"),
        AGE,
        *_TEMPLATE,
    ),
    ("batch", "Job"): (
        NAME,
        _field("Status", values.job_status),
        _field("Completions", values.job_completions),
        (Column(name="Duration"), values.job_duration),
        AGE,
        *_TEMPLATE,
    ),
    ("policy", "PodDisruptionBudget"): (
        NAME,
        _field(
            "Min Available", lambda item: values.format_value(values.at(item, "spec.minAvailable"), "N/A")
        ),
        _field(
            "Max Unavailable", lambda item: values.format_value(values.at(item, "spec.maxUnavailable"), "N/A")
        ),
        _number("Allowed Disruptions", "status.disruptionsAllowed"),
        AGE,
    ),
}
_NETWORK: Mapping[tuple[str, str], tuple[Field, ...]] = {
    ("", "Service"): (
        NAME,
        _field("Type", "spec.type"),
        _field("Cluster-IP", values.cluster_ip),
        _field("External-IP", values.external_address),
        _field("Port(s)", values.service_ports),
        AGE,
        _field("Selector", lambda item: labels_text(values.at(item, "spec.selector")), wide=True),
    ),
    ("discovery.k8s.io", "EndpointSlice"): (
        NAME,
        _field("AddressType", "addressType"),
        _field("Ports", values.slice_ports),
        _field("Endpoints", values.slice_addresses),
        AGE,
    ),
    ("networking.k8s.io", "NetworkPolicy"): (
        NAME,
        _selector("spec.podSelector", "Pod-Selector", wide=False),
        AGE,
    ),
}
_STORAGE: Mapping[tuple[str, str], tuple[Field, ...]] = {
    ("", "PersistentVolumeClaim"): (
        NAME,
        _field("Status", values.storage_phase),
        _field("Volume", "spec.volumeName"),
        _field("Capacity", values.claim_capacity),
        _field(
            "Access Modes", lambda item: values.access_modes(item, "status") if values.is_bound(item) else ""
        ),
        _field("StorageClass", "spec.storageClassName"),
        _field("VolumeAttributesClass", "spec.volumeAttributesClassName", empty="<unset>"),
        AGE,
        _field("VolumeMode", "spec.volumeMode", wide=True, empty="<unset>"),
    ),
}
_OTHERS: Mapping[tuple[str, str], tuple[Field, ...]] = {
    ("", "Node"): (
        NAME,
        _field("Status", values.node_status),
        _field("Roles", values.node_roles),
        AGE,
        _field("Version", "status.nodeInfo.kubeletVersion"),
        _field("Internal-IP", values.node_address("InternalIP"), wide=True),
        _field("External-IP", values.node_address("ExternalIP"), wide=True),
        _field("OS-Image", "status.nodeInfo.osImage", wide=True, empty="<unknown>"),
        _field("Kernel-Version", values.node_kernel, wide=True),
        _field("Container-Runtime", "status.nodeInfo.containerRuntimeVersion", wide=True, empty="<unknown>"),
    ),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "Namespace"): (NAME, _field("Status", "status.phase"), AGE),
    ("", "Secret"): (NAME, _field("Type", "type"), _size("Data", "data"), AGE),
    ("", "ConfigMap"): (NAME, _size("Data", "data", "binaryData"), AGE),
    ("", "ServiceAccount"): (NAME, AGE),
    ("", "ResourceQuota"): (
        NAME,
        _field("Request", lambda item: values.quota(item, limits=False)),
        _field("Limit", lambda item: values.quota(item, limits=True)),
        AGE,
    ),
    ("rbac.authorization.k8s.io", "RoleBinding"): _BINDING,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): _BINDING,
    ("coordination.k8s.io", "Lease"): (NAME, _field("Holder", "spec.holderIdentity"), AGE),
    ("scheduling.k8s.io", "PriorityClass"): (
        NAME,
        _number("Value", "value"),
        _field("Global-Default", lambda item: item.get("globalDefault", False), type="boolean"),
        AGE,
        _field("PreemptionPolicy", "preemptionPolicy"),
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _WEBHOOKS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _WEBHOOKS,
}
COLUMNS: Mapping[tuple[str, str], tuple[Field, ...]] = {**_WORKLOADS, **_NETWORK, **_STORAGE, **_OTHERS}
"""The columns of all kinds but pods, whose cells are computed together."""
