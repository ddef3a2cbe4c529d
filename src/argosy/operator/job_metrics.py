"""Counts jobs by phase, restarts by cause, scale operations, and the duration of phases and waits.

All of it is what reconciles write. Only the leader reconciles, so only the leader has these values: sums over
all replicas are correct.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from argosy.engine.objects import Key
from argosy.reconcile.reconciler import JobMetricsSink
from argosy.workload.dependencies import has_reached
from argosy.workload.model import Phase, Role, Workload
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.restarts.causes import RestartCause
from argosy.workload.usage_record import Activity

_PHASE_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)
_BEFORE_RUNNING = (Phase.PENDING, Phase.STARTING)
_WAIT_BUCKETS = (0.5, 1, 2, 5, 15, 60, 300, 900, 3600, 24 * 3600)


class JobMetrics:
    """Metrics of jobs, by kind, framework, phase and cause, none of which grow with the number of jobs.

    A job whose spec is invalid has no framework.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.jobs = Gauge("argosy_jobs", "Jobs by kind and phase.", ["kind", "phase"], registry=registry)
        self.restarts = Counter(
            "argosy_job_restarts_total",
            "Restarts of pods or of whole jobs, by cause.",
            ["kind", "framework", "cause"],
            registry=registry,
        )
        self.phase_seconds = Histogram(
            "argosy_job_phase_duration_seconds",
            "Time that jobs spent in a phase that they left.",
            ["kind", "framework", "phase"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.dependency_wait = Histogram(
            "argosy_dependency_wait_seconds",
            "Time that roles with pods waited for other roles.",
            ["kind", "framework"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.gang_wait = Histogram(
            "argosy_gang_wait_seconds",
            "Time that gangs waited for capacity or admission.",
            ["kind", "framework"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.scales = Counter(
            "argosy_scale_operations_total",
            "Scale operations that have ended, by direction (Out, In) and result.",
            ["kind", "direction", "result"],
            registry=registry,
        )
        self.scale_step = Histogram(
            "argosy_scale_step_seconds",
            "Time that scale operations spent in a step.",
            ["kind", "direction", "step"],
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        self.usage = UsageMetrics(registry)
        self.nodes = NodeMetrics(registry)
        self._phases: dict[tuple[str, Key], Phase] = {}
        self._tally: Tally[tuple[str, Phase]] = Tally()

    def record_plan(
        self, kind: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None:
        """Count what changed between the Record `before` and the plan's, which was written."""
        after, framework = plan.record, workload.framework if workload else ""
        self._move(kind, key, after.phase)
        for cause in plan.restart_causes:
            self.restarts.labels(kind, framework, cause).inc()
        if workload is not None:
            self._waits(kind, workload, before, after)
        self._record_scaling(kind, before, after)
        self.usage.add(kind, framework, before, after)
        if before is None:
            return
        if in_place := _in_place(before, after):
            self.restarts.labels(kind, framework, RestartCause.CONTAINER_RESTART).inc(in_place)
        if after.phase != before.phase and before.phase_since is not None and after.phase_since is not None:
            stayed = (after.phase_since - before.phase_since).total_seconds()
            self.phase_seconds.labels(kind, framework, before.phase).observe(max(stayed, 0.0))

    def _waits(self, kind: str, workload: Workload, before: Record | None, after: Record) -> None:
        for seconds in dependency_wait_seconds(workload, before, after):
            self.dependency_wait.labels(kind, workload.framework).observe(seconds)
        if (queued := gang_wait_seconds(workload, before, after)) is not None:
            self.gang_wait.labels(kind, workload.framework).observe(queued)

    def _record_scaling(self, kind: str, before: Record | None, after: Record) -> None:
        """Count the steps of scale operations that were left, and those operations that have ended."""
        earlier = {operation.id: operation for operation in before.operations} if before else {}
        for operation in after.operations:
            old = earlier.get(operation.id)
            if old is not None and old.step is not operation.step and old.step_since and operation.step_since:
                stayed = (operation.step_since - old.step_since).total_seconds()
                self.scale_step.labels(kind, operation.kind, old.step).observe(max(stayed, 0.0))
            if operation.finished and (old is None or not old.finished):
                self.scales.labels(kind, operation.kind, operation.step).inc()

    def forget_job(self, kind: str, key: Key) -> None:
        """Stop counting a job that was deleted."""
        self._move(kind, key, None)

    def clear(self) -> None:
        """Forget all jobs: another replica counts them from now on."""
        self._phases.clear()
        self._tally.clear()
        self.jobs.clear()

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


class UsageMetrics:
    """Metrics of what the replicas of jobs spend their time on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.replica_seconds = Counter(
            "argosy_replica_seconds_total",
            "Time of all replicas of jobs by activity; Lost is training that restarts have undone, which"
            " Training includes.",
            ["kind", "framework", "activity"],
            registry=registry,
        )

    def add(self, kind: str, framework: str, before: Record | None, after: Record) -> None:
        """Add the time that was accounted for between two Records."""
        self.add_seconds(kind, framework, before.usage.seconds if before else {}, after.usage.seconds)

    def add_seconds(
        self, kind: str, framework: str, before: Mapping[str, float], after: Mapping[str, float]
    ) -> None:
        """Add the replica-seconds by which a job's sums have grown."""
        for activity, seconds in added_seconds(before, after):
            self.replica_seconds.labels(kind, framework, activity).inc(seconds)


def added_seconds(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Return the replica-seconds by activity that were added; training that is lost was counted before."""
    lost = max(after.get(Activity.LOST, 0.0) - before.get(Activity.LOST, 0.0), 0.0)
    for activity, seconds in after.items():
        added = seconds - before.get(activity, 0.0) + (lost if activity == Activity.TRAINING else 0.0)
        if added > 0:
            yield activity, added


class NodeMetrics:
    """Metrics of the nodes that pods of jobs are on."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.unconfirmed = Gauge(
            "argosy_nodes_unconfirmed",
            "Nodes with pods of jobs whose state the API server has not confirmed yet.",
            registry=registry,
        )
        self.quarantined = Gauge(
            "argosy_nodes_quarantined",
            "Nodes in quarantine, for all namespaces or for some.",
            registry=registry,
        )
        self.quarantines = Counter(
            "argosy_node_quarantines_total", "Quarantines that were begun or widened.", registry=registry
        )


class PlanSinks:
    """Passes what was decided about jobs on to several that count it."""

    def __init__(self, *sinks: JobMetricsSink) -> None:
        self._sinks = sinks

    def record_plan(
        self, kind: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None:
        for sink in self._sinks:
            sink.record_plan(kind, key, workload, before, plan)

    def forget_job(self, kind: str, key: Key) -> None:
        for sink in self._sinks:
            sink.forget_job(kind, key)


def dependency_wait_seconds(workload: Workload, before: Record | None, after: Record) -> Iterator[float]:
    """Yield how long the pods of each role waited whose dependencies are met in `after` for the first time.

    From the creation of the attempt's first pods until the last of the other roles reached its phase. Both
    Records are compared, so that each wait is observed once and none has to be remembered.
    """
    if before is None or after.attempt_started_at is None or before.attempt != after.attempt:
        return
    for role in workload.roles.values():
        if not role.depends_on or before.role(role.name).phase not in _BEFORE_RUNNING:
            continue
        if _dependencies_met(role, after) and not _dependencies_met(role, before):
            reached_at = max(
                after.role(want.role).phase_since or after.attempt_started_at for want in role.depends_on
            )
            yield max((reached_at - after.attempt_started_at).total_seconds(), 0.0)


def gang_wait_seconds(workload: Workload, before: Record | None, after: Record) -> float | None:
    """Return how long the job's gang waited until it was admitted and its pods were created.

    None if that did not happen between the two Records.
    """
    if (
        workload.gang is None
        or after.attempt_started_at is None
        or (before is not None and before.attempt_started_at is not None)
    ):
        return None
    since = before.phase_since if before is not None else None
    return max((after.attempt_started_at - since).total_seconds(), 0.0) if since is not None else 0.0


def _dependencies_met(role: Role, record: Record) -> bool:
    return all(has_reached(record.role(want.role).phase, want.phase) for want in role.depends_on or ())


def _in_place(before: Record, after: Record) -> int:
    """Return how many containers nodes restarted between two Records."""
    pairs = [(before.role(name), role) for name, role in after.roles.items()]
    return sum(max(new.container_restarts_counted - old.container_restarts_counted, 0) for old, new in pairs)
