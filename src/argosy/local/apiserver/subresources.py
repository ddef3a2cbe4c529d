"""Parts of an object with a life of their own: scale, a namespace's finalizers, binding, eviction, tokens."""

import msgspec

from argosy.local.apiserver import delete as deletion
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import read_object
from argosy.local.apiserver.create import read_admitted
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.media import content_type
from argosy.local.apiserver.objects import ensure, labels_of
from argosy.local.apiserver.options import invalid_error, write_options
from argosy.local.apiserver.patching import APPLY_PATCH, check_patch_type, patch_json
from argosy.local.apiserver.podadmission import bind_pod, gated
from argosy.local.apiserver.read import find
from argosy.local.apiserver.status import (
    MODIFIED,
    StatusError,
    bad_request,
    conflict,
    internal,
    not_found,
    too_many_requests,
    unsupported_media_type,
)
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.times import now_text, text_of
from argosy.local.apiserver.tokens import ISSUER, Signer
from argosy.local.apiserver.update import answer, check_name, update
from argosy.local.schema.builtin import definition
from argosy.local.schema.decoding import DecodeError, decode
from argosy.local.schema.errors import FieldError, invalid, required
from argosy.local.schema.model import Json
from argosy.local.schema.printing import selector_text
from argosy.local.schema.reading import number, part, text
from argosy.local.schema.selectors import selector_from
from argosy.local.schema.strategic import go_map

_CREATED: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def head_of(call: Call) -> Stored:
    head = call.api.head(call.served, call.namespace, call.target.name)
    if head is None:
        raise not_found(call.served.group, call.served.plural, call.target.name)
    return head


async def scale(call: Call) -> Response:
    """Get, update or patch the number of replicas alone."""
    if call.request.method == "GET":
        obj = find(call).decoded()
        _check_replicas(call, obj)
        return reply(_scale_of(call, obj))
    if call.request.method == "PATCH" and call.served.custom is not None:
        check_patch_type(call)
    options = write_options(call.request, "UpdateOptions" if call.request.method == "PUT" else "PatchOptions")
    wanted: Json = {}
    if call.request.method == "PUT":
        wanted = _read_scale(await read_object(call.request, "Scale"), call)
        check_name(wanted, call)
    head = head_of(call)
    obj = head.decoded()
    current = _scale_of(call, obj)
    if call.request.method == "PATCH":
        kind = content_type(call.request)
        if kind == APPLY_PATCH:
            raise unsupported_media_type(["application/json-patch+json", "application/merge-patch+json"])
        wanted = _read_scale(patch_json(current, await call.request.body(), kind, call), call)
    version = text(wanted, "metadata", "resourceVersion")
    if version and version != str(head.rv):
        raise conflict(call.served.group, call.served.plural, head.name, MODIFIED)
    replicas = part(wanted, "spec").get("replicas", 0)
    if not isinstance(replicas, int) or replicas < 0:
        if call.served.custom is None:
            error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
            raise invalid_error("autoscaling", "Scale", head.name, [error])
        field = text(call.served.custom.scale, "specReplicasPath")
        error = invalid(field, replicas, "should be a non-negative integer")
        raise invalid_error(call.served.group, call.served.kind, head.name, [error])
    path = _replicas_path(call)
    ensure(obj, *path[:-1])[path[-1]] = replicas
    obj["apiVersion"] = call.served.api_version
    # Where there were no replicas Kubernetes sees no change of hands.
    unowned = call.served.custom is not None and part(head.decoded(), *path[:-1]).get(path[-1]) is None
    written = await update(call, head, obj, options, managed=unowned)
    return reply(_scale_of(call, written if isinstance(written, dict) else written.decoded()))


def _check_replicas(call: Call, obj: Json) -> None:
    """A custom resource that does not say its replicas cannot be asked for them."""
    path = _replicas_path(call)
    if call.served.custom is not None and part(obj, *path[:-1]).get(path[-1]) is None:
        raise internal(f'the spec replicas field ".{".".join(path)}" does not exist')


