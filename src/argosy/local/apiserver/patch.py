"""Handles PATCH: the three patch types and server-side apply, which all end in an update or a create."""

import copy

from argosy.local.apiserver import object_schema, representations
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import duplicate_fields, kind_problem, parse_yaml
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
from argosy.local.schema.codec.times import TimeError, canonical_time
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_map, get_str

APPLY_PATCH = "application/apply-patch+yaml"


async def patch_object(call: Call) -> Response:
    kind, served = check_patch_type(call), call.served
    form = wanted_form(call.request)
    options = write_options(call.request, "PatchOptions", applies=kind == APPLY_PATCH)
    raw = await call.request.body()
    if kind == APPLY_PATCH:
        written, created = await _apply(call, raw, options)
        return answer(written, call, form, 201 if created else 200)
    head = call.head()
    current = representations.as_served(head.decoded(), served)
    body = read_patch(raw, kind, options.validation)
    obj = _admit(call, patch_json(current, body, served.schema), options, body)
    return answer(await update(call, head, obj, options, patch=body.text, admitted=True), call, form)


def _admit(call: Call, obj: Json, options: WriteOptions, body: PatchBody) -> Json:
    """Return the patched object, decoded by its schema; what is wrong with it is an error of the patch."""
    served, warnings = call.served, call.request.warnings
    if why := kind_problem(obj):
        raise invalid_error("", "", "", [invalid("patch", body.text, why)])
    if body.kind == STRATEGIC_PATCH:
        obj |= {"kind": served.kind, "apiVersion": served.api_version}
    elif served.custom is None and not obj.get("apiVersion"):
        # Kubernetes then decodes its internal type, in which no field has the name it has here.
        unknown = [f'unknown field "{name}"' for name in obj if name not in ("apiVersion", "kind")]
        object_schema.report(unknown, served, options.validation, warnings, body.text)
        check_name({}, call)
    if why := wrong_kind(obj, served):
        raise invalid_error("", "", "", [invalid("patch", body.text, why)])
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    obj = object_schema.admit_fields(
        obj, served, options.validation, warnings, patch=body.text, problems=body.problems
    )
    check_place(obj, call)
    check_name(obj, call)
    return obj


def check_patch_type(call: Call) -> str:
    """Return the content type of a patch; 415 if this kind does not support it."""
    kind, is_custom = content_type(call.request), call.served.custom is not None
    offered = [JSON_PATCH, MERGE_PATCH, *([] if is_custom else [STRATEGIC_PATCH]), APPLY_PATCH]
    if kind not in offered:
        raise unsupported_media_type(offered)
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
    _report_duplicates(raw, config, options, call)
    _convert(merged, call)
    uid = get_str(config, "metadata", "uid")
    if live is None and uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(served.group, served.plural, name, why)
    check_place(merged, call)
    check_name(merged, call)
    if head is None:
        return await create(call, merged, options, managed=True, implicit=True), True
    return await update(call, head, merged, options, managed=True, patch=""), False


def _report_duplicates(raw: bytes, config: Json, options: WriteOptions, call: Call) -> None:
    """Warn of keys that an applied JSON configuration repeats, or reject it."""
    if options.validation == "Ignore" or raw[:1] != b"{":
        return
    duplicates = [f'key "{path}" already set in map' for path in duplicate_fields(raw, config)]
    if duplicates and options.validation == "Strict":
        raise bad_request(f"error strict decoding YAML: {', '.join(duplicates)}")
    call.request.warnings += duplicates


def _convert(merged: Json, call: Call) -> None:
    """Check that what was applied fits the types of a built-in kind, beyond what its schema says."""
    served = call.served
    if served.custom is not None:
        _drop_unread(ensure(merged, "metadata"))
        return
    try:
        decode(copy.deepcopy(merged), served.schema)
    except DecodeError as error:
        raise StatusError(
            500, "", f"failed to convert the object to {served.api_version}: {error}"
        ) from error


def _drop_unread(metadata: Json) -> None:
    """Drop fields that only the server sets, and that it ignores in an applied custom resource."""
    for field in ("creationTimestamp", "generation"):
        metadata.pop(field, None)
    try:
        canonical_time(get_str(metadata, "deletionTimestamp"))
    except TimeError:
        metadata.pop("deletionTimestamp", None)


def check_applied(config: Json, group: str, version: str, kind: str) -> None:
    """Raise 400 unless an applied configuration names its kind and version, and no managed fields."""
    api_version = f"{group}/{version}" if group else version
    if (config.get("apiVersion"), config.get("kind")) != (api_version, kind):
        raise bad_request(f"invalid object type: {config.get('apiVersion')}, Kind={config.get('kind')}")
    if isinstance(get_map(config, "metadata").get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")
