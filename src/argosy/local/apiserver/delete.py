"""Delete one or many: preconditions, finalizers, propagation and, for pods, a grace period.

An object that something still holds on to is only marked; it goes when the last finalizer is taken away (see
`update`) or, for a pod that runs on a node, when the node agent deletes it with no grace.
"""

import datetime
from collections.abc import Sequence

import msgspec

from argosy.local.apiserver import representations
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import parse_json, read_object
from argosy.local.apiserver.continue_token import write_token
from argosy.local.apiserver.http import Request, Response, reply
from argosy.local.apiserver.negotiation import content_type, wanted_form
from argosy.local.apiserver.options import invalid_error
from argosy.local.apiserver.read import check_list
from argosy.local.apiserver.selection import read_selection
from argosy.local.apiserver.status import bad_request, conflict, forbidden, not_found, success
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.strategies import NEVER_COLLECTED, ORPHANS_BY_DEFAULT, RETURNED_WHEN_DELETED
from argosy.local.apiserver.timestamps import now_text, parse_time, text_of
from argosy.local.schema.builtin import definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.errors import FieldError, invalid, not_supported
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, number, parts, strings, text

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
    "them or set propagationPolicy=Orphan to suppress this warning"
)
_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_STAMPS = ("deletionTimestamp", "deletionGracePeriodSeconds")
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})


class Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, frozen=True, rename="camel"):
    grace_period_seconds: int | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None


async def delete_object(call: Call) -> Response:
    form = wanted_form(call.request, custom=call.served.custom is not None)
    options = await _read_options(call)
    _warn(call, options)
    head = call.api.head(call.served, call.namespace, call.target.name)
    if head is None:
        raise not_found(call.served.group, call.served.plural, call.target.name)
    _refuse_immortal(call)
    gone, left = await delete(call, head, options)
    served = call.served
    if gone and served.storage not in RETURNED_WHEN_DELETED:
        obj = msgspec.json.decode(left) if isinstance(left, bytes) else left.decoded()
        return reply(success(served.group, served.plural, head.name, text(obj, "metadata", "uid")))
    accepted = not gone and options.orphan_dependents is False
    if isinstance(left, bytes):
        return Response(left + b"\n")
    return Response(representations.render(left, served, form) + b"\n", 202 if accepted else 200)


async def delete_collection(call: Call) -> Response:
    wanted_form(call.request, custom=call.served.custom is not None)
    limit = check_list(call.request)
    selection = read_selection(call.request, call.served, call.namespace)
    options = await _read_options(call)
    _warn(call, options)
    objects = call.api.store.collection(call.served.storage).listed(selection.namespace)
    chosen = [stored for stored in objects if selection.matches(stored)]
    rest = len(chosen) - limit if 0 < limit < len(chosen) else 0
    chosen = chosen[: limit or None]
    deleted: list[Stored] = []
    for stored in chosen:
        head = call.api.head(call.served, stored.namespace, stored.name)
        if head is not None:
            await delete(call, head, options)
            deleted.append(head)  # shown as it was before
    more: Json = {}
    if rest:
        last = chosen[-1]
        more["continue"] = write_token(call.api.store.revision, f"{last.namespace}/{last.name}")
        if selection.everything:
            more["remainingItemCount"] = rest
    return _listed(call, deleted, more)


def _listed(call: Call, objects: Sequence[Stored], more: Json) -> Response:
    metadata: Json = {"continue": ""} if call.served.custom is not None else {}
    metadata |= more
    metadata["resourceVersion"] = str(call.api.store.revision)
    start = representations.list_start(call.served, metadata)
    return Response(
        start + b",".join([representations.item(stored, call.served) for stored in objects]) + b"]}\n"
    )


def _warn(call: Call, options: DeleteOptions) -> None:
    unsaid = options.propagation_policy is None and options.orphan_dependents is None
    if unsaid and call.served.storage == "jobs.batch":
        call.request.warnings.append(_PODS_STAY)


