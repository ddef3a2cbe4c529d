"""Defaults of built-in objects that are not in OpenAPI, and the initial state of new objects.

`apply_defaults` runs on every write, in place and after decoding; `prepare_for_create` only when an object is
created. Allocation (addresses, node ports) and admission (service accounts, priorities) are elsewhere.
"""

import base64
from collections.abc import Callable, Mapping

from argosy.local.schema.codec.quantity import value_of
from argosy.local.schema.defaults.pod import default_pod
from argosy.local.schema.defaults.workloads import (
    claim_defaults,
    deployment_defaults,
    job_defaults,
    replica_set_defaults,
)
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_strings

RBAC = "rbac.authorization.k8s.io"


def apply_defaults(group: str, kind: str, obj: Json) -> None:
    """Fill in the defaults of a built-in kind, in place."""
    defaulter = _DEFAULTERS.get((group, kind))
    if defaulter is not None:
        defaulter(obj)


def prepare_for_create(group: str, kind: str, obj: Json, *, time: str = "") -> None:
    """Set the initial state of a new object of a built-in kind, in place; `time` is the current time."""
    prepare = _PREPARERS.get((group, kind))
    if prepare is not None:
        prepare(obj)
    if kind == "Pod" and get_map(obj, "spec").get("schedulingGates"):
        get_map(obj, "status")["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": time or None,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def prepare_for_update(group: str, kind: str, new: Json, old: Json) -> None:
    """Keep fields that an update of a built-in kind cannot remove, in place."""
    if (group, kind) == ("", "Pod"):
        status, before = get_map(new, "status"), get_map(old, "status")
        if before.get("qosClass") and not status.get("qosClass"):
            new["status"] = {**status, "qosClass": before["qosClass"]}
    elif group == RBAC and kind in ("Role", "ClusterRole"):
        _stored_role(new)
    elif kind == "CustomResourceDefinition":
        _add_stored_version(new)


def _add_stored_version(definition: Json) -> None:
    """Add the storage version to status.storedVersions."""
    stores = [
        get_str(v, "name") for v in get_maps(definition, "spec", "versions") if v.get("storage") is True
    ]
    listed = get_strings(definition, "status", "storedVersions")
    if stores and stores[0] not in listed and "status" in definition:
        definition["status"] = {**get_map(definition, "status"), "storedVersions": [*listed, stores[0]]}


def quality_of_service(spec: Json) -> str:
    """Return the QoS class of a pod: Guaranteed, Burstable or BestEffort."""
    guaranteed, any_amount = True, False
    for kind in ("containers", "initContainers"):
        for container in get_maps(spec, kind):
            resources = get_map(container, "resources")
            requests, limits = get_map(resources, "requests"), get_map(resources, "limits")
            for name in ("cpu", "memory"):
                request, limit = _positive(requests, name), _positive(limits, name)
                any_amount = any_amount or bool(request or limit)
                if not limit or (request or limit) != limit:
                    guaranteed = False
    if not any_amount:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _positive(amounts: Json, name: str) -> object:
    amount = amounts.get(name)
    return value_of(amount) if isinstance(amount, str) and value_of(amount) > 0 else None


def _service(obj: Json) -> None:
    spec = get_map(obj, "spec")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif get_map(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds") is None:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}
    spec.setdefault("type", "ClusterIP")
    for port in get_maps(spec, "ports"):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    outside = spec["type"] in ("NodePort", "LoadBalancer")
    if outside or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if outside or spec["type"] == "ClusterIP":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in get_maps(obj, "status", "loadBalancer", "ingress"):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _secret(obj: Json) -> None:
    obj.setdefault("type", "Opaque")
    # Text is stored as data.
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict) and plain:
        data = dict(get_map(obj, "data"))
        data.update({k: base64.b64encode(str(v).encode()).decode() for k, v in plain.items()})
        obj["data"] = data


def _namespace(obj: Json) -> None:
    metadata = get_map(obj, "metadata")
    if metadata.get("name"):
        metadata["labels"] = {**get_map(metadata, "labels"), "kubernetes.io/metadata.name": metadata["name"]}
    get_map(obj, "status").setdefault("phase", "Active")


def _node(obj: Json) -> None:
    status = get_map(obj, "status")
    if "capacity" in status:
        status.setdefault("allocatable", dict(get_map(status, "capacity")))


def _endpoint_slice(obj: Json) -> None:
    for port in get_maps(obj, "ports"):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _stored_role(obj: Json) -> None:
    """Set an empty list of rules to null, as Kubernetes does."""
    obj["rules"] = obj.get("rules") or None


def _role_binding(obj: Json) -> None:
    role = get_map(obj, "roleRef")
    if not role.get("apiGroup"):
        role["apiGroup"] = RBAC
    for subject in get_maps(obj, "subjects"):
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", RBAC)


def _network_policy(obj: Json) -> None:
    spec = get_map(obj, "spec")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in get_maps(spec, "ingress") + get_maps(spec, "egress"):
        for port in get_maps(rule, "ports"):
            port.setdefault("protocol", "TCP")


def _priority_class(obj: Json) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _definition(obj: Json) -> None:
    spec = get_map(obj, "spec")
    names = get_map(spec, "names")
    kind = get_str(names, "kind")
    if kind:
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    service = get_map(spec, "conversion", "webhook", "clientConfig", "service")
    if service:
        service.setdefault("port", 443)
    status = obj.get("status")
    if isinstance(status, dict) and not status.get("storedVersions"):
        stored = [v.get("name") for v in get_maps(spec, "versions") if v.get("storage") is True]
        if stored:
            status["storedVersions"] = stored[:1]


def _webhooks(obj: Json) -> None:
    for webhook in get_maps(obj, "webhooks"):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if obj.get("kind") == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in get_maps(webhook, "rules"):
            rule.setdefault("scope", "*")
        service = get_map(webhook, "clientConfig", "service")
        if service:
            service.setdefault("port", 443)


def _new_pod(obj: Json) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(get_map(obj, "spec"))}


