"""Create: from a body to a stored object with everything that the server adds."""

import msgspec

from argosy.local.apiserver import forms, shape
from argosy.local.apiserver.admission import admit, begin, check_may_create, settle
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import duplicate_fields, go_kind, read_object
from argosy.local.apiserver.escalation import check_grant
from argosy.local.apiserver.events import to_core
from argosy.local.apiserver.fresh import fresh_metadata, prepare
from argosy.local.apiserver.furnish import furnish
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.media import content_type, wanted_form
from argosy.local.apiserver.objects import ensure
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.owners import name_owners_once
from argosy.local.apiserver.quotas import charges, write_charges
from argosy.local.apiserver.status import StatusError, already_exists, bad_request
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.times import generated_name
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.reading import text
from argosy.local.schema.warnings import finalizer_warnings, warnings

_NAME_TRIES = 8


async def create_object(call: Call) -> Response:
    form = wanted_form(call.request, custom=call.served.custom is not None)
    options = write_options(call.request, "CreateOptions")
    stored = await create(call, await read_admitted(call, options), options, admitted=True)
    if isinstance(stored, dict):
        return reply(stored, 201)
    return Response(forms.render(stored, call.served, form) + b"\n", 201)


async def create(
    call: Call,
    obj: Json,
    options: WriteOptions,
    *,
    managed: bool = False,
    admitted: bool = False,
    unasked: bool = False,
) -> Stored | Json:
    """Store a new object; a dry run answers what would have been stored.

    `managed` when its fields have owners already, `admitted` when it has been read under its schema,
    `unasked` when an update or apply makes it where nothing was, which takes the right to create it.
    """
    served = call.served
    if not admitted:
        obj = shape.admit_fields(obj, served, options.validation, call.request.warnings, applied=managed)
    metadata = ensure(obj, "metadata")
    name_owners_once(obj, call.request)
    if text(metadata, "resourceVersion").isdigit() and text(metadata, "resourceVersion") != "0":
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    fresh_metadata(metadata)
    prepare(obj, served)
    if not managed:
        obj = shape.track_update(None, obj, served, options.manager, "")
    admit(call, obj)
    _generate_name(call, obj)
    name = text(obj, "metadata", "name")
    if served.storage == "namespaces":
        ensure(ensure(obj, "metadata"), "labels")["kubernetes.io/metadata.name"] = name
    obj = begin(call, obj, dry=options.dry_run)
    if served.group == "rbac.authorization.k8s.io":
        check_grant(call, obj, None)
    if errors := shape.validate(obj, served, None):
        raise invalid_error(served.group, served.kind, name, errors)
    if unasked:
        check_may_create(call)
    settle(call, obj)
    charged = charges(call, name)
    call.request.warnings += warnings(served.group, served.kind, obj, created=True)
    if served.custom is not None:
        call.request.warnings += finalizer_warnings(obj, None)
    if (there := call.api.head(served, call.namespace, name)) is not None:
        generated = bool(metadata.get("generateName"))
        refusal = already_exists(served.group, served.plural, name, generated=generated)
        if text(there.decoded(), "metadata", "deletionTimestamp"):
            refusal.message = f"object is being deleted: {refusal.message}"
        raise refusal
    if options.dry_run:
        return forms.as_served(obj, served)
    writing = write_charges(call.api, charged) if charged else None
    stored = await call.api.put(served, obj)
    if writing is not None:
        await writing
    if served.storage == "namespaces":
        await furnish(call.api, name)
    return stored


def _generate_name(call: Call, obj: Json) -> None:
    """A name for an object that has only the beginning of one."""
    metadata = ensure(obj, "metadata")
    prefix = text(metadata, "generateName")
    if not prefix or text(metadata, "name"):
        return
    for _ in range(_NAME_TRIES):
        metadata["name"] = generated_name(prefix)
        if call.api.head(call.served, call.namespace, text(metadata, "name")) is None:
            return


