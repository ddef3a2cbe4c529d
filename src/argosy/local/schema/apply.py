"""Server-side apply, and ownership of fields for every other write.

`apply` merges a manager's configuration into the live object: what the manager applied before and leaves
out now goes away unless someone else owns it, what others own and the configuration changes is a conflict
unless forced. `update_managed_fields` attributes a create, update or patch to its manager. Both give the
entries of managedFields exactly as kube-apiserver writes them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

import msgspec
from msgspec import UNSET, Struct

from argosy.local.schema import fieldsets, managed
from argosy.local.schema.fieldsets import FieldSet
from argosy.local.schema.managed import APPLY, UPDATE, Entry, Identity
from argosy.local.schema.merging import compare, field_set, merge, remove, with_named_fields
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.shapes import MergeError, Shape, shape_of, shown
from argosy.local.schema.typed import typed_problems

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# Fields that nobody owns.
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


class Conflict(Struct, frozen=True):
    """One path that another manager owns."""

    owner: Entry
    path: tuple[str, ...]

    @property
    def field(self) -> str:
        return "".join(shown(step) for step in self.path)


class Conflicts(Exception):  # noqa: N818 - the word Kubernetes uses for it
    """An apply that would take fields from others; the text is the message of the 409."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts
        super().__init__(_message(conflicts))

    def causes(self) -> list[Json]:
        """The entries of the Status' `details.causes`."""
        return [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {c.owner.shown}",
                "field": c.field,
            }
            for c in self.conflicts
        ]


class ApplyError(Exception):
    """A configuration that cannot be merged; the text is for the client."""


def excluding(*top_level: str) -> Filter:
    """A filter that gives no ownership of these top-level fields, such as `status` on the main endpoint."""
    excluded = {f"f:{name}": cast("object", {}) for name in top_level}
    return lambda fields: fieldsets.without(fields, excluded)


def only(top_level: str) -> Filter:
    """A filter that gives ownership of one top-level field alone, such as a custom resource's `status`."""
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
    """New with its managedFields brought up to date; `old` is None for a create.

    Neither argument is changed. `time` is the present in RFC 3339 with whole seconds.
    """
    entries = _known_entries(old, new, subresource)
    if not entries and old is not None:
        return with_entries(new, entries)
    before = empty_object(schema) if old is None else old
    entries = _attribute(
        before, new, entries, manager or "unknown", api_version, time, schema, subresource, resets
    )
    return with_entries(new, managed.capped(entries))


