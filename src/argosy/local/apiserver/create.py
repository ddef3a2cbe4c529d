"""Create: from a body to a stored object with everything that the server adds."""

import msgspec

from argosy.local.apiserver import object_schema, representations
from argosy.local.apiserver.admission import admit, begin, check_may_create, settle
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import duplicate_fields, read_object
from argosy.local.apiserver.escalation import check_grant
from argosy.local.apiserver.events import to_core
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.negotiation import content_type, wanted_form
from argosy.local.apiserver.new_object import create_namespace_defaults, fresh_metadata, prepare
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.ownerrefs import name_owners_once
from argosy.local.apiserver.quotas import charges, write_charges
from argosy.local.apiserver.status import StatusError, already_exists, bad_request
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.timestamps import generated_name
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, text
from argosy.local.schema.warnings import finalizer_warnings, warnings

_NAME_TRIES = 8


async def create_object(call: Call) -> Response:
    form = wanted_form(call.request, custom=call.served.custom is not None)
    options = write_options(call.request, "CreateOptions")
    stored = await create(call, await read_admitted(call, options), options, admitted=True)
    if isinstance(stored, dict):
        return reply(stored, 201)
    return Response(representations.render(stored, call.served, form) + b"\n", 201)


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
    `unasked` when an update or apply makes it where nothing was: then the version that it names is taken for
    nothing, and it takes the right to create it.
    """
    served = call.served
    if not admitted:
        obj = object_schema.admit_fields(
            obj, served, options.validation, call.request.warnings, applied=managed
        )
    metadata = ensure(obj, "metadata")
    name_owners_once(obj, call.request)
    version = text(metadata, "resourceVersion")
    fresh_metadata(metadata)
    prepare(obj, served)
    if not managed and not object_schema.is_foreign(obj, served):
        obj = object_schema.track_update(None, obj, served, options.manager, "")
    admit(call, obj)
    if unasked:
        check_version_number(version)
    _generate_name(call, obj)
    name = text(obj, "metadata", "name")
    if served.storage == "namespaces":
        ensure(ensure(obj, "metadata"), "labels")["kubernetes.io/metadata.name"] = name
    obj = begin(call, obj, dry=options.dry_run)
    if served.group == "rbac.authorization.k8s.io":
        check_grant(call, obj, None)
    if errors := object_schema.validate(obj, served, None):
        raise invalid_error(*object_schema.names_of(obj, served), name, errors)
    settle(call, obj)
    call.request.warnings += warnings(served.group, served.kind, obj, created=True)
    if served.custom is not None:
        call.request.warnings += finalizer_warnings(obj, None)
    if unasked:
        check_may_create(call)
    charged = charges(call, name)
    if version.isdigit() and version != "0" and not unasked and not options.dry_run:
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    if (there := call.api.head(served, call.namespace, name)) is not None:
        generated = bool(metadata.get("generateName"))
        refusal = already_exists(served.group, served.plural, name, generated=generated)
        if text(there.decoded(), "metadata", "deletionTimestamp"):
            refusal.message = f"object is being deleted: {refusal.message}"
        raise refusal
    if options.dry_run:
        if version:  # a dry run does not get as far as to drop it
            ensure(obj, "metadata")["resourceVersion"] = version
        return representations.as_served(obj, served)
    writing = write_charges(call.api, charged) if charged else None
    stored = await call.api.put(served, obj)
    if writing is not None:
        await writing
    if served.storage == "namespaces":
        await create_namespace_defaults(call.api, name)
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


def check_version_number(version: str) -> None:
    """The version that an object names is read before anything is done with it."""
    if version and not version.isdigit():
        raise StatusError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')


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
    if why := wrong_kind(obj, call):
        raise bad_request(why)
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    obj = object_schema.admit_fields(obj, served, options.validation, call.request.warnings, doubled=doubled)
    if served.custom is not None and (given := text(obj, "apiVersion")) != served.api_version:
        why = f"does not match the expected API version ({served.api_version})"
        raise bad_request(f"the API version in the data ({given}) {why}")
    return check_place(obj, call)


def wrong_kind(obj: Json, call: Call) -> str:
    """Why a body cannot be read as the kind it should be; what is absent is filled in.

    A custom resource must say some kind. That it is the right one is checked when its fields are.
    """
    served = call.served
    if served.custom is not None and not obj.get("kind"):
        return _missing_kind(obj, call)
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    if served.custom is not None:
        return ""
    for field, meant in (("kind", served.kind), ("apiVersion", served.api_version)):
        obj[field] = obj.get(field) or meant
    if obj["kind"] != served.kind or obj["apiVersion"] != served.api_version:
        return _wrong_kind(str(obj["apiVersion"]), str(obj["kind"]), obj, call)
    return ""


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


def _wrong_kind(api_version: str, kind: str, obj: Json, call: Call) -> str:
    """A body of another kind is read as that kind first."""
    served = call.served
    version = api_version.rpartition("/")[2]
    shown = f'{kind} in version "{version}" cannot be handled as a {served.kind}'
    group, _, version = api_version.rpartition("/")
    names = (kind, kind.removesuffix("List"))
    found, listed = (call.api.registry.find_kind(group, version, name) for name in names)
    if not (found or listed) and (api_version, kind) not in _EVERYWHERE:
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        return f'{shown}: no kind "{kind}" is registered for version "{api_version}" {where}'
    if found and found.builtin is not None:
        try:
            decode(obj, found.schema, kind)
        except DecodeError as error:
            return f"{shown}: {error}"
    inside = served.group.split(".")[0] or "core"
    return f"{shown}: converting ({version}.{kind}) to ({inside}.{served.kind}): unknown conversion"


_EVERYWHERE = {("v1", kind) for kind in ("Status", "APIVersions", "APIGroup", "APIGroupList")}
"""Kinds that every group knows, though none serves them."""


def _missing_kind(obj: Json, call: Call) -> str:
    shown = msgspec.json.encode(obj).decode()
    brief = f"{shown[:30]} ..." if len(shown) > 30 else shown
    unrecognized = f"the object provided is unrecognized (must be of type {call.served.kind})"
    return f"{unrecognized}: Object 'Kind' is missing in '{shown}' ({brief})"
