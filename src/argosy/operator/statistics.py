"""Counts jobs by phase, restarts, and how long phases last, from the Records that passes write."""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from argosy.engine.objects import Key
from argosy.workload.model import Phase
from argosy.workload.record import Record

_PHASE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)


class JobStatistics:
    """Labels are kinds and phases: there are no more of them with more jobs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge("argosy_jobs", "Jobs by phase.", ["kind", "phase"], registry=registry)
        self.restarts = Counter(
            "argosy_restarts", "Restarts that jobs used after failures.", ["kind"], registry=registry
        )
        self.disruptions = Counter(
            "argosy_disruptions", "Pods that jobs lost to the cluster.", ["kind"], registry=registry
        )
        self.phase_seconds = Histogram(
            "argosy_phase_seconds",
            "How long jobs stayed in a phase they left.",
            ["kind", "phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self._phases: dict[tuple[str, Key], Phase] = {}
        self._tally: Tally[tuple[str, Phase]] = Tally()

    def passed(self, kind: str, key: Key, before: Record | None, after: Record) -> None:
        self._move(kind, key, after.phase)
        if before is None:
            return
        if after.restarts > before.restarts:
            self.restarts.labels(kind).inc(after.restarts - before.restarts)
        if after.disruptions > before.disruptions:
            self.disruptions.labels(kind).inc(after.disruptions - before.disruptions)
        if after.phase != before.phase and before.since is not None and after.since is not None:
            stayed = (after.since - before.since).total_seconds()
            self.phase_seconds.labels(kind, before.phase).observe(max(stayed, 0.0))

    def forgotten(self, kind: str, key: Key) -> None:
        self._move(kind, key, None)

    def _move(self, kind: str, key: Key, phase: Phase | None) -> None:
        before = self._phases.get((kind, key))
        if before == phase:
            return
        if before is not None:
            self._count(kind, before, -1)
            del self._phases[kind, key]
        if phase is not None:
            self._count(kind, phase, 1)
            self._phases[kind, key] = phase

    def _count(self, kind: str, phase: Phase, by: int) -> None:
        self._tally[kind, phase] += by
        self.jobs.labels(kind, phase).set(self._tally[kind, phase])
