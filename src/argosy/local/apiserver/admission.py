"""What the server itself adds to, or holds against, objects on their way in."""

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.pod_admission import add_tolerations, admit_pod, keep_priority, known_as
from argosy.local.apiserver.rbac import asked_of, denied
from argosy.local.apiserver.services import begin_create, begin_update
from argosy.local.apiserver.status import forbidden, not_found
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.defaults.objects import apply_defaults, prepare_for_create, prepare_for_update
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, part, text
from argosy.local.schema.validation.service import drop_by_type


def admit(call: Call, obj: Json) -> None:
    """Admission of a new object, which comes before its name is made up."""
    if call.served.namespaced:
        _check_namespace(call, obj)
    if call.served.storage == "pods":
        admit_pod(call, obj)


def _check_namespace(call: Call, obj: Json) -> None:
    """Nothing is created in a namespace that is missing or on its way out."""
    served, namespace = call.served, call.namespace
    stored = call.api.store.head("namespaces", "", namespace)
    if stored is None:
        raise not_found("", "namespaces", namespace)
    if b'"deletionTimestamp"' in stored.data and text(stored.decoded(), "metadata", "deletionTimestamp"):
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        error = forbidden(served.group, served.plural, known_as(obj), why)
        assert error.details is not None
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        error.details["causes"] = [cause]
        raise error


def begin(call: Call, obj: Json, *, dry: bool) -> Json:
    """Complete a new object; in a dry run nothing is taken for it."""
    if call.served.storage == "services":
        begin_create(call, obj, dry=dry)
    if call.served.builtin is not None:
        prepare_for_create(call.served.group, call.served.kind, obj, time=now_text())
    if call.served.storage == "jobs.batch":
        apply_defaults("batch", "Job", obj)  # a job takes the labels of its template, which are set only now
    return obj


def admit_update(call: Call, obj: Json, old: Json, *, dry: bool) -> Json:
    """Complete a changed object; in a dry run nothing is taken for it."""
    if call.served.builtin is not None:
        prepare_for_update(call.served.group, call.served.kind, obj, old)
    if call.served.storage == "jobs.batch":
        apply_defaults("batch", "Job", obj)  # it may just have lost labels that it takes from its template
    match call.served.storage:
        case "namespaces" if call.target.subresource != "finalize":
            spec, old_spec = ensure(obj, "spec"), part(old, "spec")
            if "finalizers" in old_spec:
                spec["finalizers"] = old_spec["finalizers"]
        case "pods" if not call.target.subresource:
            keep_priority(ensure(obj, "spec"), part(old, "spec"))
            add_tolerations(ensure(obj, "spec"))
        case "services" if call.target.subresource != "status":
            begin_update(call, obj, old, dry=dry)
            drop_by_type(obj, old)
    return obj


def settle(call: Call, obj: Json) -> None:
    """Take away what Kubernetes checks, and then shows nobody."""
    if call.served.storage == "services" and text(obj, "spec", "type") == "ExternalName":
        part(obj, "spec").pop("internalTrafficPolicy", None)


def check_may_create(call: Call) -> None:
    """What an update or apply makes where nothing was must be allowed to be created."""
    asked = asked_of(call.request, call.target, "create")
    if not call.api.authorizer.allowed(asked)[0]:
        raise denied(asked)
