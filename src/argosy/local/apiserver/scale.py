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
from argosy.local.apiserver.representations import as_served
from argosy.local.apiserver.status import bad_request, internal
from argosy.local.apiserver.store import Stored
from argosy.local.apiserver.update import check_name, check_uid, update
from argosy.local.schema.builtin import definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.crd.definition import ScalePaths
from argosy.local.schema.errors import invalid
from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import selector_text
from argosy.local.schema.unstructured import ensure, get_int, get_map, get_str, is_integer

_SCHEMA = "io.k8s.api.autoscaling.v1.Scale"
_VERSION = "autoscaling/v1"
_UNSET = -(2**31)
"""The replicas of a custom resource without replicas while its scale is patched, as in Kubernetes."""


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
        wanted = check_place(_decoded(await read_object(call.request, "Scale"), call), call)
        check_name(wanted, call)
    head = call.head()
    if not kind:
        check_uid(call, head, get_str(wanted, "metadata", "uid"))
    elif kind == APPLY_PATCH:
        return await _apply(call, head, options)
    else:
        wanted = _patched(call, head.decoded(), await call.request.body(), kind, options)
    obj = head.decoded()
    path, replicas = _replicas_path(call), get_map(wanted, "spec").get("replicas", 0)
    _check_replicas(call, replicas)
    ensure(obj, *path[:-1])[path[-1]] = replicas
    if version := get_str(wanted, "metadata", "resourceVersion"):
        ensure(obj, "metadata")["resourceVersion"] = version
    return await _write(call, head, obj, options)


async def _write(
    call: Call, head: Stored, obj: Json, options: WriteOptions, *, applied: bool = False
) -> Response:
    obj["apiVersion"] = call.served.api_version
    written = await update(call, head, obj, options, managed=applied, admitted=True)
    return reply(_scale_of(call, written if isinstance(written, dict) else written.decoded()))


def _patched(call: Call, obj: Json, raw: bytes, kind: str, options: WriteOptions) -> Json:
    current = _scale_of(call, obj)
    if _replicas(call, obj) is None:
        current["spec"] = {"replicas": _UNSET}
    patched = patch_json(current, read_patch(raw, kind, options.validation), definition(_SCHEMA))
    if get_map(patched, "spec").get("replicas") == _UNSET:
        path = ".".join(_replicas_path(call))
        raise bad_request(f'the spec replicas field ".{path}" cannot be empty')
    wanted = _decoded(patched, call)
    check_name(check_place(wanted, call), call)
    return wanted


async def _apply(call: Call, head: Stored, options: WriteOptions) -> Response:
    """Apply the replicas of a Scale as if they were applied to the object itself."""
    served, config = call.served, parse_yaml(await call.request.body())
    check_applied(config, "autoscaling", "v1", "Scale")
    path, replicas = _replicas_path(call), get_map(config, "spec").get("replicas", 0)
    _check_replicas(call, replicas)
    applied: Json = {
        "apiVersion": served.api_version,
        "kind": served.kind,
        "metadata": config.get("metadata"),
    }
    ensure(applied, *path[:-1])[path[-1]] = replicas
    force, live = call.request.flag("force"), as_served(head.decoded(), served)
    merged = object_schema.track_apply(live, applied, served, options.manager, force, "scale")
    check_name(check_place(merged, call), call)
    return await _write(call, head, merged, options, applied=True)


def _check_replicas(call: Call, replicas: object) -> None:
    if call.served.custom is None and is_integer(replicas) and replicas < 0:
        error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise invalid_error("autoscaling", "Scale", call.target.name, [error])


def _replicas(call: Call, obj: Json) -> object:
    """Return the replicas of an object; None if a custom resource does not have them."""
    path = _replicas_path(call)
    return 0 if call.served.custom is None else get_map(obj, *path[:-1]).get(path[-1])


def _decoded(wanted: Json, call: Call) -> Json:
    """Return a Scale that was sent or patched, with its types checked."""
    for field, meant in (("kind", "Scale"), ("apiVersion", _VERSION)):
        wanted[field] = wanted.get(field) or meant
    if (wanted["kind"], wanted["apiVersion"]) != ("Scale", _VERSION):
        raise bad_request(f"{wanted['kind']} of {wanted['apiVersion']} cannot be handled as a Scale")
    try:
        decode(wanted, definition(_SCHEMA))
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
        "apiVersion": _VERSION,
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }
