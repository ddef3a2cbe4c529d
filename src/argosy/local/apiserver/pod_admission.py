"""Admission of pods: service account and token, priority, tolerations."""

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.status import forbidden
from argosy.local.apiserver.timestamps import generated_name, now_text
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_int, get_maps, get_str

_TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a path
_VOLUME = "kube-api-access-"
_TOKEN_SECONDS = 3607
_UNREACHABLE_SECONDS = 300
_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def admit_pod(call: Call, pod: Json) -> None:
    """Set the fields of a new pod that the admission of Kubernetes sets."""
    spec = ensure(pod, "spec")
    _service_account(call, pod, spec)
    _priority(call, pod, spec)
    add_tolerations(spec)


def admission_name(obj: Json) -> str:
    """Return the name of a new object in errors of admission, before its name is generated."""
    return get_str(obj, "metadata", "name") or get_str(obj, "metadata", "generateName") or "Unknown"


def _service_account(call: Call, pod: Json, spec: Json) -> None:
    name = get_str(spec, "serviceAccountName") or "default"
    spec["serviceAccountName"] = spec["serviceAccount"] = name
    stored = call.api.store.head("serviceaccounts", call.namespace, name)
    if stored is None:
        why = f'error looking up service account {call.namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("", "pods", admission_name(pod), why)
    account = stored.decoded()
    wanted = spec.get("automountServiceAccountToken", account.get("automountServiceAccountToken", True))
    if wanted is not False:
        _mount_token(spec)
    secrets = get_maps(account, "imagePullSecrets")
    if secrets and not get_maps(spec, "imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": get_str(secret, "name")} for secret in secrets]


def _mount_token(spec: Json) -> None:
    volumes = get_maps(spec, "volumes")
    existing = next((get_str(v, "name") for v in volumes if get_str(v, "name").startswith(_VOLUME)), "")
    name = existing or generated_name(_VOLUME)
    needed = False
    for field in ("initContainers", "containers"):
        for container in get_maps(spec, field):
            mounts = get_maps(container, "volumeMounts")
            if all(get_str(mount, "mountPath") != _TOKEN_PATH for mount in mounts):
                container["volumeMounts"] = [
                    *mounts,
                    {"name": name, "readOnly": True, "mountPath": _TOKEN_PATH},
                ]
                needed = True
    if needed and not existing:
        spec["volumes"] = [*volumes, _token_volume(name)]


def _token_volume(name: str) -> Json:
    sources: list[Json] = [
        {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {
            "downwardAPI": {
                "items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
                ]
            }
        },
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}


def _priority(call: Call, pod: Json, spec: Json) -> None:
    name, value, policy = get_str(spec, "priorityClassName"), 0, "PreemptLowerPriority"
    collection = call.api.store.collection("priorityclasses.scheduling.k8s.io")
    if name in _PRIORITIES:
        value = _PRIORITIES[name]
    elif name:
        stored = collection.get("", name)
        if stored is None:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden("", "pods", admission_name(pod), why)
        priority = stored.decoded()
        value, policy = get_int(priority, "value"), get_str(priority, "preemptionPolicy") or policy
    elif len(collection):
        for stored in collection.listed(""):
            priority = stored.decoded()
            if priority.get("globalDefault") is True:
                spec["priorityClassName"] = stored.name
                value, policy = get_int(priority, "value"), get_str(priority, "preemptionPolicy") or policy
    requested = spec.get("priority")
    if isinstance(requested, int) and requested != value:
        why = (
            f"the integer value of priority ({requested}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden("", "pods", admission_name(pod), why)
    spec["priority"] = value
    spec.setdefault("preemptionPolicy", policy)


def keep_priority(spec: Json, before: Json) -> None:
    """Keep the priority of a pod in an update that does not set it."""
    for field in ("priority", "preemptionPolicy"):
        if spec.get(field) is None and before.get(field) is not None:
            spec[field] = before[field]


def add_tolerations(spec: Json) -> None:
    """Tolerate unreachable nodes for five minutes, unless the pod has its own toleration."""
    tolerations = get_maps(spec, "tolerations")
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(
            get_str(t, "key") in (key, "") and get_str(t, "effect") in ("NoExecute", "") for t in tolerations
        ):
            tolerations.append(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _UNREACHABLE_SECONDS,
                }
            )
    spec["tolerations"] = tolerations


def bind_pod(pod: Json, node: str, annotations: Json, labels: Json) -> None:
    """Assign a pod to a node."""
    ensure(pod, "spec")["nodeName"] = node
    if annotations:
        ensure(pod, "metadata", "annotations").update(annotations)
    if labels:
        ensure(pod, "metadata", "labels").update(labels)
    status = ensure(pod, "status")
    status.pop("nominatedNodeName", None)
    conditions = [c for c in get_maps(status, "conditions") if get_str(c, "type") != "PodScheduled"]
    condition: Json = {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now_text(),
    }
    status["conditions"] = [*conditions, condition]


def gated(pod: Json) -> bool:
    return bool(get_maps(pod, "spec", "schedulingGates"))
