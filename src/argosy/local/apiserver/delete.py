"""Handles delete and deletecollection: preconditions, finalizers, propagation, and the grace period of pods.

An object with finalizers only gets a deletionTimestamp; it is deleted when an update removes the last one
(see `update`). A pod on a node is deleted when the node agent deletes it with a grace period of 0.
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
from argosy.local.apiserver.status import bad_request, conflict, forbidden, success
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.strategies import NEVER_COLLECTED, ORPHANS_BY_DEFAULT, RETURNED_WHEN_DELETED
from argosy.local.apiserver.timestamps import now_text, parse_time, text_of
from argosy.local.schema.builtin import definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.errors import FieldError, invalid, not_supported
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_int, get_maps, get_str, get_strings

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
_PODS_STAY = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove "
    "them or set propagationPolicy=Orphan to suppress this warning"
)
_OPTIONS = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
_STAMPS = ("deletionTimestamp", "deletionGracePeriodSeconds")
_PROTECTED_NAMESPACES = frozenset({"default", "kube-system", "kube-public"})


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
    form = wanted_form(call.request)
    options = await _read_options(call)
    _warn(call, options)
    head = call.head()
    _check_protected(call)
    gone, left = await delete(call, head, options)
    served = call.served
    if gone and served.storage not in RETURNED_WHEN_DELETED:
        obj = msgspec.json.decode(left) if isinstance(left, bytes) else left.decoded()
        return reply(success(served.group, served.plural, head.name, get_str(obj, "metadata", "uid")))
    accepted = not gone and options.orphan_dependents is False
    if isinstance(left, bytes):
        return Response(left + b"\n")
    return Response(representations.render(left, served, form) + b"\n", 202 if accepted else 200)


async def delete_collection(call: Call) -> Response:
    wanted_form(call.request)
    limit = check_list(call.request)
    selection = read_selection(call.request, call.served, call.namespace)
    options = await _read_options(call)
    _warn(call, options)
    objects = call.api.store.collection(call.served.storage).listed(selection.namespace)
    chosen = [stored for stored in objects if selection.matches(stored)]
    remaining = len(chosen) - limit if 0 < limit < len(chosen) else 0
    chosen = chosen[: limit or None]
    deleted: list[Stored] = []
    for stored in chosen:
        head = call.api.head(call.served, stored.namespace, stored.name)
        if head is not None:
            await delete(call, head, options)
            deleted.append(head)  # the response shows the objects before the deletion
    more: Json = {}
    if remaining:
        last = chosen[-1]
        more["continue"] = write_token(call.api.store.revision, f"{last.namespace}/{last.name}")
        if selection.everything:
            more["remainingItemCount"] = remaining
    return _list_response(call, deleted, more)


def _list_response(call: Call, objects: Sequence[Stored], more: Json) -> Response:
    metadata: Json = {"continue": ""} if call.served.custom is not None else {}
    metadata |= more
    metadata["resourceVersion"] = str(call.api.store.revision)
    start = representations.list_start(call.served, metadata)
    return Response(
        start + b",".join([representations.item(stored, call.served) for stored in objects]) + b"]}\n"
    )


def _warn(call: Call, options: DeleteOptions) -> None:
    is_default = options.propagation_policy is None and options.orphan_dependents is None
    if is_default and call.served.storage == "jobs.batch":
        call.request.warnings.append(_PODS_STAY)


async def delete(call: Call, head: Stored, options: DeleteOptions) -> tuple[bool, Stored | bytes]:
    """Delete or mark an object; return whether it is deleted, and its last version (bytes for a dry run)."""
    served = call.served
    obj = head.decoded()
    check_preconditions(call, head, obj, options)
    metadata = ensure(obj, "metadata")
    before = msgspec.json.encode(obj)
    if served.storage == DEFINITIONS and "deletionTimestamp" not in metadata:
        return await _delete_definition(call, obj, options)
    is_terminating = "deletionTimestamp" in metadata
    if served.storage == "namespaces" and is_terminating and get_strings(obj, "spec", "finalizers"):
        return False, head  # the options of the first deletion apply
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
    held = bool(finalizers) or bool(get_strings(obj, "spec", "finalizers"))
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
    # The last version of an object is the one before the deletion, with the finalizers that this one removed.
    return gone, await call.api.put(served, head.decoded() if gone else obj, delete=gone)


async def _delete_definition(call: Call, obj: Json, options: DeleteOptions) -> tuple[bool, Stored | bytes]:
    """Mark a definition for deletion; `crds` deletes it after its objects."""
    metadata = ensure(obj, "metadata")
    metadata["deletionTimestamp"] = now_text()
    finalizers = get_strings(metadata, "finalizers")
    metadata["finalizers"] = finalizers if CLEANUP in finalizers else [*finalizers, CLEANUP]
    status = ensure(obj, "status")
    conditions = [c for c in get_maps(status, "conditions") if get_str(c, "type") != "Terminating"]
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
    served, uid = call.served, get_str(obj, "metadata", "uid")
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
    """Mark a pod for graceful deletion; return whether it is kept, and whether nothing changed."""
    if call.served.storage != "pods":
        return False, False
    metadata = ensure(obj, "metadata")
    requested = options.grace_period_seconds
    requested = 1 if requested is not None and requested < 0 else requested
    if "deletionTimestamp" in metadata:
        return _shorten(metadata, requested)
    seconds = requested if requested is not None else get_int(obj, "spec", "terminationGracePeriodSeconds")
    if not get_str(obj, "spec", "nodeName") or get_str(obj, "status", "phase") in ("Succeeded", "Failed"):
        seconds = 0
    _mark(metadata, seconds)
    return seconds > 0, False


def _shorten(metadata: Json, requested: int | None) -> tuple[bool, bool]:
    current = get_int(metadata, "deletionGracePeriodSeconds")
    if current == 0:
        return False, False
    if requested is None or requested >= current:
        return False, True
    now = datetime.datetime.now(datetime.UTC)
    marked = parse_time(get_str(metadata, "deletionTimestamp"))
    moment = marked + datetime.timedelta(seconds=requested - current)
    if moment < now:
        moment = now
        requested = 1 if requested else 0
    metadata["deletionTimestamp"] = text_of(moment)
    metadata["deletionGracePeriodSeconds"] = requested
    return requested > 0, False


def _mark(metadata: Json, seconds: int) -> None:
    moment = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    metadata["deletionTimestamp"] = text_of(moment)
    metadata["deletionGracePeriodSeconds"] = seconds
    generation = metadata.get("generation")
    if isinstance(generation, int) and generation > 0:
        metadata["generation"] = generation + 1


def _finalizers(call: Call, obj: Json, options: DeleteOptions) -> list[str]:
    """Return the finalizers, with those of garbage collection as this deletion requires."""
    current = get_strings(obj, "metadata", "finalizers")
    storage = call.served.storage
    if storage in NEVER_COLLECTED:
        return current
    if options.orphan_dependents is not None:
        orphan = options.orphan_dependents
        foreground = storage == "namespaces" and not orphan
    elif options.propagation_policy is not None:
        orphan = options.propagation_policy == "Orphan"
        foreground = options.propagation_policy == "Foreground"
    else:
        foreground = FOREGROUND in current
        orphan = not foreground and (ORPHAN in current or storage in ORPHANS_BY_DEFAULT)
    kept = [name for name in current if name not in (ORPHAN, FOREGROUND)]
    wanted = kept + [ORPHAN] * orphan + [FOREGROUND] * foreground
    return current if set(current) == set(wanted) else wanted


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


def _check_protected(call: Call) -> None:
    name = call.target.name
    if call.served.storage == "namespaces" and name in _PROTECTED_NAMESPACES:
        raise forbidden("", "namespaces", name, "this namespace may not be deleted")