def _read_scale(wanted: Json, call: Call) -> Json:
    """A scale that was sent, or patched, in the types it has."""
    for field, meant in (("kind", "Scale"), ("apiVersion", "autoscaling/v1")):
        wanted[field] = wanted.get(field) or meant
    if (wanted["kind"], wanted["apiVersion"]) != ("Scale", "autoscaling/v1"):
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        raise bad_request(f"no kind is registered for the type v1.Scale {where}")
    try:
        decode(wanted, definition("io.k8s.api.autoscaling.v1.Scale"), "Scale")
    except DecodeError as error:
        if call.request.method == "PATCH":
            raise invalid_error("", "", "", [invalid("patch", go_map(wanted), str(error))]) from error
        if call.served.custom is not None:
            where = 'in scheme "pkg/runtime/scheme.go:111"'
            raise bad_request(f"no kind is registered for the type v1.Scale {where}") from error
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from error
    return wanted


def _replicas_path(call: Call) -> list[str]:
    custom = call.served.custom
    path = text(custom.scale, "specReplicasPath") if custom else ".spec.replicas"
    return path.removeprefix(".").split(".")


def _scale_of(call: Call, obj: Json) -> Json:
    custom, metadata = call.served.custom, part(obj, "metadata")
    path = _replicas_path(call)
    status_path = text(custom.scale, "statusReplicasPath") if custom else ".status.replicas"
    status: Json = {"replicas": number(obj, *status_path.removeprefix(".").split("."))}
    selector = _selector_text(call, obj)
    if selector:
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = number(obj, *path)
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(call: Call, obj: Json) -> str:
    custom = call.served.custom
    if custom is not None:
        path = text(custom.scale, "labelSelectorPath")
        return text(obj, *path.removeprefix(".").split(".")) if path else ""
    selector = part(obj, "spec", "selector")
    if call.served.storage == "replicationcontrollers":
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return selector_text(selector) if selector else ""


async def finalize_namespace(call: Call) -> Response:
    """Replace a namespace's own finalizers; taking the last away ends it."""
    options = write_options(call.request, "UpdateOptions")
    obj = await read_admitted(call, options)
    head = head_of(call)
    old = head.decoded()
    old_spec = ensure(old, "spec")
    finalizers = part(obj, "spec").get("finalizers") or []
    changed = {**old, "spec": {**old_spec, "finalizers": finalizers}}
    if not finalizers:
        changed["spec"] = {key: value for key, value in old_spec.items() if key != "finalizers"}
    version = text(obj, "metadata", "resourceVersion")
    if version:
        ensure(changed, "metadata")["resourceVersion"] = version
    return answer(await update(call, head, changed, options), call, "object")


async def bind(call: Call) -> Response:
    """Assign a pod to a node, once."""
    binding = await read_object(call.request, "Binding")
    dry_run = bool(write_options(call.request, "CreateOptions").dry_run)
    node = text(binding, "target", "name")
    if not node:
        raise invalid_error("", "Binding", call.target.name, [required("target.name")])
    pods = call.api.registry.find("", "v1", "pods")
    assert pods is not None
    name = call.target.name or text(binding, "metadata", "name")
    head = call.api.head(pods, call.namespace, name)
    if head is None:
        raise not_found("", "pods", name)
    pod = head.decoded()
    _check_binding(binding, pod, head)
    bind_pod(pod, node, part(binding, "metadata", "annotations"), part(binding, "metadata", "labels"))
    if not dry_run:
        await call.api.put(pods, pod)
    return reply(_CREATED, 201)


