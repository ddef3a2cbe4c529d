"""Tests for the metrics of jobs, which count what reconciles write."""

from collections.abc import Mapping
from datetime import timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from argosy.engine.objects import Key
from argosy.operator.job_metrics import JobMetrics, dependency_wait_seconds, gang_wait_seconds
from argosy.workload.model import Dependency, Gang, Phase
from argosy.workload.plan import Plan
from argosy.workload.record import Record, RoleRecord
from argosy.workload.usage_record import Usage
from tests.support.et_simulator import LAUNCHER, EtSimulator, running_job, worker
from tests.support.workloads import NOW, later, role, workload

A, B = Key("default", "a"), Key("default", "b")
JOB = workload()
WAITS = ("gang", "dependency")
LABELS = {"kind": "TrainingRun", "framework": JOB.framework}


def counted() -> tuple[JobMetrics, CollectorRegistry]:
    registry = CollectorRegistry()
    return JobMetrics(registry), registry


def jobs(registry: CollectorRegistry) -> Mapping[str, float]:
    return {
        sample.labels["phase"]: sample.value
        for metric in registry.collect()
        if metric.name == "argosy_jobs"
        for sample in metric.samples
    }


def test_job_is_counted_in_its_phase_until_it_is_deleted() -> None:
    statistics, registry = counted()
    running, done = Record(phase=Phase.RUNNING), Record(phase=Phase.SUCCEEDED)
    for key in (A, B):
        statistics.record_plan("TrainingRun", key, JOB, None, Plan(running))
    statistics.record_plan("TrainingRun", A, JOB, running, Plan(done))
    assert jobs(registry) == {"Running": 1, "Succeeded": 1}
    statistics.forget_job("TrainingRun", A)
    statistics.forget_job("TrainingRun", A)
    assert jobs(registry) == {"Running": 1, "Succeeded": 0}
    assert len(statistics._phases) == 1


def test_replica_that_stops_leading_counts_no_jobs() -> None:
    statistics, registry = counted()
    statistics.record_plan("TrainingRun", A, JOB, None, Plan(Record(phase=Phase.RUNNING)))
    statistics.clear()
    assert jobs(registry) == {}
    statistics.record_plan("TrainingRun", A, JOB, None, Plan(Record(phase=Phase.RUNNING)))
    assert jobs(registry) == {"Running": 1}


def test_restarts_are_counted_by_cause_including_container_restarts() -> None:
    statistics, registry = counted()
    before = Record(roles={"worker": RoleRecord(container_restarts_counted=1)})
    after = Record(roles={"worker": RoleRecord(container_restarts_counted=3)})
    plan = Plan(after, restart_causes=("Signal", "Signal", "NodeLost"))
    statistics.record_plan("TrainingRun", A, JOB, before, plan)
    sample = registry.get_sample_value
    wanted = {"Signal": 2, "NodeLost": 1, "ContainerRestart": 2, "NonZeroExit": None}
    counts = {cause: sample("argosy_job_restarts_total", {**LABELS, "cause": cause}) for cause in wanted}
    assert counts == wanted


def test_duration_of_a_phase_is_observed_when_it_ends() -> None:
    statistics, registry = counted()
    starting = Record(phase=Phase.STARTING, phase_since=NOW)
    running = Record(phase=Phase.RUNNING, phase_since=NOW + timedelta(seconds=7))
    statistics.record_plan("TrainingRun", A, JOB, starting, Plan(starting))
    statistics.record_plan("TrainingRun", A, JOB, starting, Plan(running))
    labels = {**LABELS, "phase": "Starting"}
    assert registry.get_sample_value("argosy_job_phase_duration_seconds_count", labels) == 1
    assert registry.get_sample_value("argosy_job_phase_duration_seconds_sum", labels) == 7


def test_waits_for_roles_and_gangs_are_observed_when_they_end() -> None:
    statistics, registry = counted()
    launcher = replace(role("launcher"), depends_on=(Dependency("worker"),))
    job = workload(launcher, role("worker"), gang=Gang(2))
    queued = Record(phase_since=NOW)
    starting = Record(phase_since=NOW, attempt_started_at=later(4))
    ready = replace(starting, roles={"worker": RoleRecord(Phase.RUNNING, phase_since=later(6))})
    for before, after in ((None, queued), (queued, starting), (starting, ready), (ready, ready)):
        statistics.record_plan("TrainingRun", A, job, before, Plan(after))
    sums = {name: registry.get_sample_value(f"argosy_{name}_wait_seconds_sum", LABELS) for name in WAITS}
    counts = {name: registry.get_sample_value(f"argosy_{name}_wait_seconds_count", LABELS) for name in WAITS}
    assert (sums, counts) == ({"gang": 4, "dependency": 2}, {"gang": 1, "dependency": 1})


def test_invalid_job_has_no_framework() -> None:
    statistics, registry = counted()
    before, after = Record(phase_since=NOW), Record(phase=Phase.FAILED, phase_since=later(1))
    statistics.record_plan("AresJob", A, None, before, Plan(after))
    labels = {"kind": "AresJob", "framework": "", "phase": "Pending"}
    assert registry.get_sample_value("argosy_job_phase_duration_seconds_count", labels) == 1


