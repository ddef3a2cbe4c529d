"""Parts of an object with a life of their own: a namespace's finalizers, binding, tokens."""

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import read_object
from argosy.local.apiserver.create import read_admitted
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.options import invalid_error, write_options
from argosy.local.apiserver.pod_admission import bind_pod, gated
from argosy.local.apiserver.read import find
from argosy.local.apiserver.status import (
    MODIFIED,
    StatusError,
    bad_request,
    conflict,
    not_found,
)
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.timestamps import now_text, text_of
from argosy.local.apiserver.tokens import ISSUER, Signer
from argosy.local.apiserver.update import answer, update
from argosy.local.schema.errors import FieldError, invalid, not_supported, required
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_map, get_str

CREATED: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


async def finalize_namespace(call: Call) -> Response:
    """Replace the finalizers in the spec of a namespace; without any it is deleted."""
    options = write_options(call.request, "UpdateOptions")
    obj = await read_admitted(call, options)
    head = call.head()
    old = head.decoded()
    old_spec = ensure(old, "spec")
    finalizers = get_map(obj, "spec").get("finalizers") or []
    changed = {**old, "spec": {**old_spec, "finalizers": finalizers}}
    if not finalizers:
        changed["spec"] = {key: value for key, value in old_spec.items() if key != "finalizers"}
    version = get_str(obj, "metadata", "resourceVersion")
    if version:
        ensure(changed, "metadata")["resourceVersion"] = version
    return answer(await update(call, head, changed, options), call, "object")


async def bind(call: Call) -> Response:
    """Assign a pod to a node, once."""
    binding = await read_object(call.request, "Binding")
    dry_run = bool(write_options(call.request, "CreateOptions").dry_run)
    node, kind = get_str(binding, "target", "name"), get_str(binding, "target", "kind")
    errors = [] if kind in ("", "Node") else [not_supported("target.kind", kind, ("Node", "<empty>"))]
    if not node:
        errors.append(required("target.name"))
    if errors:
        raise invalid_error("", "Binding", call.target.name, errors)
    pods = call.api.registry.find("", "v1", "pods")
    assert pods is not None
    name = call.target.name or get_str(binding, "metadata", "name")
    head = call.api.head(pods, call.namespace, name)
    if head is None:
        raise not_found("", "pods", name)
    pod = head.decoded()
    _check_binding(binding, pod, head)
    bind_pod(pod, node, get_map(binding, "metadata", "annotations"), get_map(binding, "metadata", "labels"))
    if not dry_run:
        await call.api.put(pods, pod)
    return reply(CREATED, 201)


def _check_binding(binding: Json, pod: Json, head: Stored) -> None:
    name, node = head.name, get_str(pod, "spec", "nodeName")
    uid, version = get_str(binding, "metadata", "uid"), get_str(binding, "metadata", "resourceVersion")
    if uid and uid != get_str(pod, "metadata", "uid"):
        actual = get_str(pod, "metadata", "uid")
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {actual}"
        raise conflict("", "pods", name, why)
    if version and version != str(head.rv):
        raise conflict("", "pods", name, MODIFIED)
    why = ""
    if get_str(pod, "metadata", "deletionTimestamp"):
        why = f"pod {name} is being deleted, cannot be assigned to a host"
    elif node:
        why = f'pod {name} is already assigned to node "{node}"'
    elif gated(pod):
        why = f"pod {name} has non-empty .spec.schedulingGates"
    if why:
        raise conflict("", "pods/binding", name, why)


async def request_token(call: Call, signer: Signer) -> Response:
    """Sign a token for a service account, bound to a pod if the request has one."""
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
    bound = _bound(call, get_map(spec, "boundObjectRef"))
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
    kind, name, uid = get_str(reference, "kind"), get_str(reference, "name"), get_str(reference, "uid")
    storages = {"Pod": "pods", "Secret": "secrets"}
    if kind not in storages:
        raise bad_request(
            f"cannot bind token to object of type {get_str(reference, 'apiVersion')}, Kind={kind}"
        )
    stored = call.api.store.collection(storages[kind]).get(call.namespace, name)
    if stored is None:
        raise not_found("", storages[kind], name)
    obj = stored.decoded()
    real = get_str(obj, "metadata", "uid")
    if uid and uid != real:
        why = (
            f"the UID in the bound object reference ({uid}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise StatusError(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', None)
    if kind == "Pod" and get_str(obj, "spec", "serviceAccountName") != call.target.name:
        raise bad_request(
            f'cannot bind token for serviceaccount "{call.target.name}" to pod running '
            "with different serviceaccount name."
        )
    bound: Json = {"kind": kind, "name": name, "uid": real}
    node = call.api.store.collection("nodes").get("", get_str(obj, "spec", "nodeName"))
    if kind == "Pod" and node is not None:
        bound["node"] = {"name": node.name, "uid": get_str(node.decoded(), "metadata", "uid")}
    return bound
