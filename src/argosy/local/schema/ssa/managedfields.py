"""Decodes and encodes the entries of `metadata.managedFields`."""

from collections.abc import Iterable
from typing import TypeAlias, cast

from msgspec import Struct

from argosy.local.schema.model import Json
from argosy.local.schema.ssa import fieldpath
from argosy.local.schema.ssa.fieldpath import FieldSet

APPLY = "Apply"
UPDATE = "Update"
MAX_UPDATE_ENTRIES = 10

# The key of an entry: manager, operation, subresource, and for updates the version.
Identity: TypeAlias = tuple[str, str, str, str]


class Entry(Struct, frozen=True):
    manager: str
    operation: str
    api_version: str
    fields: FieldSet
    time: str | None = None
    subresource: str = ""

    @property
    def identity(self) -> Identity:
        version = self.api_version if self.operation == UPDATE else ""
        return (self.manager, self.operation, self.subresource, version)

    @property
    def description(self) -> str:
        """The manager as messages of conflicts show it."""
        text = f'"{self.manager}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return f"{text} using {self.api_version}" if self.operation == UPDATE else text

    def with_fields(self, fields: FieldSet) -> "Entry":
        if fields is self.fields:
            return self
        return Entry(self.manager, self.operation, self.api_version, fields, self.time, self.subresource)

    def json(self) -> Json:
        entry: Json = {"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version}
        if self.time:
            entry["time"] = self.time
        entry["fieldsType"] = "FieldsV1"
        entry["fieldsV1"] = self.fields
        if self.subresource:
            entry["subresource"] = self.subresource
        return entry


class ManagedFieldsError(Exception):
    """Invalid entries."""


def decode(raw: object) -> dict[Identity, Entry]:
    """Decode the entries of an object."""
    entries: dict[Identity, Entry] = {}
    for index, item in enumerate(raw if isinstance(raw, list) else []):
        if not isinstance(item, dict) or item.get("operation") not in (APPLY, UPDATE):
            raise ManagedFieldsError("operation must be `Apply` or `Update`")
        if not item.get("apiVersion"):
            raise ManagedFieldsError("apiVersion must not be empty")
        if item.get("fieldsType") != "FieldsV1":
            raise ManagedFieldsError(f"missing fieldsType in managed fields entry {index}")
        fields = item.get("fieldsV1")
        entry = Entry(
            str(item.get("manager", "")),
            str(item["operation"]),
            str(item["apiVersion"]),
            cast("FieldSet", fields) if isinstance(fields, dict) else {},
            cast("str | None", item.get("time")),
            str(item.get("subresource", "")),
        )
        entries[entry.identity] = entry
    return entries


def decode_or_empty(raw: object) -> dict[Identity, Entry]:
    try:
        return decode(raw)
    except ManagedFieldsError:
        return {}


def encode(entries: Iterable[Entry]) -> list[Json]:
    """Encode the entries: those of apply first, then by time."""
    if len(listed := list(entries)) > 1:
        listed.sort(key=lambda e: (e.operation, e.time or "", e.manager, e.api_version, e.subresource))
    return [entry.json() for entry in listed]


def capped(entries: dict[Identity, Entry]) -> dict[Identity, Entry]:
    """Return the entries with at most ten of updates; the oldest of each version are joined."""
    updates = [entry for entry in entries.values() if entry.operation == UPDATE]
    surplus = len(updates) - MAX_UPDATE_ENTRIES
    if surplus <= 0:
        return entries
    result = dict(entries)
    first: dict[str, Entry] = {}
    for entry in sorted(updates, key=lambda e: (e.time or "", e.manager, e.subresource)):
        if surplus <= 0:
            break
        oldest = first.get(entry.api_version)
        if oldest is None:
            first[entry.api_version] = entry
            continue
        bucket = Entry("ancient-changes", UPDATE, entry.api_version, oldest.fields, entry.time)
        if bucket.identity not in result:
            result.pop(oldest.identity, None)
            result[bucket.identity] = bucket
        joined = fieldpath.union(entry.fields, result[bucket.identity].fields)
        del result[entry.identity]
        result[bucket.identity] = Entry(bucket.manager, UPDATE, entry.api_version, joined, entry.time)
        surplus -= 1
    return result


def is_reset(raw: object) -> bool:
    """Return True if a client removes all entries, by an empty list or an empty entry."""
    return raw in ([], [{}])
