"""Handles update: replaces an object, its status or its scale.

Immutable metadata is taken from the stored object. A write without changes is not stored and causes no event.
"""

import msgspec

from argosy.local.apiserver import object_schema, representations
from argosy.local.apiserver.admission import complete_changed, drop_hidden
from argosy.local.apiserver.api import Call, arranged
from argosy.local.apiserver.create import check_version_number, create, read_admitted
from argosy.local.apiserver.escalation import check_grant
from argosy.local.apiserver.events import to_core
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.negotiation import Form, wanted_form
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.ownerrefs import drop_duplicate_owners
from argosy.local.apiserver.status import MODIFIED, bad_request, conflict, not_found
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.strategies import (
    COUNTS_ANNOTATIONS,
    COUNTS_GENERATIONS,
    CREATED_BY_UPDATE,
    NEEDS_VERSION,
    STATUS_KEEPS_LABELS,
)
from argosy.local.schema.errors import FieldError, forbidden, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.ssa.update import without_entries
from argosy.local.schema.unstructured import ensure, get_map, get_str, get_strings


async def update_object(call: Call) -> Response:
    form = wanted_form(call.request)
    options = write_options(call.request, "UpdateOptions")
    obj = await read_admitted(call, options)
    check_name(obj, call)
    drop_duplicate_owners(obj, call.request)
    served, name = call.served, call.target.name
    head = call.api.head(served, call.namespace, name)
    if head is None:
        if served.storage not in CREATED_BY_UPDATE or call.target.subresource:
            raise not_found(served.group, served.plural, name)
        check_uid(call, None, get_str(obj, "metadata", "uid"))
        return answer(await create(call, obj, options, admitted=True, implicit=True), call, form, 201)
    check_uid(call, head, get_str(obj, "metadata", "uid"))
    written = await update(call, head, obj, options, admitted=True)
    return answer(written, call, form)


def answer(written: Stored | Json, call: Call, form: Form, status: int = 200) -> Response:
    if isinstance(written, dict):
        return reply(written, status)
    return Response(representations.render(written, call.served, form) + b"\n", status)


def check_name(obj: Json, call: Call) -> None:
    name, wanted = get_str(obj, "metadata", "name"), call.target.name
    if not name:
        why = f"the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        raise bad_request(why)
    if name != wanted:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({wanted})")
    namespace = get_str(obj, "metadata", "namespace")
    if namespace and call.namespace and namespace != call.namespace:
        expected = f"the namespace on the request ({call.namespace})"
        raise bad_request(f"the namespace of the object ({namespace}) does not match {expected}")


async def update(
    call: Call,
    head: Stored,
    obj: Json,
    options: WriteOptions,
    *,
    managed: bool = False,
    patch: str | None = None,
    admitted: bool = False,
) -> Stored | Json:
    """Store `obj` as the next version of `head`; a dry run returns the object that would be stored.

    `managed` if its managedFields are up to date, `admitted` if it was decoded by its schema.
    """
    served, subresource = call.served, call.target.subresource
    old = head.decoded()
    if not admitted:
        if served.group == "events.k8s.io":
            obj = to_core(obj)
        obj = object_schema.admit_fields(
            obj, served, options.validation, call.request.warnings, patch=patch, applied=managed
        )
    drop_duplicate_owners(obj, call.request)
    _check_version(call, head, obj)
    _keep(obj, old, call)
    if not managed:
        obj = object_schema.track_update(old, obj, served, options.manager, subresource)
    _keep_deletion(obj, old)
    obj = complete_changed(call, obj, old)
    _count_generation(obj, old, call)
    if served.group == "rbac.authorization.k8s.io":
        check_grant(call, obj, old)
    if errors := [*_finalizer_errors(obj, old), *object_schema.validate(obj, served, old, subresource)]:
        raise object_schema.invalid_object(obj, served, head.name, errors)
    drop_hidden(call, obj)
    obj = {**obj, "kind": served.kind, "apiVersion": served.storage_version}
    unchanged = obj == old or _same_but_for_times(obj, old)
    if options.dry_run:
        return representations.as_served(old if unchanged else obj, served)
    if _is_finalized(obj, old):
        # Watchers get the object as it was stored; the client that removed the last finalizer, what it wrote.
        deleted = await call.api.put(served, old, delete=True)
        ensure(obj, "metadata")["resourceVersion"] = str(head.rv)
        return msgspec.structs.replace(deleted, rv=head.rv, data=msgspec.json.encode(arranged(obj, served)))
    if unchanged:
        return head
    return await call.api.put(served, obj)


def _same_but_for_times(obj: Json, old: Json) -> bool:
    """Return True if only times in managedFields have changed."""
    before, after = (get_map(item, "metadata").get("managedFields") for item in (old, obj))
    if not isinstance(before, list) or not isinstance(after, list) or len(before) != len(after):
        return False
    if before == after:
        return False  # something else has changed
    return all(
        {**left, "time": None} == {**right, "time": None} for left, right in zip(before, after, strict=True)
    ) and without_entries(obj) == without_entries(old)