def _new_namespace(obj: Json) -> None:
    finalizers = get_map(obj, "spec").get("finalizers")
    kept = [f for f in finalizers if f != "kubernetes"] if isinstance(finalizers, list) else []
    obj["spec"] = {**get_map(obj, "spec"), "finalizers": [*kept, "kubernetes"]}
    obj["status"] = {"phase": "Active"}


def _new_job(obj: Json) -> None:
    """Generate the selector and the labels of a job, unless it has a manual selector."""
    spec, metadata = get_map(obj, "spec"), get_map(obj, "metadata")
    obj["status"] = {}
    if spec.get("manualSelector") is True:
        return
    template = get_map(spec, "template")
    uid, name = get_str(metadata, "uid"), get_str(metadata, "name")
    own = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    inner = template.setdefault("metadata", {})
    if isinstance(inner, dict):
        labels = get_map(inner, "labels")
        # A job without labels takes those of its template, including the generated ones.
        if not metadata.get("labels") or metadata["labels"] == labels:
            metadata["labels"] = {**labels, **own}
        inner["labels"] = {**labels, **own}
    selector = get_map(spec, "selector")
    matched = {**get_map(selector, "matchLabels"), "batch.kubernetes.io/controller-uid": uid}
    spec["selector"] = {**selector, "matchLabels": matched}


def _new_claim(obj: Json) -> None:
    obj["status"] = {"phase": "Pending"}


def _new_definition(obj: Json) -> None:
    stored = [v.get("name") for v in get_maps(obj, "spec", "versions") if v.get("storage") is True]
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": stored[:1],
    }


_DEFAULTERS: Mapping[tuple[str, str], Callable[[Json], None]] = {
    ("", "Pod"): default_pod,
    ("", "Service"): _service,
    ("", "Secret"): _secret,
    ("", "PersistentVolumeClaim"): claim_defaults,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("apps", "Deployment"): deployment_defaults,
    ("apps", "ReplicaSet"): replica_set_defaults,
    ("batch", "Job"): job_defaults,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    (RBAC, "RoleBinding"): _role_binding,
    (RBAC, "ClusterRoleBinding"): _role_binding,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): _webhooks,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): _webhooks,
}

_PREPARERS: Mapping[tuple[str, str], Callable[[Json], None]] = {
    ("", "Pod"): _new_pod,
    ("", "Namespace"): _new_namespace,
    ("", "PersistentVolumeClaim"): _new_claim,
    ("batch", "Job"): _new_job,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _new_definition,
    (RBAC, "Role"): _stored_role,
    (RBAC, "ClusterRole"): _stored_role,
}
