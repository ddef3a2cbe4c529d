"""Server-side apply: merges the configuration of a manager into the live object.

Fields that the manager applied before and does not apply now are removed, unless another manager owns them. A
change of a field that another manager owns is a conflict, unless forced. managedFields are the same as those
of kube-apiserver.
"""

from collections.abc import Mapping
from typing import cast

import msgspec
from msgspec import Struct

from argosy.local.schema.model import Json, Schema
from argosy.local.schema.ssa import fieldpath, managedfields
from argosy.local.schema.ssa.fieldpath import FieldSet
from argosy.local.schema.ssa.managedfields import APPLY, Entry, Identity
from argosy.local.schema.ssa.merge import compare, field_set, merge, remove, with_named_fields
from argosy.local.schema.ssa.typecheck import type_errors
from argosy.local.schema.ssa.typed_shape import MergeError, Shape, format_path_element, shape_of
from argosy.local.schema.ssa.update import (
    Filter,
    attribute,
    changes,
    empty_object,
    metadata_of,
    owned_part,
    strip,
    with_entries,
    without_entries,
    without_fields,
)

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Conflict(Struct, frozen=True):
    """A path that another manager owns."""

    owner: Entry
    path: tuple[str, ...]

    @property
    def field(self) -> str:
        return "".join(format_path_element(step) for step in self.path)


class Conflicts(Exception):  # noqa: N818 - the term of Kubernetes
    """An apply that changes fields of other managers; the text is the message of the 409."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        self.conflicts = conflicts
        super().__init__(_message(conflicts))

    def causes(self) -> list[Json]:
        """Return the entries of `details.causes` of the Status."""
        return [
            {
                "reason": "FieldManagerConflict",
                "message": f"conflict with {c.owner.description}",
                "field": c.field,
            }
            for c in self.conflicts
        ]


class ApplyError(Exception):
    """A configuration that cannot be merged; the text is for the client."""


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
) -> Json:
    """Return the live object (None if it does not exist) with the configuration applied.

    Raises `Conflicts` if other managers own fields that would change, unless `force` is set. The caller
    prunes, defaults and validates the result.
    """
    if errors := type_errors(config, schema):
        raise ApplyError(f"failed to create typed patch object: {'; '.join(errors)}")
    before: Json = live if live is not None else {}
    entries = managedfields.decode_or_empty(metadata_of(before).get("managedFields"))
    if live is not None and not entries:
        first, nothing = "before-first-apply", empty_object(schema)
        entries = attribute(nothing, live, {}, first, api_version, time, schema, subresource, resets)
    try:
        return _apply(before, config, entries, manager, api_version, time, schema, force, subresource, resets)
    except Conflicts as conflicts:
        allowed = _allowed_by_last_applied(before, schema) if manager == "kubectl" else None
        if allowed is None:
            raise
        remaining = [c for c in conflicts.conflicts if not fieldpath.has(allowed, c.path)]
        if remaining:
            raise Conflicts(remaining) from None
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
        base = without_entries(live)
        merged = cast("Json", merge(base, config, shape))
    except MergeError as error:
        raise ApplyError(str(error)) from None
    if resets is not None:
        claimed = resets(claimed)
    entry = Entry(manager, APPLY, api_version, claimed, None, subresource)
    last = entries.get(entry.identity)
    owned = {**entries, entry.identity: entry}
    if last is not None:
        merged = _prune(merged, shape, last.fields, owned)
    owned = _settle(base, merged, owned, entry, shape, force, resets)
    changed = merged != base
    stripped = strip(claimed)
    owned.pop(entry.identity, None)
    if stripped:
        kept = last.time if last is not None else None
        owned[entry.identity] = Entry(
            manager, APPLY, api_version, stripped, time if changed else kept, subresource
        )
    result = with_entries(merged, owned.values())
    if manager == "kubectl" and LAST_APPLIED in _annotations(result):
        return _with_last_applied(result, config)
    return result


def _settle(
    live: Json,
    merged: Json,
    entries: dict[Identity, Entry],
    applied: Entry,
    shape: Shape,
    force: bool,
    resets: Filter | None,
) -> dict[Identity, Entry]:
    """Remove changed fields from the entries of other managers; raises `Conflicts`."""
    change = changes(owned_part(live), owned_part(merged), shape, resets)
    taken = fieldpath.union(change.modified, change.added)
    others = {key: entry for key, entry in entries.items() if key != applied.identity}
    if not force:
        conflicts = [
            Conflict(entry, path)
            for entry in others.values()
            for path in fieldpath.paths(fieldpath.intersection(entry.fields, taken))
        ]
        if conflicts:
            raise Conflicts(conflicts)
    return without_fields(others, (taken, change.removed))


def _prune(merged: Json, shape: Shape, last: FieldSet, entries: Mapping[Identity, Entry]) -> Json:
    """Remove fields that the manager applied last time and that no manager owns now."""
    named_last = with_named_fields(last, shape)
    pruned = cast("Json", remove(merged, named_last, shape) or {})
    everything = with_named_fields(field_set(merged, shape), shape)
    owned: FieldSet = {}
    for entry in entries.values():
        owned = fieldpath.union(owned, entry.fields)
    kept = fieldpath.union(
        with_named_fields(field_set(pruned, shape), shape), with_named_fields(owned, shape)
    )
    pruned = cast("Json", remove(merged, fieldpath.difference(everything, kept), shape) or {})
    remaining = with_named_fields(field_set(pruned, shape), shape)
    gone = fieldpath.intersection(fieldpath.difference(everything, remaining), named_last)
    return cast("Json", remove(merged, gone, shape) or {})


def _allowed_by_last_applied(live: Json, schema: Schema) -> FieldSet | None:
    """Return the fields that client-side `kubectl apply` owned, by its annotation."""
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
        allowed = fieldpath.difference(allowed, changed)
    return allowed


def _with_last_applied(obj: Json, config: Json) -> Json:
    metadata = dict(metadata_of(config))
    annotations = {k: v for k, v in _annotations(config).items() if k != LAST_APPLIED}
    if "annotations" in metadata:
        metadata["annotations"] = annotations
    text = msgspec.json.encode({**config, "metadata": metadata}, order="sorted").decode() + "\n"
    return {
        **obj,
        "metadata": {**metadata_of(obj), "annotations": {**_annotations(obj), LAST_APPLIED: text}},
    }


def _annotations(obj: Json) -> Json:
    annotations = metadata_of(obj).get("annotations")
    return annotations if isinstance(annotations, dict) else {}


def _message(conflicts: list[Conflict]) -> str:
    if len(conflicts) == 1:
        conflict = conflicts[0]
        return f"Apply failed with 1 conflict: conflict with {conflict.owner.description}: {conflict.field}"
    lines: list[str] = []
    by_owner: dict[Identity, list[Conflict]] = {}
    for conflict in conflicts:
        by_owner.setdefault(conflict.owner.identity, []).append(conflict)
    for identity in sorted(by_owner):
        owned = by_owner[identity]
        lines.append(f"conflicts with {owned[0].owner.description}:")
        lines += [f"- {conflict.field}" for conflict in owned]
    return f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
