"""What a job remembers between passes: `status.argosy`, the same shape in every dialect.

Small on purpose: about a pod nothing is kept unless its place deviates from "created once, never replaced",
and such deviations are written as ranges (see `tally`), so that 2,000 pods fit in 32 kB. What a later
version wrote and this one does not know is kept as it came; where it cannot even be read it must not be
written over. If the Record is lost, `memory` reads attempt and replacements back from the labels of the pods.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.plan.record import UnsupportedVersionError
from argosy.workload import index_ranges
from argosy.workload.model import Json, Phase

VERSION = 1
MAX_HISTORY = 20
MAX_RESTART_HISTORY = 20


class WaitReason(Struct, frozen=True, omit_defaults=True):
    """For what something waits, or why it was done."""

    reason: str
    message: str
    since: datetime


class HistoryEntry(Struct, frozen=True, omit_defaults=True):
    """One thing that happened, for people."""

    at: datetime
    reason: str
    message: str


class RestartEntry(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One restart: what was lost to which cause, and how much was started anew for it.

    The words for people are made from this (`words.restarted`). Cause and rung are plain text, so that a word
    of a later version is kept like any other.
    """

    at: datetime
    role: str
    index: int
    cause: str
    """One of `causes.Why`."""
    scope: str
    """Container, Pod, Role or Job."""
    attempt: int = 1
    """The attempt that the loss happened in."""
    exit_code: int | None = None
    node: str = ""
    detail: str = ""
    """What the cluster said of it."""
    also_lost: int = 0
    """Pods that were lost with it, and came back by the same restart."""
    pod_fingerprint: int = 0
    """Of a pod that others took away: `causes.mark`, by which it is known when it is seen again."""


class RoleRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    phase_since: datetime | None = None
    size: int = 0
    """Replicas that the role has been brought to; differs from the wanted number only until the next pass."""
    created_below: int = 0
    """Every index below this one has been seen at least once. Kept from when the role runs on: until then no
    pod can be missed, and a Record that changes with every pod would be written with every pod."""
    restarts: int = 0
    """Pods replaced after a failure, and containers restarted in place. Never decreases."""
    disruptions: int = 0
    """Pods replaced that the cluster took away; they use up no restart. Never decreases."""
    retry_at: datetime | None = None
    """No pod of the role that was replaced more than once is created before."""
    below_min_since: datetime | None = None
    replacements: Mapping[int, int] = field(default_factory=dict)
    """Replacement number by index, in this attempt, where it is not 0."""
    container_restarts: Mapping[int, int] = field(default_factory=dict)
    """Container restarts seen, by index, of the pod now in that place."""
    container_restarts_counted: int = 0
    """How many of those are in `restarts` already."""
    succeeded_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod succeeded in this attempt: it is not run again, even when its pod is
    gone."""
    lost_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index that lost its pod, is known to be empty and is not filled again."""
    failed_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod has failed and is kept: it is told of once."""
    template_hash: str = ""
    """Of the definition that its pods are made from; see `Role.shape`."""
    preempted_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod a scheduler takes, or took, away for others."""
    failure_streaks: Mapping[int, int] = field(default_factory=dict)
    """Failures in a row, by index, where a ladder counts them: no more of them than restarts were used."""
    role_restarts_in_a_row: int = 0
    """Times in a row that the ladder started the role anew, in this attempt."""
    extra_fields: Mapping[str, object] = field(default_factory=dict)
    """Fields written by a later version, kept while the job is not started anew."""

    def for_next_attempt(self) -> "RoleRecord":
        """The role with nothing but its totals: all its pods start anew."""
        return RoleRecord(
            restarts=self.restarts, disruptions=self.disruptions, phase_since=self.phase_since, size=self.size
        )


