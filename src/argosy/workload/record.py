"""Defines the operator's state of a job, the same for all job APIs; `record_encoding` stores it.

If the Record is lost, `record_sync` restores attempt and replacement numbers from the labels of the pods.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.workload.checkpoint_record import (
    MAX_RECOVERIES,
    PlannedScaleIn,
    Recovery,
    SavedCheckpoint,
    SaveOrder,
)
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Phase
from argosy.workload.notice import OpenNotice
from argosy.workload.operation import Operation
from argosy.workload.usage_record import Usage

VERSION = 1
MAX_HISTORY = 20
MAX_RESTART_HISTORY = 20


class WaitReason(Struct, frozen=True, omit_defaults=True):
    """What a job waits for, and since when."""

    reason: str
    message: str
    since: datetime


class HistoryEntry(Struct, frozen=True, omit_defaults=True):
    """One line of a job's history; each becomes an event."""

    at: datetime
    reason: str
    message: str


class RestartEntry(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """One restart: what was lost, why, and what was restarted.

    `messages.describe_restart` makes the sentence for users. Cause and scope are plain strings, so that those
    of a later version are kept.
    """

    at: datetime
    role: str
    index: int
    cause: str
    """One of `RestartCause`."""
    scope: str
    """Container, Pod, Role or Job."""
    attempt: int = 1
    """The attempt in which the pod was lost."""
    exit_code: int | None = None
    node: str = ""
    detail: str = ""
    """What Kubernetes reported about it."""
    also_lost: int = 0
    """Other pods that were lost at the same time and are replaced by the same restart."""
    pod_fingerprint: int = 0
    """Identifies a disrupted pod, so that it is recorded once (`Record.unrecorded`)."""


class RoleRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    phase: Phase = Phase.PENDING
    reason: str = ""
    message: str = ""
    phase_since: datetime | None = None
    members: IndexSet = EMPTY
    """Indexes of the replicas that the role shall have."""
    declared: int = 0
    """The number of replicas in the spec when the members were last changed to match it."""
    created: IndexSet = EMPTY
    """Members that have had a pod. Only maintained once the role is Running: before that no pod can be
    missing, and the Record would have to be written for every new pod."""
    retired: IndexSet = EMPTY
    """Indexes that lost their pod and get no other one in this attempt, for roles whose lost pods are
    replaced under a new index. Members that are not replaced are among them."""
    joining: IndexSet = EMPTY
    """Indexes that are being added, by a scale operation or for an elastic role that is smaller than
    declared; they have pods and are not members yet."""
    draining: IndexSet = EMPTY
    """Members that a scale operation is about to remove; they are not in the host list any more."""
    scale_failures: int = 0
    """How often in a row the role could not be scaled to the declared number."""
    scale_retry_at: datetime | None = None
    """When that is tried again."""
    attachable: IndexSet = EMPTY
    """Wanted indexes that are not listed yet, in whose pods a command was seen to run."""
    listed: IndexSet = EMPTY
    """Members in the host list, for a role that has one."""
    listed_since: datetime | None = None
    """When the host list was changed last."""
    listed_version: int = 0
    """Increases with each change of the host list or its files, also if the Record was lost in between: the
    time of the change in microseconds."""
    listed_digest: str = ""
    """Digest of the files in the launcher that have the host list; empty if there are none."""
    listed_by_exec: str = ""
    """Uid of the launcher and etag of the files (`UID/ETAG`) that a command has written there."""
    replacements_in_a_row: int = 0
    """Consecutive replacements after failures, for the budget of the role."""
    budget_exhausted: bool = False
    """A lost pod was not replaced because the budget of the role is used up."""
    restarts: int = 0
    """Pods replaced after a failure, and containers restarted in place. Never decreases."""
    disruptions: int = 0
    """Pods replaced after a disruption, which uses no restart. Never decreases."""
    retry_at: datetime | None = None
    """Backoff: no pod that was replaced more than once is created before this time."""
    below_min_since: datetime | None = None
    grown_at: datetime | None = None
    """When replicas were added last because there was capacity for them."""
    flaps: int = 0
    """How often in a row the role lost replicas soon after it had grown."""
    grow_at: datetime | None = None
    """No replicas are added before this time, because of that."""
    replacements: Mapping[int, int] = field(default_factory=dict)
    """Replacement number by index, in this attempt, where it is not 0."""
    container_restarts: Mapping[int, int] = field(default_factory=dict)
    """Observed container restarts of the current pod, by index."""
    container_restarts_counted: int = 0
    """How many of them are included in `restarts`."""
    succeeded_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod succeeded in this attempt. It is not run again, even if its pod is
    deleted."""
    lost_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod is confirmed to be deleted and is not replaced."""
    failed_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod has failed and is kept; it is reported once."""
    template_hash: str = ""
    """Hash of the template from which its pods are created; see `Role.template_hash`."""
    preempted_indexes: Mapping[int, int] = field(default_factory=dict)
    """1 for every index whose pod is being, or was, preempted."""
    failure_streaks: Mapping[int, int] = field(default_factory=dict)
    """Consecutive failures by index, if restarts escalate."""
    role_restarts_in_a_row: int = 0
    """Consecutive restarts of the whole role by escalation, in this attempt."""
    extra_fields: Mapping[str, object] = field(default_factory=dict)
    """Unknown fields of a later version, kept until the next attempt."""

    @property
    def size(self) -> int:
        """Number of replicas that the role shall have."""
        return len(self.members)

    @property
    def wanted(self) -> IndexSet:
        """Indexes that shall have a pod."""
        return self.members | self.joining

    def with_members(self, members: IndexSet) -> "RoleRecord":
        """Return the role with these members; what is recorded about other indexes is dropped."""
        in_place = _only(self.container_restarts, members)
        return replace(
            self,
            members=members,
            created=self.created & members,
            draining=self.draining & members,
            succeeded_indexes=_only(self.succeeded_indexes, members),
            lost_indexes=_only(self.lost_indexes, members),
            failure_streaks=_only(self.failure_streaks, members),
            container_restarts=in_place,
            container_restarts_counted=sum(in_place.values()),
        )

    @property
    def listed_etag(self) -> str:
        """What identifies the files in the launcher that have the host list: `VERSION-DIGEST`."""
        return f"{self.listed_version}-{self.listed_digest}" if self.listed_digest else ""

    def with_listed(self, listed: IndexSet, now: datetime) -> "RoleRecord":
        """Return the role with this host list."""
        version = max(int(now.timestamp() * 1_000_000), self.listed_version + 1)
        return replace(self, listed=listed, listed_since=now, listed_version=version)

    def for_next_attempt(self) -> "RoleRecord":
        """Return the role with its totals only, since all its pods are replaced."""
        return RoleRecord(
            restarts=self.restarts,
            disruptions=self.disruptions,
            phase_since=self.phase_since,
            members=IndexSet.first(self.declared),
            declared=self.declared,
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
    """Generation of the object for which this was decided; never decreases."""
    attempt: int = 1
    restarts: int = 0
    """Restarts used of `limits.restarts`."""
    disruptions: int = 0
    """Pods replaced after a disruption, which uses no restart."""
    started_at: datetime | None = None
    first_running_at: datetime | None = None
    """When the job was Running for the first time."""
    finished_at: datetime | None = None
    attempt_started_at: datetime | None = None
    """When the first pods of this attempt were created."""
    gang_scheduler: str = ""
    """Name of the gang scheduler; chosen once for the life of the job."""
    gang_scheduled_at: datetime | None = None
    """When the gang was first observed as scheduled; reset by a suspension."""
    consecutive_failures: int = 0
    """Consecutive failed attempts, for the backoff."""
    retry_at: datetime | None = None
    """Backoff: no pod is created before this time."""
    propagated_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the job has because it propagates them; see `PropagatedMetadata`."""
    invalid_label_keys: str = ""
    """Propagated annotations whose values are not valid label values, separated by commas."""
    roles: Mapping[str, RoleRecord] = field(default_factory=dict)
    history: tuple[HistoryEntry, ...] = ()
    restart_history: tuple[RestartEntry, ...] = ()
    """The latest restarts, newest last."""
    operations: tuple[Operation, ...] = ()
    """Finished scale operations that their requests do not show yet, and the one under way; the one that
    changed last is the last."""
    notices: tuple[OpenNotice, ...] = ()
    """Announced losses that the job has answered; oldest first."""
    order: SaveOrder | None = None
    """The last order to save a checkpoint; in force unless `answered_epoch` has reached it."""
    answered_epoch: int = 0
    """The last order that was answered by a checkpoint, or is not needed any more."""
    scale_in: PlannedScaleIn | None = None
    """The replicas that a new size removes, while a checkpoint is saved before."""
    saved: SavedCheckpoint | None = None
    """The last good checkpoint."""
    recoveries: tuple[Recovery, ...] = ()
    """The last losses of pods and what became of them, of a job with checkpoints; newest last."""
    steps_lost: int | None = None
    """Of all recoveries, also those that are not kept; None if not known of any."""
    usage: Usage = Usage()
    """How the time of the replicas was spent."""
    extra_fields: Mapping[str, object] = field(default_factory=dict)
    """Unknown fields of a later version, kept."""

    def role(self, name: str) -> RoleRecord:
        return self.roles.get(name, _NEW_ROLE)

    def replacement(self, role: str, index: int) -> int:
        return self.role(role).replacements.get(index, 0)

    def with_role(self, name: str, role: RoleRecord) -> "Record":
        return replace(self, roles={**self.roles, name: role})

    @property
    def operation(self) -> Operation | None:
        """The scale operation under way."""
        return next((operation for operation in self.operations if not operation.finished), None)

    def leaving(self, role: str) -> IndexSet:
        """Return the replicas of a role that the scale operation under way removes."""
        operation = self.operation
        removes = operation is not None and operation.kind == "In" and operation.role == role
        return operation.index_set if operation and removes else EMPTY

    def asked_to_leave(self, role: str) -> IndexSet:
        """Return the replicas of a role that leave it once a checkpoint is saved."""
        planned = self.scale_in.replicas.get(role, "") if self.scale_in else ""
        return IndexSet.decode(planned) & self.role(role).members

    def added_by(self, role: str, index: int) -> str:
        """Return the name of the object that asks for this replica to be added; empty if none does."""
        operation = self.operation
        if operation is None or operation.kind != "Out" or operation.role != role:
            return ""
        return operation.name if index in self.role(role).joining else ""

    def with_operation(self, operation: Operation) -> "Record":
        """Return the record with this state of an operation, which becomes the last one."""
        others = [other for other in self.operations if other.id != operation.id]
        return replace(self, operations=(*others, operation))

    def with_notice(self, notice: OpenNotice) -> "Record":
        """Return the record with this state of a notice, in the place of an older one of the same id."""
        others = tuple(other for other in self.notices if other.id != notice.id)
        return replace(self, notices=(*others, notice))

    @property
    def order_in_force(self) -> SaveOrder | None:
        """The order that has not been answered yet."""
        return self.order if self.order and self.order.epoch > self.answered_epoch else None

    def with_recovery(self, recovery: Recovery) -> "Record":
        """Return the record with this state of a recovery, in the place of one of the same id that has not
        ended, without the oldest if there are too many."""
        others = [other for other in self.recoveries if other.id != recovery.id or other.outcome]
        return replace(self, recoveries=(*others, recovery)[-MAX_RECOVERIES:])

    def with_history(self, at: datetime, reason: str, message: str) -> "Record":
        """Return the record with one more line of history, without the oldest if there are too many."""
        return replace(self, history=(*self.history, HistoryEntry(at, reason, message[:300]))[-MAX_HISTORY:])

    def with_restarts(self, *restarts: RestartEntry) -> "Record":
        """Return the record with these restarts in its history, without the oldest if there are too many."""
        new = self.unrecorded(restarts)
        return (
            replace(self, restart_history=(*self.restart_history, *new)[-MAX_RESTART_HISTORY:])
            if new
            else self
        )

    def unrecorded(self, restarts: Iterable[RestartEntry]) -> tuple[RestartEntry, ...]:
        """Return those of these restarts that the history does not have yet.

        A disrupted pod may be found lost again: an index that has left its role may come back while its old
        pod still ends. What more was restarted for it is recorded too.
        """
        known = {(entry.pod_fingerprint, entry.scope) for entry in self.restart_history}
        return tuple(
            entry
            for entry in restarts
            if not entry.pod_fingerprint or (entry.pod_fingerprint, entry.scope) not in known
        )


_NEW_ROLE = RoleRecord()


def _only(numbers: Mapping[int, int], members: IndexSet) -> dict[int, int]:
    return {index: number for index, number in numbers.items() if index in members}
