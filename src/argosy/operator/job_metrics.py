"""Counts jobs by phase, restarts by cause, and how long phases and waits last, from what passes write.

Only the replica that leads makes passes, so only its numbers are there: summed over replicas they are right.
"""

from collections import Counter as Tally

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from argosy.engine.objects import Key
from argosy.workload import waited
from argosy.workload.model import Phase, Workload
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.restart_causes import RestartCause

_PHASE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_WAIT_BUCKETS = (0.5, 1, 2, 5, 15, 60, 300, 900, 3600, 24 * 3600)


class JobMetrics:
    """Labels are dialects (by the kind of their jobs), frameworks, phases and causes: no more of them with
    more jobs. A job whose definition cannot be used has no framework."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge(
            "argosy_jobs", "Jobs by dialect and phase.", ["dialect", "phase"], registry=registry
        )
        self.restarts = Counter(
            "argosy_restarts_total",
            "Restarts of pods, or of jobs as a whole, by what made them necessary.",
            ["dialect", "framework", "cause"],
            registry=registry,
        )
        self.phase_seconds = Histogram(
            "argosy_phase_seconds",
            "How long jobs stayed in a phase they left.",
            ["dialect", "framework", "phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.dependency_wait = Histogram(
            "argosy_dependency_wait_seconds",
            "How long roles waited for other roles, with their pods there.",
            ["dialect", "framework"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.gang_wait = Histogram(
            "argosy_gang_wait_seconds",
            "How long jobs waited until all their pods could be asked for together.",
            ["dialect", "framework"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.nodes_unconfirmed = Gauge(
            "argosy_nodes_unconfirmed",
            "Nodes with pods of jobs whose state the API server is asked for and has not confirmed.",
            registry=registry,
        )
        self._phases: dict[tuple[str, Key], Phase] = {}
        self._tally: Tally[tuple[str, Phase]] = Tally()

    def record_pass(
        self, dialect: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None:
        """A pass over a job wrote the plan's Record where `before` was."""
        after, framework = plan.record, workload.framework if workload else ""
        self._move(dialect, key, after.phase)
        for cause in plan.restart_causes:
            self.restarts.labels(dialect, framework, cause).inc()
        if workload is not None:
            self._waits(dialect, workload, before, after)
        if before is None:
            return
        if in_place := _in_place(before, after):
            self.restarts.labels(dialect, framework, RestartCause.CONTAINER_RESTART).inc(in_place)
        if after.phase != before.phase and before.phase_since is not None and after.phase_since is not None:
            stayed = (after.phase_since - before.phase_since).total_seconds()
            self.phase_seconds.labels(dialect, framework, before.phase).observe(max(stayed, 0.0))

    def _waits(self, dialect: str, workload: Workload, before: Record | None, after: Record) -> None:
        for seconds in waited.for_roles(workload, before, after):
            self.dependency_wait.labels(dialect, workload.framework).observe(seconds)
        if (queued := waited.for_gang(workload, before, after)) is not None:
            self.gang_wait.labels(dialect, workload.framework).observe(queued)

    def forget_job(self, dialect: str, key: Key) -> None:
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
    return sum(max(new.container_restarts_counted - old.container_restarts_counted, 0) for old, new in pairs)
