"""Who owns the replicas of an object while they are written as a scale, an object of its own.

Entries that own the replicas become entries of the scale before a write, and go back afterwards. On the way
an entry of updates gets another version and is not known again: it comes back apart from what else its
manager owns, and without a time. Kubernetes does so, and clients see it.
"""

from collections.abc import Sequence

from argosy.local.schema.model import Json
from argosy.local.schema.ssa import fieldpath, managedfields
from argosy.local.schema.ssa.managedfields import Entry, Identity
from argosy.local.schema.ssa.update import metadata_of

SCALE_VERSION = "autoscaling/v1"
_IN_SCALE = ("f:spec", "f:replicas")


def owners_of_scale(obj: Json, path: Sequence[str]) -> list[Json]:
    """The entries of a scale, from those of an object that has its replicas at `path`."""
    there = _steps(path)
    return managedfields.encode(
        Entry(
            entry.manager,
            entry.operation,
            SCALE_VERSION,
            fieldpath.insert({}, _IN_SCALE),
            entry.time,
            entry.subresource,
        )
        for entry in _entries(obj).values()
        if fieldpath.has(entry.fields, there)
    )


def owners_after_scaling(obj: Json, scale: Json, path: Sequence[str], api_version: str) -> list[Json]:
    """The entries of the object after its scale was written."""
    there, scaled = _steps(path), _entries(scale)
    entries: dict[Identity, Entry] = {}
    before = _entries(obj)
    for identity, entry in before.items():
        fields = entry.fields
        if fieldpath.has(fields, there) and scaled.pop(identity, None) is None:
            fields = fieldpath.difference(fields, fieldpath.insert({}, there))
        if fields:
            entries[identity] = entry.with_fields(fields)
    for identity, entry in scaled.items():
        if fieldpath.has(entry.fields, _IN_SCALE):
            known = before.get(identity)
            entries[identity] = Entry(
                entry.manager,
                entry.operation,
                api_version,
                fieldpath.insert({}, there),
                known.time if known is not None else None,
                entry.subresource,
            )
    return managedfields.encode(entries.values())


def _entries(obj: Json) -> dict[Identity, Entry]:
    return managedfields.decode_or_empty(metadata_of(obj).get("managedFields"))


def _steps(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"f:{name}" for name in path)
