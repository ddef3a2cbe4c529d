"""Handles create: from a request body to a stored object with the fields that the server sets."""

from collections.abc import Sequence

from argosy.local.apiserver import object_schema, representations
from argosy.local.apiserver.admission import admit, check_may_create, complete_new, drop_hidden
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import duplicate_fields, read_object
from argosy.local.apiserver.escalation import check_grant
from argosy.local.apiserver.events import to_core
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.negotiation import content_type, wanted_form
from argosy.local.apiserver.new_object import create_namespace_defaults, fresh_metadata, prepare
from argosy.local.apiserver.options import WriteOptions, write_options
from argosy.local.apiserver.ownerrefs import drop_duplicate_owners
from argosy.local.apiserver.quotas import charges, write_charges
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import StatusError, already_exists, bad_request
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.timestamps import generated_name
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_str

_NAME_TRIES = 8


async def create_object(call: Call) -> Response:
    form = wanted_form(call.request)
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
    implicit: bool = False,
) -> Stored | Json:
    """Store a new object; a dry run returns the object that would be stored.

    `managed` if its managedFields are up to date, `admitted` if it was decoded by its schema, `implicit` if
    an update or apply creates it: its resourceVersion is ignored, and the user needs the right to create it.
    """
    served = call.served
    if not admitted:
        obj = object_schema.admit_fields(
            obj, served, options.validation, call.request.warnings, applied=managed
        )
    metadata = ensure(obj, "metadata")
    drop_duplicate_owners(obj, call.request)
    version = get_str(metadata, "resourceVersion")
    fresh_metadata(metadata)
    prepare(obj, served)
    if not managed:
        obj = object_schema.track_update(None, obj, served, options.manager, "")
    admit(call, obj)
    if implicit:
        check_version_number(version)
    _generate_name(call, obj)
    name = get_str(obj, "metadata", "name")
    obj = complete_new(call, obj)
    if served.group == "rbac.authorization.k8s.io":
        check_grant(call, obj, None)
    if errors := object_schema.validate(obj, served, None):
        raise object_schema.invalid_object(obj, served, name, errors)
    drop_hidden(call, obj)
    if implicit:
        check_may_create(call)
    charged = charges(call, name)
    if version.isdigit() and version != "0" and not implicit and not options.dry_run:
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    _check_absent(call, name, generated=bool(metadata.get("generateName")))
    if options.dry_run:
        if version:  # only storing the object would drop it
            ensure(obj, "metadata")["resourceVersion"] = version
        return representations.as_served(obj, served)
    return await _store(call, obj, name, charged)


def _check_absent(call: Call, name: str, *, generated: bool) -> None:
    existing = call.api.head(call.served, call.namespace, name)
    if existing is None:
        return
    error = already_exists(call.served.group, call.served.plural, name, generated=generated)
    if get_str(existing.decoded(), "metadata", "deletionTimestamp"):
        error.message = f"object is being deleted: {error.message}"
    raise error


async def _store(call: Call, obj: Json, name: str, charged: Sequence[Json]) -> Stored:
    writing = write_charges(call.api, charged) if charged else None
    stored = await call.api.put(call.served, obj)
    if writing is not None:
        await writing
    if call.served.storage == "namespaces":
        await create_namespace_defaults(call.api, name)
    return stored


def _generate_name(call: Call, obj: Json) -> None:
    """Generate the name of an object with a generateName."""
    metadata = ensure(obj, "metadata")
    prefix = get_str(metadata, "generateName")
    if not prefix or get_str(metadata, "name"):
        return
    for _ in range(_NAME_TRIES):
        metadata["name"] = generated_name(prefix)
        if call.api.head(call.served, call.namespace, get_str(metadata, "name")) is None:
            return


def check_version_number(version: str) -> None:
    """Raise 500 if a resourceVersion is not a number."""
    if version and not version.isdigit():
        raise StatusError(500, "", f'invalid resourceVersion "{version}"')


async def read_admitted(call: Call, options: WriteOptions) -> Json:
    """Return the request's body as an object of the kind, decoded by its schema."""
    obj, served = await read_object(call.request, call.served.kind), call.served
    duplicates: list[str] = []
    if options.validation != "Ignore" and content_type(call.request) in ("", "application/json"):
        duplicates = duplicate_fields(await call.request.body(), obj)
    if why := wrong_kind(obj, served):
        raise bad_request(why)
    if served.custom is not None and (version := get_str(obj, "apiVersion")) != served.api_version:
        why = f"does not match the expected API version ({served.api_version})"
        raise bad_request(f"the API version in the data ({version}) {why}")
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    problems = [f'duplicate field "{path}"' for path in duplicates]
    obj = object_schema.admit_fields(
        obj, served, options.validation, call.request.warnings, problems=problems
    )
    return check_place(obj, call)


def wrong_kind(obj: Json, served: Served) -> str:
    """Return what is wrong with the kind and version of a body, empty if nothing; fill in missing ones.

    A custom resource must have a kind; whether it is the right one is a matter of validation.
    """
    if served.custom is not None and not obj.get("kind"):
        return f"the object provided is unrecognized (must be of type {served.kind}): 'kind' is missing"
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    if served.custom is not None:
        return ""
    for field, meant in (("kind", served.kind), ("apiVersion", served.api_version)):
        obj[field] = obj.get(field) or meant
    if obj["kind"] != served.kind or obj["apiVersion"] != served.api_version:
        kind, version = obj["kind"], obj["apiVersion"]
        return f"{kind} of {version} cannot be handled as a {served.kind} of {served.api_version}"
    return ""


def check_place(obj: Json, call: Call) -> Json:
    """Fill in the namespace of the path; 400 if the body names another one."""
    served, metadata = call.served, ensure(obj, "metadata")
    namespace = get_str(obj, "metadata", "namespace")
    if served.namespaced:
        if namespace and namespace != call.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = call.namespace
    else:
        metadata.pop("namespace", None)
    return obj