async def read_admitted(call: Call, options: WriteOptions) -> Json:
    """The body read under its schema: that comes before anything is asked about the object itself."""
    obj, served = await read_object(call.request, call.served.kind), call.served
    if not obj and served.custom is not None and (await call.request.body()).strip() == b"null":
        raise bad_request(
            f"the object provided is unrecognized (must be of type {served.kind}): "
            "Object 'Kind' is missing in 'null' (6e756c6c)"
        )
    doubled: list[str] = []
    if options.validation != "Ignore" and content_type(call.request) in ("", "application/json"):
        doubled = duplicate_fields(await call.request.body(), obj)
    if refusal := wrong_kind(obj, call):
        raise refusal
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    obj = shape.admit_fields(obj, served, options.validation, call.request.warnings, doubled=doubled)
    return check_place(obj, call)


def wrong_kind(obj: Json, call: Call) -> StatusError | None:
    """What is wrong with the kind of a body, or its metadata; what is absent is filled in."""
    served = call.served
    if served.custom is None:
        for field, meant in (("kind", served.kind), ("apiVersion", served.api_version)):
            obj[field] = obj.get(field) or meant
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    if kind != served.kind or api_version != served.api_version:
        return _wrong_kind(str(api_version or ""), str(kind or ""), obj, call)
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = metadata = {}
    if not isinstance(metadata, dict):
        into = "value" if served.custom is not None else f"struct field {served.kind}.metadata"
        return bad_request(
            f'{served.kind} in version "{served.version}" cannot be handled as a {served.kind}: '
            f"json: cannot unmarshal {go_kind(metadata)} into Go {into} of type v1.ObjectMeta"
        )
    return None


def check_place(obj: Json, call: Call) -> Json:
    """The namespace of a body must be that of the path; where it is absent it is filled in."""
    served, metadata = call.served, ensure(obj, "metadata")
    given = text(obj, "metadata", "namespace")
    if served.namespaced:
        if given and given != call.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = call.namespace
    else:
        metadata.pop("namespace", None)
    return obj


def _wrong_kind(api_version: str, kind: str, obj: Json, call: Call) -> StatusError:
    served = call.served
    if served.custom is not None:
        return _wrong_custom_kind(api_version, kind, obj, call)
    version = api_version.rpartition("/")[2]
    shown = f'{kind} in version "{version}" cannot be handled as a {served.kind}'
    group, _, version = api_version.rpartition("/")
    names = (kind, kind.removesuffix("List"))
    known = any(call.api.registry.find_kind(group, version, name) for name in names)
    if not known and (api_version, kind) not in _EVERYWHERE:
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        return bad_request(f'{shown}: no kind "{kind}" is registered for version "{api_version}" {where}')
    inside = served.group.split(".")[0] or "core"
    return bad_request(
        f"{shown}: converting ({version}.{kind}) to ({inside}.{served.kind}): unknown conversion"
    )


_EVERYWHERE = {("v1", kind) for kind in ("Status", "APIVersions", "APIGroup", "APIGroupList")}
"""Kinds that every group knows, though none serves them."""


def _wrong_custom_kind(api_version: str, kind: str, obj: Json, call: Call) -> StatusError:
    served, shown = call.served, msgspec.json.encode(obj).decode()
    if not kind:
        brief = f"{shown[:30]} ..." if len(shown) > 30 else shown
        return bad_request(
            f"the object provided is unrecognized (must be of type {served.kind}): "
            f"Object 'Kind' is missing in '{shown}' ({brief})"
        )
    if api_version != served.api_version:
        return bad_request(
            f"the API version in the data ({api_version}) does not match "
            f"the expected API version ({served.api_version})"
        )
    error = invalid("kind", kind, f"must be {served.kind}")
    prefix = text(obj, "metadata", "generateName")
    name = text(obj, "metadata", "name") or (generated_name(prefix) if prefix else "")
    return invalid_error(served.group, kind, name, [error])