async def delete(call: Call, head: Stored, options: DeleteOptions) -> tuple[bool, Stored | bytes]:
    """Delete or mark an object. Answers whether it is gone, and its last version (bytes for a dry run)."""
    served = call.served
    obj = head.decoded()
    check_preconditions(call, head, obj, options)
    metadata = ensure(obj, "metadata")
    before = msgspec.json.encode(obj)
    if served.storage == DEFINITIONS and "deletionTimestamp" not in metadata:
        return await _delete_definition(call, obj, options)
    going = "deletionTimestamp" in metadata
    if served.storage == "namespaces" and going and strings(obj, "spec", "finalizers"):
        return False, head  # on its way out already, in the way that was asked for first
    stamps = [metadata.get(field) for field in _STAMPS]
    graceful, pending = _grace(call, obj, options)
    if pending:
        return False, head
    marked = stamps != [metadata.get(field) for field in _STAMPS]
    finalizers = _finalizers(call, obj, options)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    held = bool(finalizers) or bool(strings(obj, "spec", "finalizers"))
    if held and served.storage == "namespaces":
        metadata.setdefault("deletionTimestamp", now_text())
        ensure(obj, "status")["phase"] = "Terminating"
    elif held and not graceful and "deletionTimestamp" not in metadata:
        _mark(metadata, 0)
    gone = not held and not graceful
    after = msgspec.json.encode(obj)
    if options.dry_run:
        return gone, msgspec.json.encode(representations.as_served(obj, served))
    if not gone and after == before:
        return False, head
    if gone and marked:
        return True, await call.api.mark_and_delete(served, obj)
    # What goes without grace goes as it was, with the finalizers that this deletion took away.
    return gone, await call.api.put(served, head.decoded() if gone else obj, delete=gone)


async def _delete_definition(call: Call, obj: Json, options: DeleteOptions) -> tuple[bool, Stored | bytes]:
    """A definition goes when its objects have gone, which the server sees to."""
    metadata = ensure(obj, "metadata")
    metadata["deletionTimestamp"] = now_text()
    finalizers = strings(metadata, "finalizers")
    metadata["finalizers"] = finalizers if CLEANUP in finalizers else [*finalizers, CLEANUP]
    status = ensure(obj, "status")
    conditions = [c for c in parts(status, "conditions") if text(c, "type") != "Terminating"]
    condition: Json = {
        "type": "Terminating",
        "status": "True",
        "lastTransitionTime": now_text(),
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    }
    status["conditions"] = [*conditions, condition]
    if options.dry_run:
        return False, msgspec.json.encode(representations.as_served(obj, call.served))
    return False, await call.api.put(call.served, obj)