def _check_binding(binding: Json, pod: Json, head: Stored) -> None:
    name, there = head.name, text(pod, "spec", "nodeName")
    uid, version = text(binding, "metadata", "uid"), text(binding, "metadata", "resourceVersion")
    if uid and uid != text(pod, "metadata", "uid"):
        there = text(pod, "metadata", "uid")
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {there}"
        raise conflict("", "pods", name, why)
    if version and version != str(head.rv):
        raise conflict("", "pods", name, MODIFIED)
    why = ""
    if text(pod, "metadata", "deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif there:
        why = f'pod {name} is already assigned to node "{there}"'
    elif gated(pod):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("", "pods/binding", name, why)


async def evict(call: Call) -> Response:
    """Delete a pod if its disruption budgets allow it."""
    eviction = await read_object(call.request, "Eviction")
    try:
        options = msgspec.convert(part(eviction, "deleteOptions"), deletion.DeleteOptions)
    except msgspec.ValidationError as error:
        raise bad_request(f"Eviction: {error}") from error
    name = text(eviction, "metadata", "name")
    if name and name != call.target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    head = head_of(call)
    pod = head.decoded()
    if text(pod, "status", "phase") not in ("Succeeded", "Failed", "Pending"):
        await _use_budget(call, pod)
    await deletion.delete(call, head_of(call), options)
    return reply(_CREATED, 201)


async def _use_budget(call: Call, pod: Json) -> None:
    budgets = call.api.registry.find("policy", "v1", "poddisruptionbudgets")
    assert budgets is not None
    labels = labels_of(pod, "metadata", "labels")
    for stored in call.api.store.collection(budgets.storage).listed(call.namespace):
        head = call.api.head(budgets, stored.namespace, stored.name)
        budget = head.decoded() if head else {}
        selector = part(budget, "spec").get("selector")
        if not isinstance(selector, dict) or not selector_from(selector).matches(labels):
            continue
        status = ensure(budget, "status")
        allowed = number(status, "disruptionsAllowed")
        if allowed <= 0:
            healthy, wanted = number(status, "currentHealthy"), number(status, "desiredHealthy")
            cause: Json = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {stored.name} needs {wanted} healthy pods "
                f"and has {healthy} currently",
            }
            raise too_many_requests(
                "Cannot evict pod as it would violate the pod's disruption budget.", 0, [cause]
            )
        status["disruptionsAllowed"] = allowed - 1
        ensure(status, "disruptedPods")[text(pod, "metadata", "name")] = now_text()
        await call.api.put(budgets, budget)


async def request_token(call: Call, signer: Signer) -> Response:
    """Sign a token for a service account, bound to a pod if asked."""
    import datetime

    request = await read_object(call.request, "TokenRequest")
    account = find(call).decoded()
    spec = ensure(request, "spec")
    seconds = spec.setdefault("expirationSeconds", 3600)
    audiences = spec.get("audiences") or [ISSUER]
    errors: list[FieldError] = []
    if not isinstance(seconds, int) or seconds < 600:
        errors.append(
            invalid("spec.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
        )
    if errors:
        raise invalid_error("authentication.k8s.io", "TokenRequest", "", errors)
    assert isinstance(seconds, int)
    assert isinstance(audiences, list)
    bound = _bound(call, part(spec, "boundObjectRef"))
    token, end = signer.sign(account, [str(a) for a in audiences], seconds, bound)
    spec["audiences"] = audiences
    spec.setdefault("boundObjectRef", None)
    request["metadata"] = {
        "name": call.target.name,
        "namespace": call.namespace,
        "creationTimestamp": now_text(),
    }
    request.update({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"})
    ends = text_of(datetime.datetime.fromtimestamp(end, datetime.UTC))
    request["status"] = {"token": token, "expirationTimestamp": ends}
    return reply(request, 201)


def _bound(call: Call, reference: Json) -> Json | None:
    if not reference:
        return None
    kind, name, uid = text(reference, "kind"), text(reference, "name"), text(reference, "uid")
    storages = {"Pod": "pods", "Secret": "secrets"}
    if kind not in storages:
        raise bad_request(f"cannot bind token to object of type {text(reference, 'apiVersion')}, Kind={kind}")
    stored = call.api.store.collection(storages[kind]).get(call.namespace, name)
    if stored is None:
        raise not_found("", storages[kind], name)
    obj = stored.decoded()
    real = text(obj, "metadata", "uid")
    if uid and uid != real:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise StatusError(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', None)
    if kind == "Pod" and text(obj, "spec", "serviceAccountName") != call.target.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{call.target.name}" to pod running '
            "with different serviceaccount name."
        )
    bound: Json = {"kind": kind, "name": name, "uid": real}
    node = call.api.store.collection("nodes").get("", text(obj, "spec", "nodeName"))
    if kind == "Pod" and node is not None:
        bound["node"] = {"name": node.name, "uid": text(node.decoded(), "metadata", "uid")}
    return bound
