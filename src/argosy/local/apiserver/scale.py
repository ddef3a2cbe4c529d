"""Handles the scale subresource, which shows the replicas of an object as a Scale."""

from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.body import parse_yaml, read_object
from argosy.local.apiserver.create import check_place
from argosy.local.apiserver.http import Response, reply
from argosy.local.apiserver.options import WriteOptions, invalid_error, write_options
from argosy.local.apiserver.patch import APPLY_PATCH, check_applied, check_patch_type
from argosy.local.apiserver.patch_body import patch_json, read_patch
from argosy.local.apiserver.read import find
from argosy.local.apiserver.status import bad_request, internal
from argosy.local.apiserver.update import check_name, check_uid, update
from argosy.local.schema.builtin import SCALE, definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.crd.definition import ScalePaths
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.ssa.update import SCALE_VERSION, with_object_entries, with_scale_entries
from argosy.local.schema.tables.cells import selector_text
from argosy.local.schema.unstructured import ensure, get_int, get_map, get_str, is_integer

_UNSET = -(2**31)
"""The replicas of a custom resource without replicas while its scale is written, as in Kubernetes."""


async def scale(call: Call) -> Response:
    """Get, update or patch the number of replicas alone."""
    if call.request.method == "GET":
        obj = find(call).decoded()
        if _replicas(call, obj) is None:
            raise internal(f'the spec replicas field ".{".".join(_replicas_path(call))}" does not exist')
        return reply(_scale_of(call, obj))
    kind = check_patch_type(call) if call.request.method == "PATCH" else ""
    name = "PatchOptions" if kind else "UpdateOptions"
    options = write_options(call.request, name, applies=kind == APPLY_PATCH if kind else None)
    wanted: Json = {}
    if not kind:
        wanted = check_place(_decode(await read_object(call.request, "Scale"), call), call)
        check_name(wanted, call)
    raw, head = await call.request.body(), call.head()
    obj, path = head.decoded(), _replicas_path(call)
    fields = tuple(f"f:{name}" for name in path)
    live = with_scale_entries(_scale_of(call, obj), obj, fields)
    if kind == APPLY_PATCH:
        wanted = _apply(call, live, raw, options.manager)
    else:
        if _replicas(call, obj) is None:
            live["spec"] = {"replicas": _UNSET}
        if kind:
            wanted = _patch(call, live, raw, kind, options)
        else:
            check_uid(call, head, get_str(wanted, "metadata", "uid"))
        wanted = object_schema.track_update(live, wanted, call.served, options.manager, "scale")
    replicas = get_map(wanted, "spec").get("replicas", 0)
    if replicas == _UNSET:
        raise bad_request(f'the spec replicas field ".{".".join(path)}" cannot be empty')
    _check_replicas(call, replicas)
    obj = with_object_entries(obj, wanted, fields, call.served.api_version)
    ensure(obj, *path[:-1])[path[-1]] = replicas
    if version := get_str(wanted, "metadata", "resourceVersion"):
        ensure(obj, "metadata")["resourceVersion"] = version
    obj["apiVersion"] = call.served.api_version
    written = await update(call, head, obj, options, managed=True, admitted=True)
    return reply(_scale_of(call, written if isinstance(written, dict) else written.decoded()))


def _patch(call: Call, live: Json, raw: bytes, kind: str, options: WriteOptions) -> Json:
    patched = patch_json(live, read_patch(raw, kind, options.validation), definition(SCALE))
    wanted = _decode(patched, call)
    check_name(check_place(wanted, call), call)
    return wanted


def _apply(call: Call, live: Json, raw: bytes, manager: str) -> Json:
    config, force = parse_yaml(raw), call.request.flag("force")
    check_applied(config, "autoscaling", "v1", "Scale")
    wanted = object_schema.track_apply(live, config, call.served, manager, force, "scale")
    check_name(check_place(wanted, call), call)
    return wanted


def _check_replicas(call: Call, replicas: object) -> None:
    if call.served.custom is None and is_integer(replicas) and replicas < 0:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_error("autoscaling", "Scale", call.target.name, [error])


def _replicas(call: Call, obj: Json) -> object:
    """Return the replicas of an object; None if a custom resource does not have them."""
    path = _replicas_path(call)
    return 0 if call.served.custom is None else get_map(obj, *path[:-1]).get(path[-1])


def _decode(wanted: Json, call: Call) -> Json:
    """Return a Scale that was sent or patched, with its types checked."""
    for field, meant in (("kind", "Scale"), ("apiVersion", SCALE_VERSION)):
        wanted[field] = wanted.get(field) or meant
    if (wanted["kind"], wanted["apiVersion"]) != ("Scale", SCALE_VERSION):
        raise bad_request(f"{wanted['kind']} of {wanted['apiVersion']} cannot be handled as a Scale")
    try:
        decode(wanted, definition(SCALE))
    except DecodeError as error:
        if call.request.method == "PATCH":
            raise invalid_error("", "", "", [invalid("patch", wanted, str(error))]) from error
        raise bad_request(f'Scale in version "v1" cannot be handled as a Scale: {error}') from error
    return wanted


def _replicas_path(call: Call) -> list[str]:
    return _path(_paths(call).spec_replicas)


def _paths(call: Call) -> ScalePaths:
    if call.served.custom is None:
        return ScalePaths(".spec.replicas", ".status.replicas")
    assert call.served.custom.scale is not None
    return call.served.custom.scale


def _path(json_path: str) -> list[str]:
    return json_path.removeprefix(".").split(".")


def _scale_of(call: Call, obj: Json) -> Json:
    paths, metadata = _paths(call), get_map(obj, "metadata")
    status: Json = {"replicas": get_int(obj, *_path(paths.status_replicas))}
    selector = get_str(obj, *_path(paths.label_selector)) if paths.label_selector else ""
    if call.served.custom is None and (selected := get_map(obj, "spec", "selector")):
        selector = selector_text(selected)
    if selector:
        status["selector"] = selector
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = get_int(obj, *_path(paths.spec_replicas))
    return {
        "kind": "Scale",
        "apiVersion": SCALE_VERSION,
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }
