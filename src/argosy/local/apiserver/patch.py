"""Patch: the three patch types and server-side apply, all ending in an update of what is there now."""

import copy

import msgspec

from argosy.local.apiserver import object_schema, representations
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import (
    doubled_keys,
    kind_problem,
    parse_yaml,
)
from argosy.local.apiserver.create import check_place, create, wrong_kind
from argosy.local.apiserver.events import to_core
from argosy.local.apiserver.http import Response
from argosy.local.apiserver.negotiation import content_type, wanted_form
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.patch_body import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    PatchBody,
    patch_json,
    read_patch,
)
from argosy.local.apiserver.status import (
    StatusError,
    bad_request,
    conflict,
    not_found,
    unsupported_media_type,
)
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.update import answer, check_name, update
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.codec.from_unstructured import restore
from argosy.local.schema.codec.times import TimeError, canonical_time
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, part, text

APPLY_PATCH = "application/apply-patch+yaml"


async def patch_object(call: Call) -> Response:
    kind, served = check_patch_type(call), call.served
    form = wanted_form(call.request, custom=served.custom is not None)
    options = write_options(call.request, "PatchOptions", applies=kind == APPLY_PATCH)
    raw = await call.request.body()
    if kind == APPLY_PATCH:
        written, created = await _apply(call, raw, options)
        return answer(written, call, form, 201 if created else 200)
    head = call.api.head(served, call.namespace, call.target.name)
    if head is None:
        raise not_found(served.group, served.plural, call.target.name)
    current = representations.as_served(head.decoded(), served)
    body = read_patch(raw, kind, options.validation)
    obj = _admitted(call, patch_json(current, body, served.schema), options, body)
    return answer(await update(call, head, obj, options, patched=body.shown, admitted=True), call, form)


def _admitted(call: Call, obj: Json, options: WriteOptions, body: PatchBody) -> Json:
    """The patched object read under its schema; what is wrong with it is an error of the patch."""
    served, shown = call.served, body.shown
    if body.kind == STRATEGIC_PATCH:
        # Kubernetes fills structs from such a patch, field by field, and looks at no kind.
        try:
            restore(obj, served.schema)
        except DecodeError as error:
            raise invalid_error("", "", "", [invalid("patch", shown, str(error))]) from error
        obj |= {"kind": served.kind, "apiVersion": served.api_version}
    elif served.custom is None and not obj.get("apiVersion"):
        # Kubernetes then takes it for its own inner form, in which nothing has the name it has here.
        unknown = [f'unknown field "{name}"' for name in sorted(obj) if name not in ("apiVersion", "kind")]
        object_schema.report(unknown, served, options.validation, call.request.warnings, shown)
        check_name({}, call)
    if why := kind_problem(obj) or _patched_to_another(obj, call):
        raise invalid_error("", "", "", [invalid("patch", shown, why)])
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    try:
        obj = object_schema.admit_fields(
            obj,
            served,
            options.validation,
            call.request.warnings,
            patched=shown,
            told=body.problems,
            ordered=body.kind != JSON_PATCH,
        )
    except StatusError:
        # Kubernetes writes the patched object with its fields in order, and tells of the first that is wrong.
        object_schema.admit_fields(_in_order(obj), served, "Ignore", [], patched=shown)
        raise
    check_place(obj, call)
    check_name(obj, call)
    return obj


def _patched_to_another(obj: Json, call: Call) -> str:
    """What is wrong with the kind of a patched object."""
    if call.served.custom is not None and not obj.get("kind"):
        return f"Object 'Kind' is missing in '{msgspec.json.encode(obj, order='sorted').decode()}'"
    return wrong_kind(obj, call).partition(f"cannot be handled as a {call.served.kind}: ")[2]


def _in_order(obj: Json) -> Json:
    ordered: Json = msgspec.json.decode(msgspec.json.encode(obj, order="sorted"))
    return ordered


def check_patch_type(call: Call) -> str:
    """The content type of a patch; 415 when it is none that this kind takes."""
    kind, custom = content_type(call.request), call.served.custom is not None
    offered = [JSON_PATCH, MERGE_PATCH, *([] if custom else [STRATEGIC_PATCH]), APPLY_PATCH]
    if kind not in offered and custom:
        raise unsupported_media_type(offered)
    if kind not in offered:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return kind


async def _apply(call: Call, raw: bytes, options: WriteOptions) -> tuple[Stored | Json, bool]:
    served, name = call.served, call.target.name
    head = call.api.head(served, call.namespace, name)
    if head is None and call.target.subresource:
        raise not_found(served.group, served.plural, name)
    config = parse_yaml(raw)
    check_applied(config, served.group, served.version, served.kind)
    live = representations.as_served(head.decoded(), served) if head else None
    force = call.request.flag("force")
    merged = object_schema.track_apply(live, config, served, options.manager, force, call.target.subresource)
    _tell_doubles(raw, options, call)
    _convert(merged, config, call)
    uid = text(config, "metadata", "uid")
    if live is None and uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(served.group, served.plural, name, why)
    check_place(merged, call)
    check_name(merged, call)
    if head is None:
        return await create(call, merged, options, managed=True, unasked=True), True
    return await update(call, head, merged, options, managed=True, patched=""), False


def _tell_doubles(raw: bytes, options: WriteOptions, call: Call) -> None:
    """Keys that stand twice in what was applied; Kubernetes reads it as YAML, and knows their lines."""
    if options.validation == "Ignore":
        return
    doubled = [f'line 1: key "{key}" already set in map' for key in doubled_keys(raw)]
    if doubled and options.validation == "Strict":
        lines = "".join(f"\n  {line}" for line in doubled)
        told = f"error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:{lines}"
        raise bad_request(told)
    call.request.warnings += doubled


def _convert(merged: Json, config: Json, call: Call) -> None:
    """What was applied must fit the types of a built-in kind, beyond what its schema says."""
    served = call.served
    if served.custom is not None:
        _drop_unread(ensure(merged, "metadata"))
        return
    try:
        tried = copy.deepcopy(merged)
        restore(tried, served.schema)
        decode(tried, served.schema, served.kind)
    except DecodeError as error:
        kind = f"{served.group}/{served.version}, Kind={served.kind}"
        named = f"{text(config, 'metadata', 'namespace')}/{text(config, 'metadata', 'name')}; {kind}"
        why = f"unable to convert unstructured object to {kind}: {error}"
        raise StatusError(
            500, "", f"failed to convert new object ({named}) to proper version: {why}"
        ) from error


def _drop_unread(metadata: Json) -> None:
    """What the server alone says of a custom resource is not read where it is applied: it may be anything."""
    for field in ("creationTimestamp", "generation"):
        metadata.pop(field, None)
    try:
        canonical_time(text(metadata, "deletionTimestamp"))
    except TimeError:
        metadata.pop("deletionTimestamp", None)


def check_applied(config: Json, group: str, version: str, kind: str) -> None:
    """An applied configuration must say what it is, and may not say who owns it."""
    said = text(config, "apiVersion")
    if said.count("/") > 1:
        raise bad_request("invalid object type: /, Kind=")
    of, _, at = said.rpartition("/")
    if (of, at, config.get("kind")) != (group, version, kind):
        raise bad_request(f"invalid object type: {of}/{at}, Kind={text(config, 'kind')}")
    if isinstance(part(config, "metadata").get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")