def check_uid(call: Call, head: Stored | None, uid: str) -> None:
    """Raise 409 if the body has another uid than the stored object."""
    stored = get_str(head.decoded(), "metadata", "uid") if head is not None else ""
    if uid and uid != stored:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}"
        raise conflict(call.served.group, call.served.plural, call.target.name, why)


def _check_version(call: Call, head: Stored, obj: Json) -> None:
    served = call.served
    version = get_str(obj, "metadata", "resourceVersion")
    if version in ("", "0"):
        needs = served.custom is not None or served.storage in NEEDS_VERSION
        if needs:
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_error(served.group, served.plural, head.name, [error])
    elif version != str(head.rv):
        check_version_number(version)
        raise conflict(served.group, served.plural, head.name, MODIFIED)


_KEPT_METADATA = ("creationTimestamp", "generation", "resourceVersion")


def _keep(obj: Json, old: Json, call: Call) -> None:
    """Keep the fields of the stored object that this request cannot change."""
    metadata, old_metadata = ensure(obj, "metadata"), get_map(old, "metadata")
    served, subresource = call.served, call.target.subresource
    if subresource == "status":
        for field in [*obj, *old]:
            if field not in ("status", "metadata"):
                _copy(obj, old, field)
        obj["apiVersion"] = served.api_version
        if served.custom is not None:
            managed = metadata.get("managedFields")
            obj["metadata"] = metadata = dict(old_metadata)
            if managed is not None:
                metadata["managedFields"] = managed
        elif served.storage == "pods":
            _copy(metadata, old_metadata, "ownerReferences")
        elif served.storage in STATUS_KEEPS_LABELS:
            _copy(metadata, old_metadata, "labels")
    elif served.has_status:
        _copy(obj, old, "status")
    for field in _KEPT_METADATA:
        _copy(metadata, old_metadata, field)
    if not metadata.get("uid"):
        _copy(metadata, old_metadata, "uid")
    metadata.pop("selfLink", None)


def _keep_deletion(obj: Json, old: Json) -> None:
    """Keep the deletionTimestamp; this is after managedFields were updated, as in Kubernetes."""
    metadata, old_metadata = ensure(obj, "metadata"), get_map(old, "metadata")
    if "deletionTimestamp" in old_metadata:
        metadata["deletionTimestamp"] = old_metadata["deletionTimestamp"]
    if "deletionGracePeriodSeconds" in old_metadata and not metadata.get("deletionGracePeriodSeconds"):
        metadata["deletionGracePeriodSeconds"] = old_metadata["deletionGracePeriodSeconds"]


def _copy(obj: Json, old: Json, field: str) -> None:
    if field in old:
        obj[field] = old[field]
    else:
        obj.pop(field, None)


def _count_generation(obj: Json, old: Json, call: Call) -> None:
    served = call.served
    if call.target.subresource == "status":
        return
    if served.custom is not None:
        ignored = {"metadata", "apiVersion", "kind"} | ({"status"} if served.has_status else set())
        changed = _without(obj, ignored) != _without(old, ignored)
    else:
        ignored = {"metadata", "apiVersion", "kind", "status"}
        changed = served.storage in COUNTS_GENERATIONS and (
            _without(obj, ignored) != _without(old, ignored)
            or (served.storage in COUNTS_ANNOTATIONS and _annotations(obj) != _annotations(old))
        )
    if changed:
        metadata = ensure(obj, "metadata")
        generation = metadata.get("generation")
        metadata["generation"] = (generation if isinstance(generation, int) else 0) + 1


def _annotations(obj: Json) -> Json:
    return get_map(obj, "metadata", "annotations")


def _without(obj: Json, ignored: set[str]) -> Json:
    return {key: value for key, value in obj.items() if key not in ignored}


def _finalizer_errors(obj: Json, old: Json) -> list[FieldError]:
    if not get_str(old, "metadata", "deletionTimestamp"):
        return []
    added = sorted(
        set(get_strings(obj, "metadata", "finalizers")) - set(get_strings(old, "metadata", "finalizers"))
    )
    if not added:
        return []
    why = f"no new finalizers can be added if the object is being deleted: {', '.join(added)}"
    return [forbidden("metadata.finalizers", why)]


def _is_finalized(obj: Json, old: Json) -> bool:
    """Return True if this update removed the last finalizer of a terminating object."""
    metadata = get_map(old, "metadata")
    return bool(
        metadata.get("deletionTimestamp")
        and not metadata.get("deletionGracePeriodSeconds")
        and not get_strings(obj, "metadata", "finalizers")
        and not get_strings(obj, "spec", "finalizers")
    )