DEPENDENT = workload(replace(role("launcher"), depends_on=(Dependency("worker"),)), role("worker"))
GANG = workload(gang=Gang(3))


def waiting_record(
    worker: Phase, at: float = 0, launcher: Phase = Phase.STARTING, attempt: int = 1
) -> Record:
    """Return a Record: pods were created NOW; the worker entered its phase this many seconds later."""
    roles = {
        "launcher": RoleRecord(launcher, phase_since=NOW),
        "worker": RoleRecord(worker, phase_since=later(at)),
    }
    return Record(phase=Phase.STARTING, attempt_started_at=NOW, attempt=attempt, roles=roles)


class WaitCase(Struct):
    before: Record | None
    after: Record
    want: list[float]


WAIT_CASES = {
    "role waited for runs: its time since the pods were created": WaitCase(
        waiting_record(Phase.STARTING), waiting_record(Phase.RUNNING, 7), want=[7.0]
    ),
    "role waited for is Starting: nothing": WaitCase(
        waiting_record(Phase.PENDING), waiting_record(Phase.STARTING, 7), want=[]
    ),
    "role waited for ran before: nothing": WaitCase(
        waiting_record(Phase.RUNNING, 7), waiting_record(Phase.RUNNING, 7), want=[]
    ),
    "role waited for succeeded at once: its time": WaitCase(
        waiting_record(Phase.STARTING), waiting_record(Phase.SUCCEEDED, 3), want=[3.0]
    ),
    "dependent role runs already: nothing": WaitCase(
        waiting_record(Phase.FAILED, 50, Phase.RUNNING),
        waiting_record(Phase.RUNNING, 60, Phase.RUNNING),
        want=[],
    ),
    "no Record before: nothing": WaitCase(None, waiting_record(Phase.RUNNING, 7), want=[]),
    "another attempt: nothing": WaitCase(
        waiting_record(Phase.STARTING), waiting_record(Phase.RUNNING, 7, attempt=2), want=[]
    ),
}


@pytest.mark.parametrize("case", WAIT_CASES.values(), ids=WAIT_CASES.keys())
def test_dependency_wait_seconds(case: WaitCase) -> None:
    assert list(dependency_wait_seconds(DEPENDENT, case.before, case.after)) == case.want


def test_gang_wait_seconds() -> None:
    queued, admitted = (
        Record(phase_since=NOW),
        Record(phase_since=NOW, attempt_started_at=NOW + timedelta(seconds=9)),
    )
    assert gang_wait_seconds(GANG, queued, admitted) == 9.0
    assert gang_wait_seconds(GANG, None, admitted) == 0.0, "admitted at once"
    assert gang_wait_seconds(GANG, queued, queued) is None
    assert gang_wait_seconds(GANG, admitted, admitted) is None, "observed once"
    assert gang_wait_seconds(workload(), queued, admitted) is None, "there is no gang"


class MeasuredJob:
    """A TrainingJob that is simulated, and its metrics."""

    def __init__(self, job: EtSimulator) -> None:
        self.job = job
        self.registry = CollectorRegistry()
        self.metrics = JobMetrics(self.registry)

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            planned, before = self.job.plan(), self.job.record
            self.metrics.record_plan("TrainingJob", A, planned.workload, before, planned.plan)
            self.job.run(1)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, {"kind": "TrainingJob", **labels}) or 0.0


def test_case_48_metrics_move_with_phases_scale_results_replacements_and_steps() -> None:
    job = MeasuredJob(running_job({"worker.restartPolicy": "OnFailure"}))
    job.job.scale_out("out")
    job.run(12)
    job.job.scale_in("in")
    job.run(12)
    job.job.scale_in("invalid", toDelete={"count": 10})
    job.run(4)
    scales = "argosy_scale_operations_total"
    assert job.value(scales, direction="Out", result="Succeeded") == 1
    assert job.value(scales, direction="In", result="Succeeded") == 1
    assert job.value(scales, direction="In", result="Failed") == 1
    for direction, step in (("Out", "Adding"), ("In", "Draining"), ("In", "Removing")):
        assert job.value("argosy_scale_step_seconds_count", direction=direction, step=step) == 1
    assert job.value("argosy_jobs", phase="Running") == 1
    job.job.cluster.fail(worker(1), 137)
    job.run(12)
    assert job.value("argosy_job_restarts_total", framework="", cause="Signal") == 1
    job.job.cluster.succeed(LAUNCHER)
    job.run(2)
    assert job.value("argosy_jobs", phase="Running") == 0
    assert job.value("argosy_jobs", phase="Succeeded") == 1


def test_replica_time_is_counted_by_activity_and_never_decreases() -> None:
    metrics, registry = counted()
    before = Record(usage=Usage(seconds={"Training": 100.0}))
    after = Record(usage=Usage(seconds={"Training": 90.0, "Lost": 40.0}))
    metrics.record_plan("TrainingRun", A, JOB, before, Plan(after))
    metrics.record_plan("TrainingRun", A, JOB, after, Plan(after))
    seconds = {
        activity: registry.get_sample_value("argosy_replica_seconds_total", {**LABELS, "activity": activity})
        for activity in ("Training", "Lost", "Waiting")
    }
    assert seconds == {"Training": 30.0, "Lost": 40.0, "Waiting": None}
