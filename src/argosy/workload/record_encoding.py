"""Reads and writes the operator's state of a job in `status.argosy`.

It is small: a replica is mentioned only if it deviates from "created once, never replaced", and deviations
are written as index ranges, so that a job of 2,000 pods fits in 32 kB. Unknown fields of a later version are
kept; a Record that cannot be read because it is of a later version must not be overwritten.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.plan.record import UnsupportedVersionError
from argosy.workload import index_ranges
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Json
from argosy.workload.record import VERSION, Record, RoleRecord


def encode(record: Record) -> dict[str, object]:
    """Return the JSON object for `status.argosy`."""
    built: dict[str, object] = msgspec.to_builtins(record)
    extra = built.pop("extraFields", {})
    if record.roles:
        built["roles"] = {name: _encode_role(role) for name, role in sorted(record.roles.items())}
    lists: dict[str, Sequence[Struct]] = {
        "history": record.history,
        "operations": record.operations,
        "notices": record.notices,
        "recoveries": record.recoveries,
        "restartHistory": record.restart_history,
    }
    # Lists, as the API server returns them.
    built |= {name: msgspec.to_builtins(list(items)) for name, items in lists.items() if items}
    built["version"] = record.version
    return {**extra, **built} if isinstance(extra, dict) else built


def decode(raw: object) -> Record | None:
    """Return the Record of a stored status; None if there is none or it is damaged, and is then rebuilt.

    Raises `UnsupportedVersionError` if a later version of the operator wrote it and this one cannot read it.
    """
    if not isinstance(raw, dict) or "version" not in raw:
        return None
    fields = {name: value for name, value in raw.items() if name in _FIELDS}
    try:
        roles = {name: _decode_role(role) for name, role in raw.get("roles", {}).items()}
        record = msgspec.convert({**fields, "roles": {}}, Record)
    except (msgspec.ValidationError, ValueError, AttributeError, TypeError) as error:
        version = raw["version"]
        if isinstance(version, int) and version > VERSION:
            raise UnsupportedVersionError(f"version {version}: {error}") from None
        return None
    unknown = {name: value for name, value in raw.items() if name not in _FIELDS}
    return replace(record, roles=roles, extra_fields=unknown)


_FIELDS = frozenset(part.encode_name for part in msgspec.structs.fields(Record)) - {"extraFields"}

_BY_INDEX = {
    "replacements": "replacements",
    "container_restarts": "containerRestarts",
    "succeeded_indexes": "succeededIndexes",
    "lost_indexes": "lostIndexes",
    "failed_indexes": "failedIndexes",
    "preempted_indexes": "preemptedIndexes",
    "failure_streaks": "failureStreaks",
}
_INDEX_SETS = ("members", "created", "retired", "joining", "draining", "attachable", "listed")
_SPECIAL_FIELDS = frozenset({*_BY_INDEX.values(), *_INDEX_SETS})
_ROLE_FIELDS = (
    frozenset(part.encode_name for part in msgspec.structs.fields(RoleRecord))
    - {"extraFields"}
    - _SPECIAL_FIELDS
)
_KNOWN_FIELDS = _ROLE_FIELDS | _SPECIAL_FIELDS


def _encode_role(role: RoleRecord) -> object:
    built: dict[str, object] = msgspec.to_builtins(
        replace(role, extra_fields={}, **{key: {} for key in _BY_INDEX}, **dict.fromkeys(_INDEX_SETS, EMPTY))
    )
    for name in _INDEX_SETS:
        indexes: IndexSet = getattr(role, name)
        if indexes:
            built[name] = indexes.encode()
    for name, wire in _BY_INDEX.items():
        numbers: Mapping[int, int] = getattr(role, name)
        if numbers:
            built[wire] = index_ranges.encode(numbers)
    return {**role.extra_fields, **built}


def _decode_role(raw: Json) -> RoleRecord:
    plain = {name: value for name, value in raw.items() if name in _ROLE_FIELDS}
    unknown = {name: value for name, value in raw.items() if name not in _KNOWN_FIELDS}
    by_index = {name: index_ranges.decode(str(raw[wire])) for name, wire in _BY_INDEX.items() if wire in raw}
    index_sets = {name: IndexSet.decode(str(raw[name])) for name in _INDEX_SETS if name in raw}
    return replace(msgspec.convert(plain, RoleRecord), extra_fields=unknown, **by_index, **index_sets)
