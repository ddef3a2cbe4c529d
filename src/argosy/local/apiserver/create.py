"""Create: from a body to a stored object with everything that the server adds."""

import msgspec

from argosy.local.apiserver import forms, shape
from argosy.local.apiserver.admission import admit_create, check_namespace
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
from argosy.local.apiserver.quotas import charges, write_charges
from argosy.local.apiserver.status import StatusError, already_exists, bad_request
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.times import generated_name
from argosy.local.schema.errors import invalid, required
from argosy.local.schema.model import Json
from argosy.local.schema.reading import text

_NAME_TRIES = 8


async def create_object(call: Call) -> Response:
    form = wanted_form(call.request)
    options = write_options(call.request, "CreateOptions")
    obj = check_identity(await read_checked(call, options), call)
    stored = await create(call, obj, options)
    if isinstance(stored, dict):
        return reply(stored, 201)
    return Response(forms.render(stored, call.served, form) + b"\n", 201)


async def create(call: Call, obj: Json, options: WriteOptions, *, managed: bool = False) -> Stored | Json:
    """Store a new object; a dry run answers what would have been stored."""
    served = call.served
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    metadata = ensure(obj, "metadata")
    if text(metadata, "resourceVersion") not in ("", "0"):
        raise StatusError(500, "", "resourceVersion should not be set on objects to be created")
    generate = text(metadata, "generateName") if not text(metadata, "name") else ""
    for _ in range(_NAME_TRIES):
        if generate:
            metadata["name"] = generated_name(generate)
        if not generate or call.api.head(served, call.namespace, text(metadata, "name")) is None:
            break
    check_namespace(call, text(metadata, "name"))
    fresh_metadata(metadata)
    obj = shape.admit_fields(obj, served, options.validation, call.request.warnings)
    prepare(obj, served)
    if not managed:
        obj = shape.track_update(None, obj, served, options.manager, "")
    obj = admit_create(call, obj)
    name = text(obj, "metadata", "name")
    if not name:
        why = required("metadata.name", "name or generateName is required")
        raise invalid_error(served.group, served.kind, "", [why])
    if served.group == "rbac.authorization.k8s.io":
        check_grant(call, obj, None)
    if errors := shape.validate(obj, served, None):
        raise invalid_error(served.group, served.kind, name, errors)
    charged = charges(call, name)
    if call.api.head(served, call.namespace, name) is not None:
        raise already_exists(served.group, served.plural, name)
    if options.dry_run:
        return forms.as_served(obj, served)
    writing = write_charges(call.api, charged) if charged else None
    stored = await call.api.put(served, obj)
    if writing is not None:
        await writing
    if served.storage == "namespaces":
        await furnish(call.api, name)
    return stored


async def read_checked(call: Call, options: WriteOptions) -> Json:
    """The body; fields that stand twice in it are told of as field validation asks."""
    obj = await read_object(call.request, call.served.kind)
    if options.validation == "Ignore" or content_type(call.request) not in ("", "application/json"):
        return obj
    doubled = duplicate_fields(await call.request.body(), obj)
    problems = [f'duplicate field "{path}"' for path in doubled]
    shape.report(problems, call.served, options.validation, call.request.warnings)
    return obj


def check_identity(obj: Json, call: Call) -> Json:
    """Kind and namespace of a body must be those of the path; what is absent is filled in."""
    served = call.served
    if served.custom is None:
        obj.setdefault("kind", served.kind)
        obj.setdefault("apiVersion", served.api_version)
    api_version, kind = obj.get("apiVersion", ""), obj.get("kind", "")
    if kind != served.kind or api_version != served.api_version:
        raise _wrong_kind(str(api_version or ""), str(kind or ""), obj, call)
    metadata = obj.get("metadata")
    if metadata is None:
        obj["metadata"] = metadata = {}
    if not isinstance(metadata, dict):
        raise bad_request(
            f'{served.kind} in version "{served.version}" cannot be handled as a {served.kind}: '
            f"json: cannot unmarshal {go_kind(metadata)} into Go value of type v1.ObjectMeta"
        )
    given = text(obj, "metadata", "namespace")
    if served.namespaced:
        if given and given != call.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = call.namespace
    elif given:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return obj


def _wrong_kind(api_version: str, kind: str, obj: Json, call: Call) -> StatusError:
    served = call.served
    if served.custom is not None:
        return _wrong_custom_kind(api_version, kind, obj, call)
    version = api_version.rpartition("/")[2]
    shown = f'{kind} in version "{version}" cannot be handled as a {served.kind}'
    group, _, version = api_version.rpartition("/")
    if call.api.registry.find_kind(group, version, kind) is None:
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        return bad_request(f'{shown}: no kind "{kind}" is registered for version "{api_version}" {where}')
    inside = served.group.split(".")[0] or "core"
    return bad_request(
        f"{shown}: converting ({version}.{kind}) to ({inside}.{served.kind}): unknown conversion"
    )


def _wrong_custom_kind(api_version: str, kind: str, obj: Json, call: Call) -> StatusError:
    served, shown = call.served, msgspec.json.encode(obj).decode()
    if not kind:
        return bad_request(
            f"the object provided is unrecognized (must be of type {served.kind}): "
            f"Object 'Kind' is missing in '{shown}' ({shown})"
        )
    if api_version != served.api_version:
        return bad_request(
            f"the API version in the data ({api_version}) does not match "
            f"the expected API version ({served.api_version})"
        )
    error = invalid("kind", kind, f"must be {served.kind}")
    return invalid_error(served.group, kind, text(obj, "metadata", "name"), [error])
