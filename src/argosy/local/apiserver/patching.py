"""Patch: the three patch types and server-side apply, all ending in an update of what is there now."""

from argosy.local.apiserver import forms, shape
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import go_kind, parse_json, parse_value, parse_yaml
from argosy.local.apiserver.create import check_identity, create
from argosy.local.apiserver.http import Response
from argosy.local.apiserver.media import content_type, wanted_form
from argosy.local.apiserver.objects import ensure
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.status import (
    StatusError,
    bad_request,
    conflict,
    not_found,
    unsupported_media_type,
)
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.update import answer, check_name, update
from argosy.local.schema.errors import forbidden, required
from argosy.local.schema.model import Json
from argosy.local.schema.patch import json_patch, merge_patch
from argosy.local.schema.reading import part, text
from argosy.local.schema.strategic import PatchError, go_map, strategic_merge_patch

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_MOST_OPERATIONS = 10_000
_PREFIX = "error decoding patch: "


async def patch_object(call: Call) -> Response:
    kind, served = content_type(call.request), call.served
    offered = [JSON_PATCH, MERGE_PATCH, *([] if served.custom else [STRATEGIC_PATCH]), APPLY_PATCH]
    if kind not in offered and served.custom is not None:
        raise unsupported_media_type(offered)
    if kind not in offered:
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    form = wanted_form(call.request)
    options = write_options(call.request, "PatchOptions")
    if kind != APPLY_PATCH and "force" in call.request.query:
        error = forbidden("force", "may not be specified for non-apply patch")
        raise invalid_error("meta.k8s.io", "PatchOptions", "", [error])
    raw = await call.request.body()
    if kind == APPLY_PATCH:
        written, created = await _apply(call, raw, options)
        return answer(written, call, form, 201 if created else 200)
    head = call.api.head(served, call.namespace, call.target.name)
    if head is None:
        raise not_found(served.group, served.plural, call.target.name)
    current = forms.as_served(head.decoded(), served)
    obj = check_identity(patch_json(current, raw, kind, call), call)
    check_name(obj, call)
    shown = raw.decode("utf-8", "replace") if kind == JSON_PATCH else go_map(_merged(raw, kind))
    return answer(await update(call, head, obj, options, patched=shown), call, form)


def patch_json(current: Json, raw: bytes, kind: str, call: Call) -> Json:
    """`current` with a JSON, merge or strategic patch applied."""
    try:
        if kind == JSON_PATCH:
            patched = json_patch(current, _operations(raw))
        elif kind == MERGE_PATCH:
            patched = merge_patch(current, _merged(raw, kind))
        else:
            patched = strategic_merge_patch(current, _merged(raw, kind), call.served.schema)
    except PatchError as error:
        if kind == JSON_PATCH:
            raise StatusError(
                422, "Invalid", "the server rejected our request due to an error in our request", {}
            ) from error
        raise StatusError(500, "", str(error)) from error
    return patched


def _merged(raw: bytes, kind: str) -> Json:
    """The object that a merge patch or a strategic one is."""
    prefix = _PREFIX if kind == MERGE_PATCH else ""
    if raw.strip() != b"null":
        return parse_json(raw, prefix)
    if kind == MERGE_PATCH:
        raise bad_request("Invalid JSON Patch")
    return {}


def _operations(raw: bytes) -> list[object]:
    operations = parse_value(raw, _PREFIX)
    if operations is None:
        return []
    if not isinstance(operations, list):
        why = f"json: cannot unmarshal {go_kind(operations)} into Go value of type []handlers.jsonPatchOp"
        raise bad_request(_PREFIX + why)
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            why = f"json: cannot unmarshal {go_kind(operation)} into Go value of type handlers.jsonPatchOp"
            raise bad_request(_PREFIX + why)
        for field in ("op", "from", "path"):
            value = operation.get(field) if operation is not None else None
            if value is not None and not isinstance(value, str):
                into = f"Go struct field jsonPatchOp.{field} of type string"
                raise bad_request(f"{_PREFIX}json: cannot unmarshal {go_kind(value)} into {into}")
    if len(operations) > _MOST_OPERATIONS:
        why = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", why)
    return operations


async def _apply(call: Call, raw: bytes, options: WriteOptions) -> tuple[Stored | Json, bool]:
    served, name = call.served, call.target.name
    if not call.request.parameter("fieldManager"):
        error = required("fieldManager", "is required for apply patch")
        raise invalid_error("meta.k8s.io", "PatchOptions", "", [error])
    config = parse_yaml(raw)
    _check_type(config)
    given = text(config, "metadata", "namespace")
    config = check_identity(config, call)
    check_name(config, call)
    if not given:
        ensure(config, "metadata").pop("namespace", None)
    if part(config, "metadata").get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    head = call.api.head(served, call.namespace, name)
    live = forms.as_served(head.decoded(), served) if head else None
    uid = text(config, "metadata", "uid")
    if live is None and call.target.subresource:
        raise not_found(served.group, served.plural, name)
    if live is None and uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(served.group, served.plural, name, why)
    force = call.request.flag("force")
    merged = shape.track_apply(live, config, served, options.manager, force, call.target.subresource)
    if served.namespaced:
        ensure(merged, "metadata")["namespace"] = call.namespace
    if head is None:
        ensure(merged, "metadata").pop("resourceVersion", None)
        return await create(call, merged, options, managed=True), True
    return await update(call, head, merged, options, managed=True, patched=""), False


def _check_type(config: Json) -> None:
    """An applied configuration must say what it is."""
    api_version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
    if not api_version or not kind:
        group, _, version = api_version.rpartition("/")
        raise bad_request(f"invalid object type: {group}/{version}, Kind={kind}")
