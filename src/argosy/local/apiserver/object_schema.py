"""Objects under their schema: unknown fields, pruning, defaults, validation, managed fields.

The one place where the handlers meet the schema library.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from argosy.local.apiserver.options import FieldValidation, invalid_error
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.status import StatusError, bad_request
from argosy.local.apiserver.strategies import STATUS_KEEPS_LABELS
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.crd import prune_default
from argosy.local.schema.crd.definition import parse_crd
from argosy.local.schema.crd.validate import validate as validate_custom
from argosy.local.schema.crd.validate import validate_status
from argosy.local.schema.defaults.objects import apply_defaults
from argosy.local.schema.errors import FieldError, invalid
from argosy.local.schema.model import Json
from argosy.local.schema.ssa.apply import ApplyError, Conflicts, apply
from argosy.local.schema.ssa.typecheck import typed_problems
from argosy.local.schema.ssa.typed_shape import MergeError
from argosy.local.schema.ssa.update import Filter, excluding, only, update_managed_fields
from argosy.local.schema.unstructured import part, parts, text
from argosy.local.schema.validation.metadata import metadata_errors
from argosy.local.schema.validation.objects import validate_builtin
from argosy.local.schema.validation.scale import scale_errors


def admit_fields(
    obj: Json,
    served: Served,
    validation: FieldValidation,
    warnings: list[str],
    *,
    patched: str | None = None,
    doubled: Sequence[str] = (),
    told: Sequence[str] = (),
    applied: bool = False,
    ordered: bool = False,
) -> Json:
    """The object in the form that is stored: typed, pruned, with defaults; 400 when it cannot be read.

    `doubled` are paths of fields that stood twice in the body, which is told together with unknown ones, and
    `told` is what is wrong with the patch that made it;
    `ordered` when Kubernetes would read the fields by their names, whatever their order here.
    """
    problems = [f'duplicate field "{path}"' for path in doubled]
    if served.custom is None:
        try:
            unknown = decode(obj, served.schema, served.kind)
        except DecodeError as error:
            raise _unreadable(served, str(error), patched) from error
        if ordered:
            unknown.sort(key=_by_names)
        # What is unknown is not looked at, and so not seen to stand there twice.
        problems = [f'duplicate field "{path}"' for path in doubled if path not in unknown]
        problems += [f'unknown field "{path}"' for path in unknown]
        report([*told, *problems], served, validation, warnings, patched)
        apply_defaults(served.group, served.kind, obj)
        return obj
    try:
        if is_foreign(obj, served):
            known = names_of(obj, served) == (served.group, served.kind)
            unknown = prune_default.admit_foreign(obj, known=known)
        else:
            unknown = prune_default.admit(obj, served.schema, keep_nulls=applied)
    except DecodeError as error:
        raise _unreadable(served, str(error), patched, obj) from error
    problems += [f'unknown field "{path}"' for path in unknown]
    report([*told, *problems], served, validation, warnings, patched, obj)
    return obj


def _by_names(path: str) -> list[tuple[int, str]]:
    return [(int(index or -1), name) for index, name in re.findall(r"\[(\d+)\]|([^.\[]+)", path)]


def is_foreign(obj: Json, served: Served) -> bool:
    """Whether what was sent as a custom resource says that it is something else."""
    return served.custom is not None and bool(_kind_errors(obj, served))


def names_of(obj: Json, served: Served) -> tuple[str, str]:
    """The group and kind of an object, which of a custom resource are those that it says."""
    if served.custom is None:
        return served.group, served.kind
    return text(obj, "apiVersion").rpartition("/")[0], text(obj, "kind")


def _kind_errors(obj: Json, served: Served) -> list[FieldError]:
    return [
        invalid(field, text(obj, field), f"must be {meant}")
        for field, meant in (("kind", served.kind), ("apiVersion", served.api_version))
        if text(obj, field) != meant
    ]


def validate(obj: Json, served: Served, old: Json | None, subresource: str = "") -> list[FieldError]:
    """What is wrong with an object that is about to be stored."""
    if served.custom is not None:
        errors = metadata_errors(
            served.group, served.kind, obj, old, namespaced=served.namespaced, custom=True
        )
        if foreign := _kind_errors(obj, served):
            return foreign if old is None else [*errors, *foreign]
        if subresource == "status":
            replicas = scale_errors(obj, served.custom.replicas[1:], served.custom.selector)
            return validate_status(obj, served.schema, old, [*errors, *replicas])
        replicas = scale_errors(obj, served.custom.replicas, served.custom.selector)
        return validate_custom(obj, served.schema, old, [*errors, *replicas])
    errors = validate_builtin(
        served.group, served.kind, obj, old, namespaced=served.namespaced, subresource=subresource
    )
    if served.storage == _DEFINITIONS and not subresource:
        errors += _definition_errors(obj, old)
    return errors


_DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def _definition_errors(obj: Json, old: Json | None) -> list[FieldError]:
    parsed = parse_crd(obj)
    errors = parsed if isinstance(parsed, list) else []
    if old is None:
        return errors
    fixed = [("group",), ("names", "plural")]
    if any(text(one, "type") == "Established" for one in parts(old, "status", "conditions")):
        fixed += [("scope",), ("names", "kind")]
    return [
        *(error for error in errors if error.path != "metadata.name"),
        *(
            invalid(f"spec.{'.'.join(path)}", text(obj, "spec", *path), "field is immutable")
            for path in fixed
            if text(obj, "spec", *path) != text(old, "spec", *path)
        ),
    ]


def typed_where_dropped(obj: Json, served: Served, subresource: str) -> bool:
    """Whether the part of a custom resource that this request may not write has the types of its schema."""
    if served.custom is None or not served.has_status or subresource not in ("", "status"):
        return True
    dropped = {name: value for name, value in obj.items() if (name == "status") is not bool(subresource)}
    dropped.pop("metadata", None)
    return not typed_problems(dropped, served.schema, repeats=True)


def track_update(old: Json | None, new: Json, served: Served, manager: str, subresource: str) -> Json:
    """The new object with its fields attributed to who wrote them; to nobody when it has wrong types."""
    try:
        return update_managed_fields(
            old,
            new,
            manager=manager,
            api_version=served.api_version,
            time=now_text(),
            schema=served.schema,
            subresource=subresource,
            resets=_resets(served, subresource),
        )
    except MergeError:
        metadata = part(new, "metadata")
        metadata.pop("managedFields", None)
        return new


def track_apply(
    live: Json | None, config: Json, served: Served, manager: str, force: bool, subresource: str
) -> Json:
    """The live object with a configuration applied; 409 when others own what it changes."""
    with apply_refusals():
        return apply(
            live,
            config,
            manager=manager,
            api_version=served.api_version,
            time=now_text(),
            schema=served.schema,
            force=force,
            subresource=subresource,
            resets=_resets(served, subresource),
        )


@contextmanager
def apply_refusals() -> Iterator[None]:
    """What apply cannot do, as the answer that tells it."""
    try:
        yield
    except Conflicts as conflicts:
        raise StatusError(409, "Conflict", str(conflicts), {"causes": conflicts.causes()}) from conflicts
    except ApplyError as error:
        raise StatusError(500, "", str(error)) from error


def _resets(served: Served, subresource: str) -> Filter | None:
    """Which fields a write through this endpoint gives no ownership of."""
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
    patched: str | None = None,
    obj: Json | None = None,
) -> None:
    """Warn of problems or refuse the object, as field validation asks."""
    if not problems or validation == "Ignore":
        return
    if validation == "Warn":
        warnings.extend(problems)
        return
    why = "strict decoding error: " + ", ".join(problems)
    # By now Kubernetes has taken a custom resource for what it says it is.
    raise _unreadable(served, why, patched, obj, meant=text(obj, "kind"))


def _unreadable(
    served: Served, why: str, patched: str | None, obj: Json | None = None, meant: str = ""
) -> StatusError:
    """What cannot be read. A custom resource `obj` may say that it is of another kind or version."""
    if patched is not None:
        return invalid_error("", "", "", [invalid("patch", patched, why)])
    kind, version = served.kind, served.version
    if obj is not None:
        kind, version = text(obj, "kind"), text(obj, "apiVersion").rpartition("/")[2]
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {meant or served.kind}: {why}')
