"""The scale of an object: its number of replicas as an object of its own, read and written alone."""

from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import parse_yaml, read_object
from argosy.local.apiserver.create import check_place
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.object_schema import apply_refusals
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.patch import APPLY_PATCH, check_applied, check_patch_type
from argosy.local.apiserver.patch_body import patch_json, read_patch
from argosy.local.apiserver.read import find
from argosy.local.apiserver.status import bad_request, internal, not_found
from argosy.local.apiserver.timestamps import now_text
from argosy.local.apiserver.update import check_name, check_uid, update
from argosy.local.schema.builtin import definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.ssa.apply import apply
from argosy.local.schema.ssa.scale import SCALE_VERSION, owners_after_scaling, owners_of_scale
from argosy.local.schema.ssa.update import update_managed_fields
from argosy.local.schema.strategic_merge import go_map
from argosy.local.schema.tables.cells import selector_text
from argosy.local.schema.unstructured import ensure, is_integer, number, part, text

_SCHEMA = "io.k8s.api.autoscaling.v1.Scale"
_NO_REPLICAS = -(1 << 31)
"""What a scale says while it is written, of an object that does not say its replicas."""


async def scale(call: Call) -> Response:
    """Get, update or patch the number of replicas alone."""
    if call.request.method == "GET":
        obj = find(call).decoded()
        _check_replicas(call, obj)
        return reply(_scale_of(call, obj))
    kind = check_patch_type(call) if call.request.method == "PATCH" else ""
    name = "PatchOptions" if kind else "UpdateOptions"
    options = write_options(call.request, name, applies=kind == APPLY_PATCH if kind else None)
    sent: Json = {}
    if not kind:
        sent = check_place(_read(await read_object(call.request, "Scale"), call), call)
        check_name(sent, call)
    head = call.api.head(call.served, call.namespace, call.target.name)
    if head is None:
        raise not_found(call.served.group, call.served.plural, call.target.name)
    obj = head.decoded()
    path = _replicas_path(call)
    current = _scale_of(call, obj)
    if _replicas(call, obj) is None:
        current["spec"] = {"replicas": _NO_REPLICAS}
    if owners := owners_of_scale(obj, path):
        ensure(current, "metadata")["managedFields"] = owners
    if kind:
        wanted = _patched(current, await call.request.body(), kind, options, call)
    else:
        check_uid(call, head, text(sent, "metadata", "uid"), dry=options.dry_run)
        wanted = _owned(current, sent, options)
    _check_wanted(call, wanted)
    ensure(obj, *path[:-1])[path[-1]] = part(wanted, "spec").get("replicas", 0)
    metadata = ensure(obj, "metadata")
    if version := text(wanted, "metadata", "resourceVersion"):
        metadata["resourceVersion"] = version
    left = owners_after_scaling(obj, wanted, path, call.served.api_version)
    metadata.pop("managedFields", None)
    if left:
        metadata["managedFields"] = left
    obj["apiVersion"] = call.served.api_version
    written = await update(call, head, obj, options, managed=True, admitted=True)
    return reply(_scale_of(call, written if isinstance(written, dict) else written.decoded()))


def _patched(current: Json, raw: bytes, kind: str, options: WriteOptions, call: Call) -> Json:
    schema = definition(_SCHEMA)
    if kind != APPLY_PATCH:
        wanted = _read(patch_json(current, read_patch(raw, kind, options.validation), schema), call)
        check_name(check_place(wanted, call), call)
        return _owned(current, wanted, options)
    config = parse_yaml(raw)
    check_applied(config, "autoscaling", "v1", "Scale")
    with apply_refusals():
        wanted = apply(
            current,
            config,
            manager=options.manager,
            api_version=SCALE_VERSION,
            time=now_text(),
            schema=schema,
            force=call.request.flag("force"),
            subresource="scale",
        )
    check_name(check_place(wanted, call), call)
    return wanted


def _owned(current: Json, wanted: Json, options: WriteOptions) -> Json:
    """A scale that was written, with its fields attributed to who wrote them."""
    return update_managed_fields(
        current,
        wanted,
        manager=options.manager,
        api_version=SCALE_VERSION,
        time=now_text(),
        schema=definition(_SCHEMA),
        subresource="scale",
    )


def _check_wanted(call: Call, wanted: Json) -> None:
    replicas = part(wanted, "spec").get("replicas", 0)
    if call.served.custom is None and is_integer(replicas) and replicas < 0:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_error("autoscaling", "Scale", call.target.name, [error])
    if call.served.custom is not None and replicas == _NO_REPLICAS:
        path = text(call.served.custom.scale, "specReplicasPath")
        raise bad_request(f'the spec replicas field "{path}" cannot be empty')


def _check_replicas(call: Call, obj: Json) -> None:
    """A custom resource that does not say its replicas cannot be asked for them."""
    if _replicas(call, obj) is None:
        raise internal(f'the spec replicas field ".{".".join(_replicas_path(call))}" does not exist')


def _replicas(call: Call, obj: Json) -> object:
    """What an object says of its replicas; built-in kinds always do."""
    path = _replicas_path(call)
    return 0 if call.served.custom is None else part(obj, *path[:-1]).get(path[-1])


def _read(wanted: Json, call: Call) -> Json:
    """A scale that was sent, or patched, in the types it has."""
    for field, meant in (("kind", "Scale"), ("apiVersion", SCALE_VERSION)):
        wanted[field] = wanted.get(field) or meant
    unknown = bad_request('no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"')
    if (wanted["kind"], wanted["apiVersion"]) != ("Scale", SCALE_VERSION):
        raise unknown
    try:
        decode(wanted, definition(_SCHEMA), "Scale")
    except DecodeError as error:
        if call.request.method == "PATCH":
            raise invalid_error("", "", "", [invalid("patch", go_map(wanted), str(error))]) from error
        if call.served.custom is not None:
            raise unknown from error
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from error
    return wanted


def _replicas_path(call: Call) -> list[str]:
    custom = call.served.custom
    path = text(custom.scale, "specReplicasPath") if custom else ".spec.replicas"
    return path.removeprefix(".").split(".")


def _scale_of(call: Call, obj: Json) -> Json:
    custom, metadata = call.served.custom, part(obj, "metadata")
    status_path = text(custom.scale, "statusReplicasPath") if custom else ".status.replicas"
    status: Json = {"replicas": number(obj, *status_path.removeprefix(".").split("."))}
    if selector := _selector_text(call, obj):
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = number(obj, *_replicas_path(call))
    return {
        "kind": "Scale",
        "apiVersion": SCALE_VERSION,
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(call: Call, obj: Json) -> str:
    custom = call.served.custom
    if custom is not None:
        path = text(custom.scale, "labelSelectorPath")
        return text(obj, *path.removeprefix(".").split(".")) if path else ""
    selector = part(obj, "spec", "selector")
    if call.served.storage == "replicationcontrollers":
        return ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
    return selector_text(selector) if selector else ""
