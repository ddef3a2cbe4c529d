"""Keeps what the operator remembers of a job between reconciles and may lose.

Nothing here is needed for correctness. Losing it (a restart, a new leader) costs one more try of what was
rejected. It is dropped when a job has finished, so that finished jobs cost nothing but their cached object.
All times are on the monotonic clock.
"""

from collections.abc import Collection

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import ActionResult
from argosy.reconcile.child_executor import WrittenChildren
from argosy.reconcile.slow_start import SlowStart
from argosy.workload.model import Problems, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.record import Record

FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 30.0
NEVER = float("-inf")
"""A time that is always past."""


class Retry(Struct):
    """When an action that failed may be tried again."""

    failures: int
    at: float


class RetryState(Struct):
    """What the API server answered to actions that did not succeed, and when to try them again."""

    failures: dict[tuple[str, str], ActionResult] = field(default_factory=dict)
    """Results other than DONE, by kind and name, until the action is tried again."""
    retries: dict[tuple[str, str], Retry] = field(default_factory=dict)
    slow_start: SlowStart = field(default_factory=SlowStart)

    def record_failure(self, failure: ActionResult, now: float, *, backoff: bool = True) -> None:
        """Remember a result other than DONE, and back off exponentially.

        Without `backoff` the next try is held back by something else.
        """
        key = (failure.kind, failure.name)
        self.failures[key] = failure
        if not backoff:
            self.retries.pop(key, None)
            return
        failures = self.retries[key].failures + 1 if key in self.retries else 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** (failures - 1), MAX_RETRY_SECONDS)
        self.retries[key] = Retry(failures, now + delay)

    def clear_failure(self, kind: str, name: str) -> None:
        self.failures.pop((kind, name), None)
        self.retries.pop((kind, name), None)

    def keep_only(self, keys: Collection[tuple[str, str]]) -> None:
        """Forget the failures of actions that are no longer planned: nothing would ever clear them."""
        for kind, name in [key for key in self.failures if key not in keys]:
            self.clear_failure(kind, name)

    def in_backoff(self, kind: str, name: str, now: float) -> bool:
        retry = self.retries.get((kind, name))
        return retry is not None and retry.at > now

    def next_retry_at(self) -> float | None:
        return min((retry.at for retry in self.retries.values()), default=None)


class Deferred(Struct, frozen=True):
    """A Record that is written by a later reconcile, although its actions have been executed.

    If it is lost, it is rebuilt from the labels of the pods.
    """

    record: Record
    resource_version: str
    """The version of the job on which it was decided. It says nothing about any other version."""


class StatusState(Struct):
    """What the status writer remembers of one job."""

    written_at: float = NEVER
    flush_at: float | None = None
    """When a change is written that was not worth a write by itself."""
    flush_by: float = NEVER
    """When a deferred Record is written at the latest."""
    deferred: Deferred | None = None
    record_first: bool = False
    """Somebody else writes to this job: its Records are no longer deferred."""
    is_current: bool = False
    """The cached job is known to show all that was written to it before this term of leadership."""
    not_found: int = 0
    """Status writes in a row that were answered with NotFound."""

    def deferred_record(self, resource_version: str) -> Record | None:
        """Return the deferred Record; drop one of another version, which would overwrite newer ones."""
        if self.deferred is not None and self.deferred.resource_version != resource_version:
            self.deferred, self.record_first = None, True
        return self.deferred.record if self.deferred else None

    def rebase_deferred(self, old_version: str, new_version: str) -> None:
        """Keep a deferred Record after a write of our own to the job, which was made on the old version."""
        if self.deferred is not None and self.deferred.resource_version == old_version:
            self.deferred = Deferred(self.deferred.record, new_version)

    def is_flush(self, record: Record, now: float) -> bool:
        """Return True if this reconcile only writes that the job runs, which does not make a burst longer."""
        is_due = self.flush_at is not None and now >= self.flush_at
        is_deferred = self.deferred is not None and self.deferred.record == record
        return is_due and is_deferred and record.first_running_at is not None

    def written(self, now: float) -> None:
        """The status was written: nothing is left to flush."""
        self.written_at, self.flush_at, self.deferred = now, None, None
        self.is_current, self.not_found = True, 0


class CrdBlock(Struct):
    """How long a job is left alone because its CRD or its Record does not fit this operator."""

    until: float = NEVER
    count: int = 0


class PodHints(Struct):
    """What the API server answered about pods, while the caches may not show it yet."""

    confirmed_absent: set[tuple[str, int]] = field(default_factory=set)
    """Replicas that have no pod according to the API server; valid for one reconcile."""
    deleted_uids: set[str] = field(default_factory=set)
    """Pods that we deleted; the cache may still show them."""

    def take_confirmed_absent(self) -> frozenset[tuple[str, int]]:
        """Return the confirmations, and forget them."""
        absent, self.confirmed_absent = frozenset(self.confirmed_absent), set()
        return absent

    def keep_deleted(self, pods: tuple[ObservedPod, ...]) -> None:
        """Forget deleted pods that the caches do not have any more."""
        if self.deleted_uids:
            self.deleted_uids &= {pod.uid for pod in pods}


class WorkloadCache(Struct, frozen=True):
    """A job as a workload, with what it was made from."""

    version: tuple[int, bool, dict[str, str]]
    """Generation, whether it is being deleted, and annotations."""
    workload: Workload | Problems


def workload_version(meta: ObjectMeta) -> tuple[int, bool, dict[str, str]]:
    """Return what a workload is made from: a job is translated again when it changes."""
    return meta.generation, meta.deletion_timestamp is not None, meta.annotations


class JobState(Struct):
    uid: str
    """Of the job that this is about; a job recreated under the same name starts afresh."""
    workload: WorkloadCache | None = None
    retries: RetryState = field(default_factory=RetryState)
    status: StatusState = field(default_factory=StatusState)
    hints: PodHints = field(default_factory=PodHints)
    block: CrdBlock = field(default_factory=CrdBlock)
    written: WrittenChildren = field(default_factory=WrittenChildren)
    recheck_at: float | None = None
    """When something unconfirmed is to be looked at again."""
