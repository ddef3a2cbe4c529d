"""When pods are made before the Record of them is written.

A write of a job's status costs the API server more than two pods do. Where many jobs come at once, or lose a
pod each, what all of them wait for is the API server. Then a Record that says nothing but what the pods will
say themselves is written with a later pass, which often has more to tell; so a job that comes up is written
once instead of twice, and one that lost a pod when all have theirs again (docs/decisions/007).
"""

from collections import deque

from argosy.reconcile.memory import Memory
from argosy.workload.memory import told_by_pods
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record

MANY = 8
"""Passes that make a crowd: under way together or, since many have nothing to wait for, within a moment."""

MOMENT = 0.1
"""Seconds within which passes over so many jobs make a crowd."""

TOLD_WITHIN = 5.0
"""Seconds after which a job is told about at the latest."""


class Crowd:
    """The passes under way over the jobs of one kind."""

    def __init__(self) -> None:
        self._passes = 0
        self._recent: deque[tuple[float, str]] = deque(maxlen=MANY)
        """When the last passes decided, on the monotonic clock, and about which job."""
        self.proven = False
        """Whether the kind's definition of now is known to keep Records. Before that nothing is made."""
        self._changed = False

    def __enter__(self) -> None:
        self._passes += 1

    def __exit__(self, *_: object) -> None:
        self._passes -= 1

    def record_came_back(self) -> None:
        """A Record that was written is there whole."""
        self.proven = True

    def record_was_read(self) -> None:
        """A job has a Record. If the definition has changed, that may have been read before."""
        self.proven = self.proven or not self._changed

    def definition_changed(self, *, jobs_were_read: bool) -> None:
        self.proven = False
        self._changed = self._changed or jobs_were_read

    def puts_off(self, before: Record | None, plan: Plan, seen: Observed, memory: Memory, now: float) -> bool:
        """Whether this plan's Record is written with a later pass; `now` is on the monotonic clock."""
        self._recent.append((now, memory.uid))
        if not told_by_pods(before, plan, seen):
            return False
        if memory.unwritten is not None:
            return memory.flush_at is not None and now < memory.flush_at
        if plan.record == before or not self.proven or not self._is_crowd(now):
            return False
        memory.flush_at = now + TOLD_WITHIN
        return True

    def _is_crowd(self, now: float) -> bool:
        jobs = {uid for at, uid in self._recent if now - at < MOMENT}
        return max(self._passes, len(jobs)) >= MANY