def check_preconditions(call: Call, head: Stored, obj: Json, options: DeleteOptions) -> None:
    wanted = options.preconditions
    if wanted is None:
        return
    served, uid = call.served, text(obj, "metadata", "uid")
    kind = served.plural if served.storage == "namespaces" else served.kind
    if wanted.uid is not None and wanted.uid != uid:
        why = (
            f"the UID in the precondition ({wanted.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(served.group, kind, head.name, why)
    if wanted.resource_version is not None and wanted.resource_version != str(head.rv):
        why = (
            f"the ResourceVersion in the precondition ({wanted.resource_version}) does not match "
            f"the ResourceVersion in record ({head.rv}). The object might have been modified"
        )
        raise conflict(served.group, kind, head.name, why)


def _grace(call: Call, obj: Json, options: DeleteOptions) -> tuple[bool, bool]:
    """Mark a pod for graceful deletion. (marked and to be kept, nothing to do because it is under way)."""
    if call.served.storage != "pods":
        return False, False
    metadata = ensure(obj, "metadata")
    asked = options.grace_period_seconds
    asked = 1 if asked is not None and asked < 0 else asked
    if "deletionTimestamp" in metadata:
        return _shorten(metadata, asked)
    seconds = asked if asked is not None else number(obj, "spec", "terminationGracePeriodSeconds")
    if not text(obj, "spec", "nodeName") or text(obj, "status", "phase") in ("Succeeded", "Failed"):
        seconds = 0
    _mark(metadata, seconds)
    return seconds > 0, False


def _shorten(metadata: Json, asked: int | None) -> tuple[bool, bool]:
    current = number(metadata, "deletionGracePeriodSeconds")
    if current == 0:
        return False, False
    if asked is None or asked >= current:
        return False, True
    now = datetime.datetime.now(datetime.UTC)
    marked = parse_time(text(metadata, "deletionTimestamp"))
    moment = marked + datetime.timedelta(seconds=asked - current)
    if moment < now:
        moment = now
        asked = 1 if asked else 0
    metadata["deletionTimestamp"] = text_of(moment)
    metadata["deletionGracePeriodSeconds"] = asked
    return asked > 0, False


def _mark(metadata: Json, seconds: int) -> None:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    metadata["deletionTimestamp"] = text_of(moment)
    metadata["deletionGracePeriodSeconds"] = seconds
    generation = metadata.get("generation")
    if isinstance(generation, int) and generation > 0:
        metadata["generation"] = generation + 1


def _finalizers(call: Call, obj: Json, options: DeleteOptions) -> list[str]:
    """The finalizers with those for garbage collection as this deletion wants them."""
    there = strings(obj, "metadata", "finalizers")
    storage = call.served.storage
    if storage in NEVER_COLLECTED:
        return there
    if options.orphan_dependents is not None:
        orphan = options.orphan_dependents
        foreground = storage == "namespaces" and not orphan
    elif options.propagation_policy is not None:
        orphan = options.propagation_policy == "Orphan"
        foreground = options.propagation_policy == "Foreground"
    else:
        foreground = FOREGROUND in there
        orphan = not foreground and (ORPHAN in there or storage in ORPHANS_BY_DEFAULT)
    kept = [name for name in there if name not in (ORPHAN, FOREGROUND)]
    wanted = kept + [ORPHAN] * orphan + [FOREGROUND] * foreground
    return there if set(there) == set(wanted) else wanted


async def _read_options(call: Call) -> DeleteOptions:
    request = call.request
    options = DeleteOptions()
    if await request.body():
        body = await _read_body(request)
        kind, version = body.get("kind", "DeleteOptions"), body.get("apiVersion", "v1")
        if kind != "DeleteOptions":
            raise bad_request(f"{kind} of {version} cannot be handled as DeleteOptions")
        try:
            decode(body, definition(_OPTIONS))
        except DecodeError as error:
            raise bad_request(str(error)) from error
        options = msgspec.convert(body, DeleteOptions)
    else:
        options = DeleteOptions(
            grace_period_seconds=request.integer("gracePeriodSeconds"),
            propagation_policy=request.parameter("propagationPolicy")
            if "propagationPolicy" in request.query
            else None,
            orphan_dependents=request.flag("orphanDependents")
            if "orphanDependents" in request.query
            else None,
            dry_run=request.query.get("dryRun"),
        )
    _check(options)
    return options


async def _read_body(request: Request) -> Json:
    if content_type(request) in ("", "application/json"):
        return parse_json(await request.body())
    return await read_object(request, "DeleteOptions")


def _check(options: DeleteOptions) -> None:
    errors: list[FieldError] = []
    if options.propagation_policy is not None and options.orphan_dependents is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", options.propagation_policy, why))
    if options.propagation_policy not in (None, "Foreground", "Background", "Orphan"):
        errors.append(
            not_supported(
                "propagationPolicy", options.propagation_policy, ["Foreground", "Background", "Orphan", "nil"]
            )
        )
    if options.dry_run and any(value != "All" for value in options.dry_run):
        errors.append(not_supported("dryRun", options.dry_run, ["All"]))
    if errors:
        raise invalid_error("meta.k8s.io", "DeleteOptions", "", errors)


def _refuse_immortal(call: Call) -> None:
    name = call.target.name
    if call.served.storage == "namespaces" and name in _IMMORTAL:
        raise forbidden("", "namespaces", name, "this namespace may not be deleted")