def _attribute(
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
    """The entries after `manager` changed old into new."""
    before = _empty_part(schema) if old is empty_object(schema) else _owned_part(old)
    change = compare(before, _owned_part(new), shape_of(schema))
    if resets is not None:
        change.added, change.modified = resets(change.added), resets(change.modified)
        change.removed = resets(change.removed)
    taken = _strip(fieldsets.union(change.added, change.modified))
    if taken or change.removed:
        entries = _without_fields(entries, (taken, change.removed))
    if taken:
        mine = Entry(manager, UPDATE, api_version, taken, time, subresource)
        previous = entries.get(mine.identity)
        if previous is not None:
            mine = Entry(
                manager, UPDATE, api_version, fieldsets.union(taken, previous.fields), time, subresource
            )
        entries[mine.identity] = mine
    return entries


def apply(
    live: Json | None,
    config: Json,
    *,
    manager: str,
    api_version: str,
    time: str,
    schema: Schema,
    force: bool = False,
    subresource: str = "",
    resets: Filter | None = None,
    known: Iterable[str] | None = None,
) -> Json:
    """The live object (None: there is none yet) with the configuration applied.

    Raises `Conflicts` when others own what would change and `force` is not given. Defaults, pruning and
    validation are the caller's, afterwards. `known` are the versions that are served; entries of others are
    dropped.
    """
    problems = typed_problems(config, schema)
    if problems:
        raise ApplyError(f"failed to create typed patch object ({_named(config)}): {problems}")
    before: Json = live if live is not None else {}
    entries = managed.decode_or_empty(_metadata(before).get("managedFields"))
    if known is not None:
        served = set(known)
        entries = {key: entry for key, entry in entries.items() if entry.api_version in served}
    if live is not None and not entries:
        entries = _attribute(
            empty_object(schema), live, {}, "before-first-apply", api_version, time, schema, "", resets
        )
    try:
        return _apply(before, config, entries, manager, api_version, time, schema, force, subresource, resets)
    except Conflicts as conflicts:
        allowed = _allowed_by_last_applied(before, schema) if manager == "kubectl" else None
        if allowed is None:
            raise
        rest = [c for c in conflicts.conflicts if not fieldsets.has(allowed, c.path)]
        if rest:
            raise Conflicts(rest) from None
        return _apply(before, config, entries, manager, api_version, time, schema, True, subresource, resets)


def _apply(
    live: Json,
    config: Json,
    entries: dict[Identity, Entry],
    manager: str,
    api_version: str,
    time: str,
    schema: Schema,
    force: bool,
    subresource: str,
    resets: Filter | None,
) -> Json:
    shape = shape_of(schema)
    try:
        claimed = field_set(config, shape)
        base = _without_entries(live)
        merged = cast("Json", merge(base, config, shape))
    except MergeError as error:
        raise ApplyError(str(error)) from None
    if resets is not None:
        claimed = resets(claimed)
    mine = Entry(manager, APPLY, api_version, claimed, None, subresource)
    last = entries.get(mine.identity)
    owned = {**entries, mine.identity: mine}
    if last is not None:
        merged = _prune(merged, shape, last.fields, owned)
    owned = _settle(base, merged, owned, mine, shape, force, resets)
    changed = merged != base
    stripped = _strip(claimed)
    owned.pop(mine.identity, None)
    if stripped:
        kept = last.time if last is not None else None
        owned[mine.identity] = Entry(
            manager, APPLY, api_version, stripped, time if changed else kept, subresource
        )
    result = with_entries(merged, owned)
    if manager == "kubectl" and LAST_APPLIED in _annotations(result):
        return _with_last_applied(result, config)
    return result


def _settle(
    live: Json,
    merged: Json,
    entries: dict[Identity, Entry],
    mine: Entry,
    shape: Shape,
    force: bool,
    resets: Filter | None,
) -> dict[Identity, Entry]:
    """Take from the others what the merge changed, or refuse."""
    change = compare(_owned_part(live), _owned_part(merged), shape)
    if resets is not None:
        change.added, change.modified = resets(change.added), resets(change.modified)
        change.removed = resets(change.removed)
    taken = fieldsets.union(change.modified, change.added)
    others = {key: entry for key, entry in entries.items() if key != mine.identity}
    if not force:
        found = [
            Conflict(entry, path)
            for entry in others.values()
            for path in fieldsets.paths(fieldsets.intersection(entry.fields, taken))
        ]
        if found:
            raise Conflicts(found)
    return _without_fields(others, (taken, change.removed))


def _prune(merged: Json, shape: Shape, last: FieldSet, entries: Mapping[Identity, Entry]) -> Json:
    """Take away what the manager applied last time, does not apply now, and nobody owns."""
    named_last = with_named_fields(last, shape)
    pruned = cast("Json", remove(merged, named_last, shape) or {})
    everything = with_named_fields(field_set(merged, shape), shape)
    owned: FieldSet = {}
    for entry in entries.values():
        owned = fieldsets.union(owned, entry.fields)
    kept = fieldsets.union(
        with_named_fields(field_set(pruned, shape), shape), with_named_fields(owned, shape)
    )
    pruned = cast("Json", remove(merged, fieldsets.difference(everything, kept), shape) or {})
    remaining = with_named_fields(field_set(pruned, shape), shape)
    gone = fieldsets.intersection(fieldsets.difference(everything, remaining), named_last)
    return cast("Json", remove(merged, gone, shape) or {})


def _allowed_by_last_applied(live: Json, schema: Schema) -> FieldSet | None:
    """What `kubectl apply` owned before the object moved to server-side apply, by its annotation."""
    text = _annotations(live).get(LAST_APPLIED)
    if not isinstance(text, str) or not text:
        return None
    try:
        last = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
    if not isinstance(last, dict) or last.get("apiVersion") != live.get("apiVersion"):
        return None
    shape = shape_of(schema)
    change = compare(last, live, shape)
    allowed = field_set(last, shape)
    for changed in (change.modified, change.added, change.removed):
        allowed = fieldsets.difference(allowed, changed)
    return allowed


def _with_last_applied(obj: Json, config: Json) -> Json:
    metadata = dict(_metadata(config))
    annotations = {k: v for k, v in _annotations(config).items() if k != LAST_APPLIED}
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    return {
        **obj,
        "metadata": {**_metadata(obj), "annotations": {**_annotations(obj), LAST_APPLIED: text}},
    }


def empty_object(schema: Schema) -> Json:
    """What a new object of this kind holds before anything is set: the structs and lists Go always writes."""
    made = schema.compiled.get("empty")
    if made is None:
        made = schema.compiled["empty"] = _zero(schema, ())
    return cast("Json", made)


def _empty_part(schema: Schema) -> Json:
    made = schema.compiled.get("empty_part")
    if made is None:
        made = schema.compiled["empty_part"] = _owned_part(empty_object(schema))
    return cast("Json", made)


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


def with_entries(obj: Json, entries: Mapping[Identity, Entry]) -> Json:
    """The object with these entries in place of its own."""
    metadata = {key: value for key, value in _metadata(obj).items() if key != "managedFields"}
    if entries:
        metadata["managedFields"] = managed.encode(entries.values())
    return {**obj, "metadata": metadata}


def _without_entries(obj: Json) -> Json:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or "managedFields" not in metadata:
        return obj
    return {**obj, "metadata": {k: v for k, v in metadata.items() if k != "managedFields"}}


def _known_entries(old: Json | None, new: Json, subresource: str) -> dict[Identity, Entry]:
    live = _metadata(old).get("managedFields") if old is not None else None
    if subresource:
        return managed.decode_or_empty(live)
    given = _metadata(new).get("managedFields")
    if given is not None and managed.is_reset(given):
        return {}
    if given is None or given is live:
        return managed.decode_or_empty(live)
    return managed.decode_or_empty(given) or managed.decode_or_empty(live)


def _without_fields(entries: dict[Identity, Entry], taken: tuple[FieldSet, ...]) -> dict[Identity, Entry]:
    result: dict[Identity, Entry] = {}
    for key, entry in entries.items():
        fields = entry.fields
        for some in taken:
            fields = fieldsets.difference(fields, some)
        if fields:
            result[key] = entry.with_fields(fields)
    return result


def _strip(fields: FieldSet) -> FieldSet:
    """Without what nobody owns."""
    if "f:metadata" not in fields and "f:apiVersion" not in fields and "f:kind" not in fields:
        return fields
    result = {key: node for key, node in fields.items() if key not in ("f:apiVersion", "f:kind")}
    metadata = fieldsets.child(fields, "f:metadata")
    if metadata is not None:
        kept = {
            key: node
            for key, node in metadata.items()
            if key != fieldsets.SELF and key[2:] not in _UNOWNED_METADATA
        }
        if kept:
            result["f:metadata"] = kept
        else:
            del result["f:metadata"]
    return result


def _owned_part(obj: Json) -> Json:
    """The object without what nobody owns, which then need not be compared."""
    result = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind")}
    metadata = obj.get("metadata")
    if isinstance(metadata, dict):
        result["metadata"] = {k: v for k, v in metadata.items() if k not in _UNOWNED_METADATA}
    return result


def _named(obj: Json) -> str:
    """An object as Go's errors name it: namespace/name; group/version, Kind=kind."""
    metadata = _metadata(obj)
    group, _, version = str(obj.get("apiVersion", "")).rpartition("/")
    place = f"{group}/{version}, Kind={obj.get('kind', '')}"
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}; {place}"


def _metadata(obj: Json) -> Json:
    metadata = obj.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _annotations(obj: Json) -> Json:
    annotations = _metadata(obj).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _message(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        only_one = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {only_one.owner.shown}: {only_one.field}"
    lines: list[str] = []
    by_owner: dict[Identity, list[Conflict]] = {}
    for conflict in conflicts:
        by_owner.setdefault(conflict.owner.identity, []).append(conflict)
    for identity in sorted(by_owner):
        found = by_owner[identity]
        lines.append(f"conflicts with {found[0].owner.shown}:")
        lines += [f"- {conflict.field}" for conflict in found]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
