"""Patch: the three patch types and server-side apply, all ending in an update of what is there now."""

import copy

import msgspec

from argosy.local.apiserver import forms, shape
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import (
    doubled_keys,
    duplicate_fields,
    go_kind,
    kind_problem,
    parse_json,
    parse_value,
    parse_yaml,
)
from argosy.local.apiserver.create import check_place, create, wrong_kind
from argosy.local.apiserver.events import to_core
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
from argosy.local.schema.decoding import DecodeError, decode
from argosy.local.schema.errors import invalid
from argosy.local.schema.gotimes import TimeError, canonical_time
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.patch import json_patch, merge_patch
from argosy.local.schema.reading import part, text
from argosy.local.schema.restoring import restore
from argosy.local.schema.strategic import PatchError, go_map, strategic_merge_patch

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_MOST_OPERATIONS = 10_000
_PREFIX = "error decoding patch: "
_BAD_FORMATS = tuple(
    f"invalid patch format of {what}" for what in ("primitive list", "retainKeys", "setElementOrder list")
)


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
    current = forms.as_served(head.decoded(), served)
    obj = patch_json(current, raw, kind, served.schema, strict=options.validation != "Ignore")
    shown = raw.decode("utf-8", "replace") if kind == JSON_PATCH else go_map(_merged(raw, kind))
    doubled: list[str] = []
    if options.validation != "Ignore" and kind != JSON_PATCH:
        doubled = duplicate_fields(raw, _merged(raw, kind))
    obj = _admitted(call, obj, options, kind, shown, doubled)
    return answer(await update(call, head, obj, options, patched=shown, admitted=True), call, form)


def _admitted(
    call: Call, obj: Json, options: WriteOptions, kind: str, shown: str, doubled: list[str]
) -> Json:
    """The patched object read under its schema; what is wrong with it is an error of the patch."""
    served = call.served
    if kind == STRATEGIC_PATCH:
        # Kubernetes fills structs from such a patch, field by field, and looks at no kind.
        obj |= {"kind": served.kind, "apiVersion": served.api_version}
        try:
            restore(obj, served.schema)
        except DecodeError as error:
            raise invalid_error("", "", "", [invalid("patch", shown, str(error))]) from error
    elif served.custom is None and not obj.get("apiVersion"):
        # Kubernetes then takes it for its own inner form, in which nothing has the name it has here.
        unknown = [f'unknown field "{name}"' for name in sorted(obj) if name not in ("apiVersion", "kind")]
        shape.report(unknown, served, options.validation, call.request.warnings, shown)
        check_name({}, call)
    if why := kind_problem(obj) or _patched_to_another(obj, call):
        raise invalid_error("", "", "", [invalid("patch", shown, why)])
    if served.group == "events.k8s.io":
        obj = to_core(obj)
    try:
        obj = shape.admit_fields(
            obj,
            served,
            options.validation,
            call.request.warnings,
            patched=shown,
            doubled=doubled,
            ordered=kind != JSON_PATCH,
        )
    except StatusError:
        # Kubernetes writes the patched object with its fields in order, and tells of the first that is wrong.
        shape.admit_fields(_in_order(obj), served, "Ignore", [], patched=shown)
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


def patch_json(current: Json, raw: bytes, kind: str, schema: Schema, *, strict: bool = True) -> Json:
    """`current` with a JSON, merge or strategic patch applied; `strict` if its fields are looked at."""
    try:
        if kind == JSON_PATCH:
            patched = json_patch(current, _operations(raw) if strict else _loose_operations(raw))
        elif kind == MERGE_PATCH:
            patched = merge_patch(current, _merged(raw, kind))
        else:
            patched = strategic_merge_patch(current, _merged(raw, kind), schema)
    except PatchError as error:
        if kind == JSON_PATCH:
            raise StatusError(
                422, "Invalid", "the server rejected our request due to an error in our request", {}
            ) from error
        if str(error) in _BAD_FORMATS:
            raise bad_request(str(error)) from error
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
        raise _not_unmarshalled(operations, "[]handlers.jsonPatchOp", _PREFIX)
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise _not_unmarshalled(operation, "handlers.jsonPatchOp", _PREFIX)
        for field in ("op", "from", "path"):
            value = operation.get(field) if operation is not None else None
            if value is not None and not isinstance(value, str):
                into = f"Go struct field jsonPatchOp.{field} of type string"
                raise bad_request(f"{_PREFIX}json: cannot unmarshal {go_kind(value)} into {into}")
    return _not_too_many(operations)


def _loose_operations(raw: bytes) -> list[object]:
    """The same for who does not want fields to be looked at: what is wrong is told in other words."""
    operations = parse_value(raw, "")
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise _not_unmarshalled(operations, "jsonpatch.Patch")
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            raise _not_unmarshalled(operation, "jsonpatch.Operation")
    return _not_too_many(operations)


def _not_unmarshalled(value: object, into: str, prefix: str = "") -> StatusError:
    return bad_request(f"{prefix}json: cannot unmarshal {go_kind(value)} into Go value of type {into}")


def _not_too_many(operations: list[object]) -> list[object]:
    if len(operations) > _MOST_OPERATIONS:
        why = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", why)
    return operations


async def _apply(call: Call, raw: bytes, options: WriteOptions) -> tuple[Stored | Json, bool]:
    served, name = call.served, call.target.name
    head = call.api.head(served, call.namespace, name)
    if head is None and call.target.subresource:
        raise not_found(served.group, served.plural, name)
    config = parse_yaml(raw)
    check_applied(config, served.group, served.version, served.kind)
    live = forms.as_served(head.decoded(), served) if head else None
    uid = text(config, "metadata", "uid")
    if live is None and uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(served.group, served.plural, name, why)
    force = call.request.flag("force")
    merged = shape.track_apply(live, config, served, options.manager, force, call.target.subresource)
    _tell_doubles(raw, options, call)
    _convert(merged, config, call)
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
        _drop_unread_times(ensure(merged, "metadata"))
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


def _drop_unread_times(metadata: Json) -> None:
    """Nothing reads the times in the metadata of a custom resource that is applied: they may be anything."""
    metadata.pop("creationTimestamp", None)
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
