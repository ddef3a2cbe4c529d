"""Counts jobs by phase, restarts by cause, and how long phases last, from the Records that passes write.

Only the replica that leads makes passes, so only its numbers are there: summed over replicas they are right.
"""

from collections import Counter as Tally
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from argosy.engine.objects import Key
from argosy.workload.causes import Why
from argosy.workload.model import Phase
from argosy.workload.record import Record

_PHASE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)


class JobStatistics:
    """Labels are dialects (by the kind of their jobs), phases and causes: no more of them with more jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge(
            "argosy_jobs", "Jobs by dialect and phase.", ["dialect", "phase"], registry=registry
        )
        self.restarts = Counter(
            "argosy_restarts_total",
            "Restarts of pods, or of jobs as a whole, by what made them necessary.",
            ["dialect", "cause"],
            registry=registry,
        )
        self.phase_seconds = Histogram(
            "argosy_phase_seconds",
            "How long jobs stayed in a phase they left.",
            ["dialect", "phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self._phases: dict[tuple[str, Key], Phase] = {}
        self._tally: Tally[tuple[str, Phase]] = Tally()

    def passed(
        self, dialect: str, key: Key, before: Record | None, after: Record, restarts: Sequence[str]
    ) -> None:
        """A pass over a job wrote `after` where `before` was, for restarts of these causes."""
        self._move(dialect, key, after.phase)
        for cause in restarts:
            self.restarts.labels(dialect, cause).inc()
        if before is None:
            return
        if in_place := _in_place(before, after):
            self.restarts.labels(dialect, Why.CONTAINER).inc(in_place)
        if after.phase != before.phase and before.since is not None and after.since is not None:
            stayed = (after.since - before.since).total_seconds()
            self.phase_seconds.labels(dialect, before.phase).observe(max(stayed, 0.0))

    def forgotten(self, dialect: str, key: Key) -> None:
        """The job is gone."""
        self._move(dialect, key, None)

    def clear(self) -> None:
        """Another replica counts jobs from now on."""
        self._phases.clear()
        self._tally.clear()
        self.jobs.clear()

    def _move(self, dialect: str, key: Key, phase: Phase | None) -> None:
        before = self._phases.get((dialect, key))
        if before == phase:
            return
        if before is not None:
            self._count(dialect, before, -1)
            del self._phases[dialect, key]
        if phase is not None:
            self._count(dialect, phase, 1)
            self._phases[dialect, key] = phase

    def _count(self, dialect: str, phase: Phase, by: int) -> None:
        self._tally[dialect, phase] += by
        self.jobs.labels(dialect, phase).set(self._tally[dialect, phase])


def _in_place(before: Record, after: Record) -> int:
    """Containers that nodes restarted since."""
    pairs = [(before.role(name), role) for name, role in after.roles.items()]
    return sum(max(new.in_place_counted - old.in_place_counted, 0) for old, new in pairs)
