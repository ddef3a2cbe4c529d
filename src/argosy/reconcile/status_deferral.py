"""When pods are made before the Record of them is written.

A write of a job's status costs the API server more than two pods do. Where many jobs come at once, or lose a
pod each, what all of them wait for is the API server. Then a Record that says nothing but what the pods will
say themselves is written with a later pass, which often has more to tell; so a job that comes up is written
once instead of twice, when it runs and the others have their pods, and one that lost a pod when all have
theirs again (docs/decisions/007). A crowd is of one namespace: a tenant who submits many jobs makes no other
wait for a status.
"""

from collections import deque

from argosy.reconcile.crd_check import RecordSupport
from argosy.reconcile.job_state import JobState
from argosy.workload.dependencies import releases_waiting
from argosy.workload.model import Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.record_sync import told_by_pods

BURST_JOBS = 8
"""Jobs that make a crowd: passes over them are under way together or, since many have nothing to wait for,
were within a moment, or are about to come."""

BURST_WINDOW_SECONDS = 0.1
"""Seconds within which so many jobs make a crowd."""

BURST_HOLD_SECONDS = 1.0
"""Seconds for which there is still a crowd after it was last seen."""

DEFER_SECONDS = 5.0
"""Seconds after which a job is told about that has no crowd around it any more."""

MAX_DEFER_SECONDS = 10.0
"""Seconds after which every job is told about."""


MAX_IDLE_NAMESPACES = 256
"""Namespaces of which something is remembered though no pass over a job of theirs is under way."""


class BurstDetectors:
    """The crowd of each namespace."""

    def __init__(self, proof: RecordSupport) -> None:
        self._proof = proof
        self._of: dict[str, BurstDetector] = {}

    def of(self, namespace: str) -> "BurstDetector":
        crowd = self._of.get(namespace)
        if crowd is None:
            if len(self._of) >= MAX_IDLE_NAMESPACES:
                self._of = {name: one for name, one in self._of.items() if one.active}
            crowd = self._of[namespace] = BurstDetector(self._proof)
        return crowd


class BurstDetector:
    """The passes under way over the jobs of one kind in one namespace."""

    def __init__(self, proof: RecordSupport) -> None:
        self._proof = proof
        self.active = 0
        self._recent: deque[tuple[float, str]] = deque(maxlen=BURST_JOBS)
        """Of which jobs was last heard, and when, on the monotonic clock."""
        self._lasts_until = float("-inf")

    def __enter__(self) -> None:
        self.active += 1

    def __exit__(self, *_: object) -> None:
        self.active -= 1

    def observe_job(self, uid: str, now: float) -> None:
        """A pass decides about this job, or one is about to come."""
        self._recent.append((now, uid))
        jobs = {uid for at, uid in self._recent if now - at < BURST_WINDOW_SECONDS}
        if max(self.active, len(jobs)) >= BURST_JOBS:
            self._lasts_until = now + BURST_HOLD_SECONDS

    def puts_off(
        self,
        workload: Workload,
        before: Record | None,
        plan: Plan,
        seen: Observed,
        memory: JobState,
        now: float,
    ) -> bool:
        """Whether this plan's Record is written with a later pass; `now` is on the monotonic clock."""
        self.observe_job(memory.uid, now)
        if memory.record_first or not told_by_pods(workload, before, plan, seen):
            return False
        if releases_waiting(workload, before, plan.record):
            return False  # waiting pods are answered from what is written, by every replica
        runs_at_last = before is not None and before.ran is None and plan.record.ran is not None
        if memory.deferred is None:
            if plan.record == before or runs_at_last or not self._proof.confirmed or not self._in_burst(now):
                return False
            memory.flush_at, memory.flush_by = now + DEFER_SECONDS, now + MAX_DEFER_SECONDS
        elif memory.flush_at is None or now >= memory.flush_at:
            if now >= memory.flush_by or not self._in_burst(now):
                return False
            memory.flush_at = memory.flush_by
        elif runs_at_last:
            return self._in_burst(now)
        return True

    def _in_burst(self, now: float) -> bool:
        return now < self._lasts_until
