"""What the operator holds about a job between passes and may lose: answers to actions, and when to try again.

Nothing here is needed for correctness. Losing it (a restart, a new leader) costs one more try of what was
refused. It is dropped when a job has finished, so that finished jobs cost nothing but their cached object.
"""

from msgspec import Struct, field

from argosy.reconcile.slow_start import SlowStart
from argosy.workload.model import Problems, Workload
from argosy.workload.observed import Outcome
from argosy.workload.record import Record

FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 30.0


class Retry(Struct):
    """When an action that was not done may be tried again, on the monotonic clock."""

    failures: int
    at: float


class Deferred(Struct, frozen=True):
    """A Record that is written with a later pass, though its actions have been carried out.

    Lost, it is rebuilt from the labels of the pods.
    """

    record: Record
    resource_version: str
    """The version of the job on which it was decided. It says nothing about any other version."""


class JobState(Struct):
    uid: str
    """Of the job that this is about; a job made anew under an old name starts afresh."""
    lowered: tuple[tuple[int, bool, dict[str, str]], Workload | Problems] | None = None
    """The job as a workload, with what this was made from: the generation, whether it is being deleted, and
    annotations."""
    outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    """Answers other than success, by kind and name, until the action is tried again."""
    retries: dict[tuple[str, str], Retry] = field(default_factory=dict)
    slow_start: SlowStart = field(default_factory=SlowStart)
    confirmed_absent: set[tuple[str, int]] = field(default_factory=set)
    """Places confirmed empty by the API; good for one pass."""
    deleted_uids: set[str] = field(default_factory=set)
    """Uids of pods that were asked to go, so that a cache which has not heard of it yet does not mislead."""
    written_at: float = float("-inf")
    """When the status was last written, on the monotonic clock."""
    flush_at: float | None = None
    """When a change that was not worth a write by itself is written after all."""
    flush_by: float = float("-inf")
    """When a Record that is not written yet must be."""
    deferred: Deferred | None = None
    current: bool = False
    """The cached job is known to show all that was written to it before this term of leadership."""
    record_first: bool = False
    """Somebody else writes to this job: its Records are no longer deferred."""
    recheck_at: float | None = None
    """Something seen is in doubt; look again then."""
    blocked_until: float = float("-inf")
    """The CRD drops the Record: nothing is tried before this time."""
    block_count: int = 0
    status_not_found: int = 0
    """Times in a row that there was no status to write to."""

    def drop_outdated(self, resource_version: str) -> None:
        """Drop a Record that was deferred at another version of the job: it would overwrite newer ones."""
        if self.deferred is not None and self.deferred.resource_version != resource_version:
            self.deferred, self.record_first = None, True

    def record_failure(self, outcome: Outcome, now: float, *, hold: bool = True) -> None:
        """Remember an answer that was not success.

        Unless something else does so (`hold` is False), hold the next try back: twice as long each time.
        """
        key = (outcome.kind, outcome.name)
        self.outcomes[key] = outcome
        if not hold:
            self.retries.pop(key, None)
            return
        failures = self.retries[key].failures + 1 if key in self.retries else 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** (failures - 1), MAX_RETRY_SECONDS)
        self.retries[key] = Retry(failures, now + delay)

    def clear_failure(self, kind: str, name: str) -> None:
        self.outcomes.pop((kind, name), None)
        self.retries.pop((kind, name), None)

    def reset_retries(self) -> None:
        """The definition changed: what was refused before may be right now."""
        self.outcomes.clear()
        self.retries.clear()
        self.slow_start = SlowStart()

    def in_backoff(self, kind: str, name: str, now: float) -> bool:
        retry = self.retries.get((kind, name))
        return retry is not None and retry.at > now

    def next_retry_at(self) -> float | None:
        return min((retry.at for retry in self.retries.values()), default=None)
