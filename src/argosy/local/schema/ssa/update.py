"""Updates managedFields after a create, an update or a patch.

The writer owns the fields that it changed; other managers no longer own those that it changed or removed.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias, cast

from msgspec import UNSET
from msgspec.structs import replace

from argosy.local.schema.model import Json, Schema
from argosy.local.schema.ssa import fieldpath, managedfields
from argosy.local.schema.ssa.fieldpath import FieldSet
from argosy.local.schema.ssa.managedfields import UPDATE, Entry, Identity
from argosy.local.schema.ssa.merge import Comparison, compare
from argosy.local.schema.ssa.typed_shape import Shape, shape_of

SCALE_VERSION = "autoscaling/v1"
_SCALE_REPLICAS = ("f:spec", "f:replicas")
# Fields that are not in managedFields.
_UNOWNED_METADATA = frozenset(
    {
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    }
)

Filter: TypeAlias = Callable[[FieldSet], FieldSet]


def excluding(*paths: str) -> Filter:
    """Return a filter that removes these fields, such as `status` for writes to the main endpoint."""
    excluded: FieldSet = {}
    for path in paths:
        inner = excluded
        for name in path.split("."):
            inner = cast("FieldSet", inner.setdefault(f"f:{name}", {}))
    return lambda fields: fieldpath.without(fields, excluded)


def only(top_level: str) -> Filter:
    """Return a filter that keeps one top-level field, such as the `status` of a custom resource."""
    key = f"f:{top_level}"
    return lambda fields: {key: fields[key]} if key in fields else {}


def update_managed_fields(
    old: Json | None,
    new: Json,
    *,
    manager: str,
    api_version: str,
    time: str,
    schema: Schema,
    subresource: str = "",
    resets: Filter | None = None,
) -> Json:
    """Return a copy of `new` with its managedFields updated; `old` is None for a create.

    `time` is the current time in RFC 3339, in seconds.
    """
    entries = _known_entries(old, new, subresource)
    if not entries and old is not None:
        return with_entries(new, ())
    before = empty_object(schema) if old is None else old
    entries = attribute(
        before, new, entries, manager or "unknown", api_version, time, schema, subresource, resets
    )
    return with_entries(new, managedfields.capped(entries).values())


def attribute(
    old: Json,
    new: Json,
    entries: dict[Identity, Entry],
    manager: str,
    api_version: str,
    time: str,
    schema: Schema,
    subresource: str,
    resets: Filter | None,
) -> dict[Identity, Entry]:
    """Return the entries after `manager` changed old into new."""
    before = _empty_part(schema) if old is empty_object(schema) else owned_part(old)
    change = changes(before, owned_part(new), shape_of(schema), resets)
    taken = strip(fieldpath.union(change.added, change.modified))
    if taken or change.removed:
        entries = without_fields(entries, (taken, change.removed))
    if taken:
        entry = Entry(manager, UPDATE, api_version, taken, time, subresource)
        previous = entries.get(entry.identity)
        if previous is not None:
            entry = Entry(
                manager, UPDATE, api_version, fieldpath.union(taken, previous.fields), time, subresource
            )
        entries[entry.identity] = entry
    return entries


def changes(old: Json, new: Json, shape: Shape, resets: Filter | None) -> Comparison:
    """Return the changed fields, filtered by `resets`."""
    change = compare(old, new, shape)
    if resets is not None:
        change.added, change.modified = resets(change.added), resets(change.modified)
        change.removed = resets(change.removed)
    return change


def empty_object(schema: Schema) -> Json:
    """Return an empty object of this kind: with the structs and lists that Kubernetes always writes."""
    empty = schema.compiled.get("empty")
    if empty is None:
        empty = schema.compiled["empty"] = _zero(schema, ())
    return cast("Json", empty)


def _empty_part(schema: Schema) -> Json:
    empty_part = schema.compiled.get("empty_part")
    if empty_part is None:
        empty_part = schema.compiled["empty_part"] = owned_part(empty_object(schema))
    return cast("Json", empty_part)


def _zero(schema: Schema, above: tuple[str, ...]) -> Json:
    reference = schema.structure.reference
    if not reference or reference in above:
        return {}
    result: Json = {}
    for name, field in schema.properties.items():
        if isinstance(field.default, dict):
            result[name] = _zero(field, (*above, reference))
        elif field.default is not UNSET and not field.default:
            result[name] = field.default
        elif name in schema.structure.null:
            result[name] = None
    return result


def with_entries(obj: Json, entries: Iterable[Entry]) -> Json:
    """Return the object with these entries in managedFields."""
    metadata = {key: value for key, value in metadata_of(obj).items() if key != "managedFields"}
    if encoded := managedfields.encode(entries):
        metadata["managedFields"] = encoded
    return {**obj, "metadata": metadata}


def with_scale_entries(scale: Json, obj: Json, path: tuple[str, ...]) -> Json:
    """Return the Scale of an object with an entry for each owner of its replicas, which are at this path."""
    owners = [entry for entry in _entries(obj).values() if fieldpath.has(entry.fields, path)]
    fields = fieldpath.insert({}, _SCALE_REPLICAS)
    return with_entries(scale, (replace(owner, api_version=SCALE_VERSION, fields=fields) for owner in owners))


def with_object_entries(obj: Json, scale: Json, path: tuple[str, ...], api_version: str) -> Json:
    """Return the object with the owners of its replicas after its Scale was written.

    The version is a part of the identity of an update, so an update's entry of the Scale is none of the
    object's. As in Kubernetes it becomes a new one without a time, even if the manager has another one;
    `decode` then keeps only the last.
    """
    fields, rest, entries = fieldpath.insert({}, path), _entries(scale), []
    for identity, entry in _entries(obj).items():
        if fieldpath.has(entry.fields, path) and rest.pop(identity, None) is None:
            entry = entry.with_fields(fieldpath.difference(entry.fields, fields))
        if entry.fields:
            entries.append(entry)
    owners = [entry for entry in rest.values() if fieldpath.has(entry.fields, _SCALE_REPLICAS)]
    entries += [replace(owner, api_version=api_version, fields=fields, time=None) for owner in owners]
    return with_entries(obj, entries)


def _entries(obj: Json) -> dict[Identity, Entry]:
    return managedfields.decode_or_empty(metadata_of(obj).get("managedFields"))


def without_entries(obj: Json) -> Json:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def _known_entries(old: Json | None, new: Json, subresource: str) -> dict[Identity, Entry]:
    live = metadata_of(old).get("managedFields") if old is not None else None
    if subresource:
        return managedfields.decode_or_empty(live)
    sent = metadata_of(new).get("managedFields")
    if sent is not None and managedfields.is_reset(sent):
        return {}
    if sent is None or sent is live:
        return managedfields.decode_or_empty(live)
    return managedfields.decode_or_empty(sent) or managedfields.decode_or_empty(live)


def without_fields(entries: dict[Identity, Entry], taken: tuple[FieldSet, ...]) -> dict[Identity, Entry]:
    result: dict[Identity, Entry] = {}
    for key, entry in entries.items():
        fields = entry.fields
        for some in taken:
            fields = fieldpath.difference(fields, some)
        if fields:
            result[key] = entry.with_fields(fields)
    return result


def strip(fields: FieldSet) -> FieldSet:
    """Return the set without fields that are not in managedFields."""
    if "f:metadata" not in fields and "f:apiVersion" not in fields and "f:kind" not in fields:
        return fields
    result = {key: node for key, node in fields.items() if key not in ("f:apiVersion", "f:kind")}
    metadata = fieldpath.child(fields, "f:metadata")
    if metadata is not None:
        kept = {
            key: node
            for key, node in metadata.items()
            if key != fieldpath.SELF and key[2:] not in _UNOWNED_METADATA
        }
        if kept:
            result["f:metadata"] = kept
        else:
            del result["f:metadata"]
    return result


def owned_part(obj: Json) -> Json:
    """Return the object without fields that are not in managedFields, which need not be compared."""
    result = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        result["metadata"] = {k: v for k, v in metadata.items() if k not in _UNOWNED_METADATA}
    return result


def metadata_of(obj: Json) -> Json:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
