"""Validates metadata, by the same rules for all kinds, built-in and custom."""

from collections.abc import Iterator, Mapping

from argosy.local.schema.errors import FieldError, forbidden, invalid, invalid_each, required, too_long
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps, get_str
from argosy.local.schema.validation.names import (
    is_label,
    is_label_value,
    is_qualified_name,
    label_problems,
    label_value_problems,
    name_problems,
    qualified_name_problems,
)

ANNOTATION_BYTES = 256 * 1024
STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_IMMUTABLE = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


_ANY_FINALIZER = frozenset({"coordination.k8s.io", "apiextensions.k8s.io"})
"""Groups of built-in kinds that accept any finalizer, as custom resources do."""


def metadata_errors(
    group: str,
    kind: str,
    obj: Json,
    old: Json | None = None,
    *,
    namespaced: bool = True,
    custom: bool = False,
) -> list[FieldError]:
    """Return the errors of an object's metadata; in an update also those of immutable fields."""
    metadata = get_map(obj, "metadata")
    errors: list[FieldError] = []
    if old is None:
        errors += _name_errors(group, kind, metadata, namespaced)
    generation = metadata.get("generation")
    if isinstance(generation, int) and generation < 0:
        errors.append(invalid("metadata.generation", generation, "must be greater than or equal to 0"))
    for field in ("labels", "annotations"):
        values = metadata.get(field)
        if values:
            errors += map_errors(values, f"metadata.{field}")
    if metadata.get("ownerReferences"):
        errors += _owner_errors(metadata)
    if metadata.get("finalizers"):
        errors += _finalizer_errors(metadata, custom or group in _ANY_FINALIZER)
    if old is not None:
        errors += _change_errors(metadata, get_map(old, "metadata"))
    return errors


def map_errors(values: object, path: str) -> Iterator[FieldError]:
    """Yield the errors of labels or annotations: of their keys, and of the values of labels."""
    if not isinstance(values, Mapping):
        return
    labels = not path.endswith("annotations")
    size = 0
    for key, value in values.items():
        shown = key if labels else key.lower()
        if not is_qualified_name(shown):
            yield from invalid_each(path, key, qualified_name_problems(shown))
        if labels:
            if not is_label_value(str(value)):
                yield from invalid_each(path, value, label_value_problems(str(value)))
        else:
            size += len(key) + len(str(value))
    if size > ANNOTATION_BYTES:
        yield too_long(path, ANNOTATION_BYTES)


def immutable(path: str, new: object, old: object) -> Iterator[FieldError]:
    """Yield the error of an immutable field that changed."""
    if new != old:
        yield invalid(path, new, "field is immutable")


def _name_errors(group: str, kind: str, metadata: Json, namespaced: bool) -> Iterator[FieldError]:
    name, prefix = get_str(metadata, "name"), get_str(metadata, "generateName")
    if prefix:
        # The name ends in generated characters, so the prefix may end in a dash.
        problems = name_problems(group, kind, prefix.rstrip("-") or prefix)
        yield from invalid_each("metadata.generateName", prefix, problems)
    if not name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from invalid_each("metadata.name", name, name_problems(group, kind, name))
    namespace = get_str(metadata, "namespace")
    if namespaced and not namespace:
        yield required("metadata.namespace")
    elif namespaced:
        if not is_label(namespace):
            yield from invalid_each("metadata.namespace", namespace, label_problems(namespace))
    elif namespace:
        yield forbidden("metadata.namespace", "not allowed on this type")


def _owner_errors(metadata: Json) -> Iterator[FieldError]:
    owners = get_maps(metadata, "ownerReferences")
    controllers: list[Json] = []
    for owner in owners:
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield invalid(f"metadata.ownerReferences.{field}", "", _empty_owner(field))
        version = get_str(owner, "apiVersion")
        if version.count("/") > 1:  # invalid, so that there is no version
            yield invalid("metadata.ownerReferences.apiVersion", version, _empty_owner("apiVersion"))
        if owner.get("apiVersion") == "v1" and owner.get("kind") == "Event":
            message = "/v1, Kind=Event is disallowed from being an owner"
            yield invalid("metadata.ownerReferences", owner, message)
        if owner.get("controller") is True:
            controllers.append(owner)
            if len(controllers) == 2:
                first, second = (f"{get_str(c, 'kind')}/{get_str(c, 'name')}" for c in controllers)
                message = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{first} and {second}"
                )
                yield invalid("metadata.ownerReferences", owners, message)


def _empty_owner(field: str) -> str:
    return "version must not be empty" if field == "apiVersion" else "must not be empty"


def _finalizer_errors(metadata: Json, custom: bool) -> Iterator[FieldError]:
    finalizers = metadata.get("finalizers")
    names = [str(name) for name in finalizers] if isinstance(finalizers, list) else []
    for index, name in enumerate(names):
        yield from invalid_each("metadata.finalizers", name, qualified_name_problems(name))
        if not custom and "/" not in name and name not in STANDARD_FINALIZERS:
            message = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid(f"metadata.finalizers[{index}]", name, message)
    if "orphan" in names and "foregroundDeletion" in names:
        message = "finalizer orphan and foregroundDeletion cannot be both set"
        yield invalid("metadata.finalizers", names, message)


def _change_errors(new: Json, old: Json) -> Iterator[FieldError]:
    if not new.get("resourceVersion"):
        yield invalid("metadata.resourceVersion", "", "must be specified for an update")
    for field in _IMMUTABLE:
        if new.get(field) != old.get(field):
            yield invalid(f"metadata.{field}", new.get(field), "field is immutable")
