"""Applies a kind's schema to objects: unknown fields, pruning, defaults, validation, managed fields.

Handlers use the schema package through this module.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from argosy.local.apiserver.options import FieldValidation, invalid_error
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import StatusError, bad_request
from argosy.local.apiserver.strategies import STATUS_KEEPS_LABELS
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.builtin import SCALE, definition
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.crd import prune_default
from argosy.local.schema.crd.definition import crd_errors
from argosy.local.schema.crd.validate import validate as validate_custom
from argosy.local.schema.crd.validate import validate_status
from argosy.local.schema.defaults.objects import apply_defaults
from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.ssa.apply import ApplyError, Conflicts, apply
from argosy.local.schema.ssa.typed_shape import MergeError
from argosy.local.schema.ssa.update import SCALE_VERSION, Filter, excluding, only, update_managed_fields
from argosy.local.schema.unstructured import get_map, get_maps, get_str
from argosy.local.schema.validation.metadata import metadata_errors
from argosy.local.schema.validation.objects import validate_builtin
from argosy.local.schema.validation.scale import scale_errors


def admit_fields(
    obj: Json,
    served: Served,
    validation: FieldValidation,
    warnings: list[str],
    *,
    patch: str | None = None,
    problems: Sequence[str] = (),
    applied: bool = False,
) -> Json:
    """Return the object as it is stored: typed, pruned, with defaults; 400 if it cannot be decoded.

    `patch` is the text of the patch that the object results from, for the error. `problems` are those of the
    request body, such as duplicate fields, which are reported together with unknown fields.
    """
    try:
        if served.custom is None:
            unknown = decode(obj, served.schema)
        else:
            unknown = prune_default.admit(obj, served.schema, keep_nulls=applied)
    except DecodeError as error:
        raise _undecodable(served, str(error), patch) from error
    if served.custom is None and patch is None:
        # Kubernetes decodes these into their Go types, and skips fields that a type does not have.
        problems = [problem for problem in problems if not _is_within(problem.split('"')[1], unknown)]
    report([*problems, *(f'unknown field "{path}"' for path in unknown)], served, validation, warnings, patch)
    if served.custom is None:
        apply_defaults(served.group, served.kind, obj)
    return obj


def _is_within(path: str, fields: Iterable[str]) -> bool:
    """Return True if the path is one of these fields or below one of them."""
    return any(path == field or path.startswith((f"{field}.", f"{field}[")) for field in fields)


def invalid_object(obj: Json, served: Served, name: str, errors: list[FieldError]) -> StatusError:
    """Return the response to an invalid object; it names the kind that a custom resource claims to be."""
    if served.custom is None:
        return invalid_error(served.group, served.kind, name, errors)
    return invalid_error(get_str(obj, "apiVersion").rpartition("/")[0], get_str(obj, "kind"), name, errors)


def _kind_errors(obj: Json, served: Served) -> list[FieldError]:
    """Return the errors of the kind and the apiVersion of a custom resource."""
    return [
        invalid(field, get_str(obj, field), f"must be {meant}")
        for field, meant in (("kind", served.kind), ("apiVersion", served.api_version))
        if get_str(obj, field) != meant
    ]


def validate(obj: Json, served: Served, old: Json | None, subresource: str = "") -> list[FieldError]:
    """Return the errors of an object that is about to be stored."""
    if served.custom is not None:
        errors = metadata_errors(
            served.group, served.kind, obj, old, namespaced=served.namespaced, custom=True
        )
        if wrong := _kind_errors(obj, served):
            return wrong if old is None else [*errors, *wrong]
        if scale := served.custom.scale:
            replicas = (scale.spec_replicas, scale.status_replicas)[subresource == "status" :]
            errors += scale_errors(obj, replicas, scale.label_selector)
        validate = validate_status if subresource == "status" else validate_custom
        return validate(obj, served.schema, old, errors)
    errors = validate_builtin(
        served.group, served.kind, obj, old, namespaced=served.namespaced, subresource=subresource
    )
    if served.storage == _DEFINITIONS and not subresource:
        errors += _definition_errors(obj, old)
    return errors


_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def _definition_errors(obj: Json, old: Json | None) -> list[FieldError]:
    errors = list(crd_errors(obj))
    if old is None:
        return errors
    fixed = [("group",), ("names", "plural")]
    if any(get_str(c, "type") == "Established" for c in get_maps(old, "status", "conditions")):
        fixed += [("scope",), ("names", "kind")]
    return [
        *(error for error in errors if error.path != "metadata.name"),
        *(
            invalid(f"spec.{'.'.join(path)}", get_str(obj, "spec", *path), "field is immutable")
            for path in fixed
            if get_str(obj, "spec", *path) != get_str(old, "spec", *path)
        ),
    ]


def track_update(old: Json | None, new: Json, served: Served, manager: str, subresource: str) -> Json:
    """Return the new object with its managedFields updated; without any if it has wrong types."""
    api_version, schema = _type_of(served, subresource)
    try:
        return update_managed_fields(
            old,
            new,
            manager=manager,
            api_version=api_version,
            time=now_text(),
            schema=schema,
            subresource=subresource,
            resets=_resets(served, subresource),
        )
    except MergeError:
        metadata = get_map(new, "metadata")
        metadata.pop("managedFields", None)
        return new


def track_apply(
    live: Json | None, config: Json, served: Served, manager: str, force: bool, subresource: str
) -> Json:
    """Return the live object with a configuration applied; 409 if others own fields that it changes."""
    api_version, schema = _type_of(served, subresource)
    with apply_errors_as_responses():
        return apply(
            live,
            config,
            manager=manager,
            api_version=api_version,
            time=now_text(),
            schema=schema,
            force=force,
            subresource=subresource,
            resets=_resets(served, subresource),
        )


def _type_of(served: Served, subresource: str) -> tuple[str, Schema]:
    """Return the version and the schema of what an endpoint reads and writes."""
    is_scale = subresource == "scale"
    return (SCALE_VERSION, definition(SCALE)) if is_scale else (served.api_version, served.schema)


@contextmanager
def apply_errors_as_responses() -> Iterator[None]:
    """Turn errors of server-side apply into responses."""
    try:
        yield
    except Conflicts as conflicts:
        raise StatusError(409, "Conflict", str(conflicts), {"causes": conflicts.causes()}) from conflicts
    except ApplyError as error:
        raise StatusError(500, "", str(error)) from error


def _resets(served: Served, subresource: str) -> Filter | None:
    """Return the fields that a write to this endpoint does not change, so the writer does not own them."""
    if subresource == "status":
        if served.custom is not None:
            return only("status")
        kept = STATUS_KEEPS_LABELS
        return excluding("spec", "metadata.labels") if served.storage in kept else excluding("spec")
    if served.has_status and not subresource:
        return excluding("status")
    return None


def report(
    problems: list[str],
    served: Served,
    validation: FieldValidation,
    warnings: list[str],
    patch: str | None = None,
) -> None:
    """Warn of problems or reject the object, depending on fieldValidation."""
    if not problems or validation == "Ignore":
        return
    if validation == "Warn":
        warnings.extend(problems)
        return
    raise _undecodable(served, "strict decoding error: " + ", ".join(problems), patch)


def _undecodable(served: Served, why: str, patch: str | None) -> StatusError:
    if patch is not None:
        return invalid_error("", "", "", [invalid("patch", patch, why)])
    kind = served.kind
    return bad_request(f'{kind} in version "{served.version}" cannot be handled as a {kind}: {why}')
