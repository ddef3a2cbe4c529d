"""Holds what the operator remembers between reconciles, and may lose, of objects of kinds without a Workload.

Nothing here is needed for correctness: losing it (a restart, a new leader) costs one more try of what failed,
and one more write of each child.
"""

from collections.abc import Collection

from msgspec import Struct, field

from argosy.plan.actions import ActionResult
from argosy.reconcile.child_executor import WrittenChildren
from argosy.reconcile.job_state import NEVER, CrdBlock

FIRST_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 30.0

ActionKey = tuple[str, str]
"""Kind and name of the object that an action writes."""


class _Backoff(Struct):
    failures: int
    until: float


class ActionRetries(Struct):
    """Failed actions; each is held back for a growing time before it is tried again."""

    failures: dict[ActionKey, ActionResult] = field(default_factory=dict)
    _backoffs: dict[ActionKey, _Backoff] = field(default_factory=dict)

    def record(self, failure: ActionResult, now: float) -> None:
        """Remember a failure, and double the time until the next try."""
        key = (failure.kind, failure.name)
        self.failures[key] = failure
        count = self._backoffs[key].failures + 1 if key in self._backoffs else 1
        delay = min(FIRST_RETRY_SECONDS * 2.0 ** (count - 1), MAX_RETRY_SECONDS)
        self._backoffs[key] = _Backoff(count, now + delay)

    def clear(self, key: ActionKey) -> None:
        """Forget the failures of an action that succeeded."""
        self.failures.pop(key, None)
        self._backoffs.pop(key, None)

    def keep_only(self, keys: Collection[ActionKey]) -> None:
        """Forget the failures of actions that are no longer asked for."""
        for key in [key for key in self.failures if key not in keys]:
            self.clear(key)

    def is_in_backoff(self, key: ActionKey, now: float) -> bool:
        backoff = self._backoffs.get(key)
        return backoff is not None and backoff.until > now

    def next_retry_at(self) -> float | None:
        return min((backoff.until for backoff in self._backoffs.values()), default=None)


class ObjectState(Struct):
    uid: str
    generation: int = 0
    retries: ActionRetries = field(default_factory=ActionRetries)
    written: WrittenChildren = field(default_factory=WrittenChildren)
    checks: dict[str, ActionResult] = field(default_factory=dict)
    """What the API server answered to checks that the last decision contained, by their keys."""
    current: bool = False
    """The cached object includes all that was written to it before this term of leadership."""
    written_at: float = NEVER
    """When the status was last written, on the monotonic clock."""
    flush_at: float | None = None
    """When a change that was not worth a write by itself is written."""
    status_not_found: int = 0
    """Times in a row that there was no status to write to."""
    block: CrdBlock = field(default_factory=CrdBlock)

    def use_generation(self, generation: int) -> None:
        """Forget failures of an earlier spec: what was rejected then may be accepted now."""
        if self.generation != generation:
            self.generation = generation
            self.retries = ActionRetries()
            self.checks.clear()
