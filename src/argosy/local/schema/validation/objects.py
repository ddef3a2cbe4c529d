"""Validates objects of built-in kinds beyond their types.

`validate_builtin` expects an object that was decoded and defaulted. Its rules are a subset of those of
kube-apiserver: it accepts some invalid objects, and never rejects a valid one.
"""

from collections.abc import Callable, Iterator, Mapping

from argosy.local.schema.errors import (
    FieldError,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    too_long,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_texts
from argosy.local.schema.validation.metadata import STANDARD_FINALIZERS, immutable, metadata_errors
from argosy.local.schema.validation.names import (
    config_key_problems,
    qualified_name_problems,
)
from argosy.local.schema.validation.pod import (
    EFFECTS,
    new_pod_errors,
    pod_spec_errors,
    pod_update_errors,
)
from argosy.local.schema.validation.quota import quota
from argosy.local.schema.validation.service import service_change, service_errors
from argosy.local.schema.validation.workloads import (
    at_least,
    budget_errors,
    deployment,
    job,
    job_update,
    replica_set,
    selector_change,
)

RBAC = "rbac.authorization.k8s.io"
MAX_DATA_BYTES = 1024 * 1024


def validate_builtin(
    group: str,
    kind: str,
    new: Json,
    old: Json | None = None,
    *,
    namespaced: bool = True,
    subresource: str = "",
) -> list[FieldError]:
    """Return all errors of an object, and in an update those of the change from `old`.

    Statuses are not validated, because only controllers write them; exceptions are the QoS class of pods and
    the phase of namespaces.
    """
    errors = metadata_errors(group, kind, new, old, namespaced=namespaced)
    if subresource == "status" and old is not None:
        if kind == "Pod":
            qos = [get_str(pod, "status", "qosClass") for pod in (new, old)]
            errors += immutable("status.qosClass", *qos)
        elif kind == "Namespace":
            errors += _namespace_phase(new)
        return errors
    if subresource == "finalize":
        return [*errors, *_finalized_namespace(new)]
    if old is None and (group, kind) == ("", "Pod"):
        errors += new_pod_errors(new)
    check = _CHECKS.get((group, kind))
    if check is not None:
        errors += check(new)
    change = _CHANGES.get((group, kind))
    if change is not None and old is not None:
        errors += change(new, old)
    return errors


def _namespace(obj: Json) -> Iterator[FieldError]:
    for name in get_texts(obj, "spec", "finalizers"):
        yield from _finalizer_name(name, "spec.finalizers")


def _namespace_phase(obj: Json) -> Iterator[FieldError]:
    wanted = "Terminating" if get_str(obj, "metadata", "deletionTimestamp") else "Active"
    if (phase := get_str(obj, "status", "phase")) != wanted:
        message = "must be Terminating with a deletionTimestamp, and Active without one"
        yield invalid("status.Phase", phase, message)


def _finalized_namespace(obj: Json) -> Iterator[FieldError]:
    for index, name in enumerate(get_texts(obj, "spec", "finalizers")):
        yield from _finalizer_name(name, f"spec.finalizers[{index}]")


def _finalizer_name(name: str, path: str) -> Iterator[FieldError]:
    yield from invalid_each(path, name, qualified_name_problems(name))
    if "/" not in name and name not in STANDARD_FINALIZERS:
        yield invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")


def _pod(obj: Json) -> Iterator[FieldError]:
    return pod_spec_errors(get_map(obj, "spec"))


def _pod_change(new: Json, old: Json) -> Iterator[FieldError]:
    return pod_update_errors(new, old)


def _config_map(obj: Json) -> Iterator[FieldError]:
    data, binary = get_map(obj, "data"), get_map(obj, "binaryData")
    size = 0
    for field, values in (("data", data), ("binaryData", binary)):
        for key, value in sorted(values.items()):
            yield from invalid_each(f"{field}[{key}]", key, config_key_problems(key))
            if field == "data" and key in binary:
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            size += len(str(value)) * 3 // 4 if field == "binaryData" else len(str(value).encode())
    if size > MAX_DATA_BYTES:
        yield too_long("[]", MAX_DATA_BYTES)


_SECRET_KEYS: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def _secret(obj: Json) -> Iterator[FieldError]:
    data = get_map(obj, "data")
    for key in sorted(data):
        yield from invalid_each(f"data[{key}]", key, config_key_problems(key))
    if sum(len(str(value)) * 3 // 4 for value in data.values()) > MAX_DATA_BYTES:
        yield too_long("data", MAX_DATA_BYTES)
    yield from _secret_of_type(get_str(obj, "type"), data)
    account = "kubernetes.io/service-account.name"
    unnamed = not get_map(obj, "metadata", "annotations").get(account)
    if unnamed and get_str(obj, "type") == "kubernetes.io/service-account-token":
        yield required(f"metadata.annotations[{account}]")


def _secret_of_type(kind: str, data: Json) -> Iterator[FieldError]:
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data or (kind == "kubernetes.io/ssh-auth" and not data[key]):
            yield required(f"data[{key}]")
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield required("data[username]")
        yield required("data[password]")


def _frozen_change(new: Json, old: Json) -> Iterator[FieldError]:
    """Yield the errors of a change of an immutable Secret or ConfigMap."""
    if new.get("kind") == "Secret" or "type" in old:
        yield from immutable("type", new.get("type"), old.get("type"))
    if old.get("immutable") is not True:
        return
    message = "field is immutable when `immutable` is set"
    if new.get("immutable") is not True:
        yield forbidden("immutable", message)
    for field in ("data", "binaryData"):
        if get_map(new, field) != get_map(old, field):
            yield forbidden(field, message)


def _role(obj: Json) -> Iterator[FieldError]:
    namespaced = bool(get_str(obj, "metadata", "namespace"))
    for index, rule in enumerate(get_maps(obj, "rules")):
        where = f"rules[{index}]"
        urls = get_texts(rule, "nonResourceURLs")
        if not rule.get("verbs"):
            yield required(f"{where}.verbs", "verbs must contain at least one value")
        if urls:
            if namespaced:
                message = "namespaced rules cannot apply to non-resource URLs"
                yield invalid(f"{where}.nonResourceURLs", urls, message)
            if rule.get("apiGroups") or rule.get("resources"):
                message = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{where}.nonResourceURLs", urls, message)
            continue
        if not rule.get("apiGroups"):
            yield required(f"{where}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{where}.resources", "resource rules must supply at least one resource")


def _cluster_role(obj: Json) -> Iterator[FieldError]:
    yield from _role(obj)
    if "aggregationRule" in obj and not get_maps(obj, "aggregationRule", "clusterRoleSelectors"):
        message = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required("aggregationRule.clusterRoleSelectors", message)


def _binding(obj: Json) -> Iterator[FieldError]:
    role = get_map(obj, "roleRef")
    if role.get("apiGroup") != RBAC:
        yield not_supported("roleRef.apiGroup", role.get("apiGroup", ""), (RBAC,))
    kinds = ("Role", "ClusterRole") if get_str(obj, "metadata", "namespace") else ("ClusterRole",)
    if role.get("kind") not in kinds:
        yield not_supported("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield required("roleRef.name")
    for index, subject in enumerate(get_maps(obj, "subjects")):
        where = f"subjects[{index}]"
        if not subject.get("name"):
            yield required(f"{where}.name")
        kind = subject.get("kind", "")
        if kind not in ("ServiceAccount", "User", "Group"):
            yield not_supported(f"{where}.kind", kind, ("ServiceAccount", "User", "Group"))
        elif kind == "ServiceAccount" and not subject.get("namespace") and len(kinds) == 1:
            yield required(f"{where}.namespace")


def _binding_change(new: Json, old: Json) -> Iterator[FieldError]:
    role = get_map(new, "roleRef")
    if role != get_map(old, "roleRef"):
        yield invalid("roleRef", role, "cannot change roleRef")


def _lease(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    duration = spec.get("leaseDurationSeconds")
    if isinstance(duration, int) and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    yield from at_least("spec.leaseTransitions", spec.get("leaseTransitions"), 0)


def _priority_class(obj: Json) -> Iterator[FieldError]:
    value = obj.get("value")
    if (
        isinstance(value, int)
        and value > 1000000000
        and not get_str(obj, "metadata", "name").startswith("system-")
    ):
        yield forbidden("value", "maximum allowed value of a user defined priority is 1000000000")


def _node(obj: Json) -> Iterator[FieldError]:
    for index, taint in enumerate(get_maps(obj, "spec", "taints")):
        where = f"metadata.taints[{index}]"
        key = get_str(taint, "key")
        yield from invalid_each(f"{where}.key", key, qualified_name_problems(key))
        if taint.get("effect") not in EFFECTS:
            yield not_supported(f"{where}.effect", taint.get("effect", ""), EFFECTS)


def _event(obj: Json) -> Iterator[FieldError]:
    involved = get_str(obj, "involvedObject", "namespace")
    namespace = get_str(obj, "metadata", "namespace")
    if involved and involved != namespace:
        yield invalid("involvedObject.namespace", involved, "does not match event.namespace")
    if not involved and namespace not in ("default", "kube-system"):
        yield invalid("involvedObject.namespace", involved, "does not match event.namespace")


def _claim(obj: Json) -> Iterator[FieldError]:
    spec = get_map(obj, "spec")
    if not spec.get("accessModes"):
        yield required("spec.accessModes", "at least 1 access mode is required")
    if not get_map(spec, "resources", "requests").get("storage"):
        yield required("spec.resources[storage]")


_CHECKS: Mapping[tuple[str, str], Callable[[Json], Iterator[FieldError]]] = {
    ("", "Pod"): _pod,
    ("", "Namespace"): _namespace,
    ("", "Service"): service_errors,
    ("", "ConfigMap"): _config_map,
    ("", "Secret"): _secret,
    ("", "Node"): _node,
    ("", "Event"): _event,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "ResourceQuota"): quota,
    ("apps", "Deployment"): deployment,
    ("apps", "ReplicaSet"): replica_set,
    ("batch", "Job"): job,
    (RBAC, "Role"): _role,
    (RBAC, "ClusterRole"): _cluster_role,
    (RBAC, "RoleBinding"): _binding,
    (RBAC, "ClusterRoleBinding"): _binding,
    ("coordination.k8s.io", "Lease"): _lease,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("policy", "PodDisruptionBudget"): budget_errors,
}

_CHANGES: Mapping[tuple[str, str], Callable[[Json, Json], Iterator[FieldError]]] = {
    ("", "Pod"): _pod_change,
    ("", "Service"): service_change,
    ("", "ConfigMap"): _frozen_change,
    ("", "Secret"): _frozen_change,
    ("apps", "Deployment"): selector_change,
    ("apps", "ReplicaSet"): selector_change,
    ("batch", "Job"): job_update,
    (RBAC, "RoleBinding"): _binding_change,
    (RBAC, "ClusterRoleBinding"): _binding_change,
}
