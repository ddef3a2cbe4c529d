"""Admission: what the server checks and fills in before an object is validated."""

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.pod_admission import add_tolerations, admission_name, admit_pod, keep_priority
from argosy.local.apiserver.rbac import attributes_of, denied
from argosy.local.apiserver.services import allocate_changed, allocate_new
from argosy.local.apiserver.status import forbidden, not_found
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.defaults.objects import apply_defaults, prepare_for_create, prepare_for_update
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_map, get_str
from argosy.local.schema.validation.service import drop_by_type


def admit(call: Call, obj: Json) -> None:
    """Admit a new object, before its name is generated."""
    if call.served.namespaced:
        _check_namespace(call, obj)
    if call.served.storage == "pods":
        admit_pod(call, obj)


def _check_namespace(call: Call, obj: Json) -> None:
    """Reject objects that are created in a namespace that does not exist or is terminating."""
    served, namespace = call.served, call.namespace
    stored = call.api.store.head("namespaces", "", namespace)
    if stored is None:
        raise not_found("", "namespaces", namespace)
    if b'"deletionTimestamp"' in stored.data and get_str(stored.decoded(), "metadata", "deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        error = forbidden(served.group, served.plural, admission_name(obj), why)
        assert error.details is not None
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        error.details["causes"] = [cause]
        raise error


def complete_new(call: Call, obj: Json) -> Json:
    """Fill in the fields that the server sets in a new object."""
    if call.served.storage == "namespaces":
        ensure(obj, "metadata", "labels")["kubernetes.io/metadata.name"] = get_str(obj, "metadata", "name")
    if call.served.storage == "services":
        allocate_new(call, obj)
    if call.served.builtin is not None:
        prepare_for_create(call.served.group, call.served.kind, obj, time=now_text())
    if call.served.storage == "jobs.batch":
        apply_defaults("batch", "Job", obj)  # a job without labels takes those of its template
    return obj


def complete_changed(call: Call, obj: Json, old: Json) -> Json:
    """Fill in the fields that the server sets in a changed object, and keep those that it owns."""
    if call.served.builtin is not None:
        prepare_for_update(call.served.group, call.served.kind, obj, old)
    if call.served.storage == "jobs.batch":
        apply_defaults("batch", "Job", obj)  # a job without labels takes those of its template
    match call.served.storage:
        case "namespaces" if call.target.subresource != "finalize":
            spec, old_spec = ensure(obj, "spec"), get_map(old, "spec")
            if "finalizers" in old_spec:
                spec["finalizers"] = old_spec["finalizers"]
        case "pods" if not call.target.subresource:
            keep_priority(ensure(obj, "spec"), get_map(old, "spec"))
            add_tolerations(ensure(obj, "spec"))
        case "services" if call.target.subresource != "status":
            allocate_changed(call, obj, old)
            drop_by_type(obj, old)
    return obj


def drop_hidden(call: Call, obj: Json) -> None:
    """Drop fields that Kubernetes validates and does not return."""
    if call.served.storage == "services" and get_str(obj, "spec", "type") == "ExternalName":
        get_map(obj, "spec").pop("internalTrafficPolicy", None)


def check_may_create(call: Call) -> None:
    """Raise 403 unless the user may create the object, which an update or apply creates."""
    attributes = attributes_of(call.request, call.target, "create")
    if not call.api.authorizer.allowed(attributes)[0]:
        raise denied(attributes)