class Record(Struct, frozen=True, omit_defaults=True, rename="camel"):
    version: int = VERSION
    phase: Phase = Phase.PENDING
    phase_since: datetime | None = None
    """When the phase was entered."""
    reason: str = ""
    message: str = ""
    waiting: WaitReason | None = None
    generation: int = 0
    """The generation of the object that this was decided for; never goes back."""
    attempt: int = 1
    restarts: int = 0
    """Restarts used of `limits.restarts`."""
    disruptions: int = 0
    """Pods lost to the cluster, which use up no restart."""
    started_at: datetime | None = None
    first_running_at: datetime | None = None
    """When the job was Running for the first time."""
    finished_at: datetime | None = None
    attempt_started_at: datetime | None = None
    """When this attempt began: its first pods were asked for."""
    gang_scheduler: str = ""
    """Who places the gang; chosen once, for the life of the job."""
    gang_scheduled_at: datetime | None = None
    """When the gang was seen to be placed, for the first time since it was last suspended."""
    consecutive_failures: int = 0
    """Whole-job failures in a row, for the back-off."""
    retry_at: datetime | None = None
    """No pod is created before."""
    propagated_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the job was given because it hands them on; see `HandedOn`."""
    invalid_label_keys: str = ""
    """Annotations handed on whose values can be no labels, comma between."""
    roles: Mapping[str, RoleRecord] = field(default_factory=dict)
    history: tuple[HistoryEntry, ...] = ()
    restart_history: tuple[RestartEntry, ...] = ()
    """The last restarts, the newest at the end."""
    extra_fields: Mapping[str, object] = field(default_factory=dict)
    """Fields written by a later version, kept."""

    def role(self, name: str) -> RoleRecord:
        return self.roles.get(name, _FRESH)

    def replacement(self, role: str, index: int) -> int:
        return self.role(role).replacements.get(index, 0)

    def with_role(self, name: str, role: RoleRecord) -> "Record":
        return replace(self, roles={**self.roles, name: role})

    def with_history(self, at: datetime, reason: str, message: str) -> "Record":
        """The record with one more line of history; the oldest line goes when there are too many."""
        return replace(self, history=(*self.history, HistoryEntry(at, reason, message[:300]))[-MAX_HISTORY:])

    def with_restarts(self, *restarts: RestartEntry) -> "Record":
        """The record that remembers these restarts too; the oldest go when there are too many."""
        return (
            replace(self, restart_history=(*self.restart_history, *restarts)[-MAX_RESTART_HISTORY:])
            if restarts
            else self
        )


_FRESH = RoleRecord()


def encode(record: Record) -> dict[str, object]:
    """The wire form, for `status.argosy`."""
    built: dict[str, object] = msgspec.to_builtins(record)
    extra = built.pop("extraFields", {})
    if record.roles:
        built["roles"] = {name: _encode_role(role) for name, role in sorted(record.roles.items())}
    if record.history:
        built["history"] = msgspec.to_builtins(list(record.history))  # a list, as it comes back
    if record.restart_history:
        built["restartHistory"] = msgspec.to_builtins(list(record.restart_history))
    built["version"] = record.version
    return {**extra, **built} if isinstance(extra, dict) else built


def decode(raw: object) -> Record | None:
    """The Record in a stored status; None if there is none or it cannot be read (it is then rebuilt).

    Raises `UnsupportedVersionError` if a later version of the operator wrote it and this one cannot read it.
    """
    if not isinstance(raw, dict) or "version" not in raw:
        return None
    known = {name: value for name, value in raw.items() if name in _FIELDS}
    try:
        roles = {name: _decode_role(role) for name, role in raw.get("roles", {}).items()}
        record = msgspec.convert({**known, "roles": {}}, Record)
    except (msgspec.ValidationError, ValueError, AttributeError, TypeError) as error:
        version = raw["version"]
        if isinstance(version, int) and version > VERSION:
            raise UnsupportedVersionError(f"version {version}: {error}") from None
        return None
    unknown = {name: value for name, value in raw.items() if name not in _FIELDS}
    return replace(record, roles=roles, extra_fields=unknown)


_FIELDS = frozenset(one.encode_name for one in msgspec.structs.fields(Record)) - {"extraFields"}

_TALLIES = {
    "replacements": "replacements",
    "container_restarts": "containerRestarts",
    "succeeded_indexes": "succeededIndexes",
    "lost_indexes": "lostIndexes",
    "failed_indexes": "failedIndexes",
    "preempted_indexes": "preemptedIndexes",
    "failure_streaks": "failureStreaks",
}
_ROLE_FIELDS = frozenset(one.encode_name for one in msgspec.structs.fields(RoleRecord)) - {
    "extraFields",
    *_TALLIES.values(),
}


def _encode_role(role: RoleRecord) -> object:
    built: dict[str, object] = msgspec.to_builtins(
        replace(role, extra_fields={}, **{key: {} for key in _TALLIES})
    )
    for name, wire in _TALLIES.items():
        numbers: Mapping[int, int] = getattr(role, name)
        if numbers:
            built[wire] = index_ranges.encode(numbers)
    return {**role.extra_fields, **built}


def _decode_role(raw: Json) -> RoleRecord:
    plain = {name: value for name, value in raw.items() if name in _ROLE_FIELDS}
    unknown = {name: value for name, value in raw.items() if name not in _ROLE_FIELDS | {*_TALLIES.values()}}
    tallies = {name: index_ranges.decode(str(raw.get(wire, ""))) for name, wire in _TALLIES.items()}
    return replace(msgspec.convert(plain, RoleRecord), extra_fields=unknown, **tallies)
