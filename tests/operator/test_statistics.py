"""What passes write, counted."""

from collections.abc import Mapping
from datetime import timedelta

from prometheus_client import CollectorRegistry

from argosy.engine.objects import Key
from argosy.operator.statistics import JobStatistics
from argosy.testing.workloads import NOW
from argosy.workload.model import Phase
from argosy.workload.record import Record, RoleRecord

A, B = Key("default", "a"), Key("default", "b")


def counted() -> tuple[JobStatistics, CollectorRegistry]:
    registry = CollectorRegistry()
    return JobStatistics(registry), registry


def jobs(registry: CollectorRegistry) -> Mapping[str, float]:
    return {
        sample.labels["phase"]: sample.value
        for metric in registry.collect()
        if metric.name == "argosy_jobs"
        for sample in metric.samples
    }


def test_each_job_is_counted_in_its_phase_until_it_is_gone() -> None:
    statistics, registry = counted()
    running, done = Record(phase=Phase.RUNNING), Record(phase=Phase.SUCCEEDED)
    for key in (A, B):
        statistics.passed("TrainingRun", key, None, running, ())
    statistics.passed("TrainingRun", A, running, done, ())
    assert jobs(registry) == {"Running": 1, "Succeeded": 1}
    statistics.forgotten("TrainingRun", A)
    statistics.forgotten("TrainingRun", A)
    assert jobs(registry) == {"Running": 1, "Succeeded": 0}
    assert len(statistics._phases) == 1


def test_a_replica_that_leads_no_more_counts_no_jobs() -> None:
    statistics, registry = counted()
    statistics.passed("TrainingRun", A, None, Record(phase=Phase.RUNNING), ())
    statistics.clear()
    assert jobs(registry) == {}
    statistics.passed("TrainingRun", A, None, Record(phase=Phase.RUNNING), ())
    assert jobs(registry) == {"Running": 1}


def test_restarts_are_counted_by_cause_those_in_place_too() -> None:
    statistics, registry = counted()
    before = Record(roles={"worker": RoleRecord(in_place_counted=1)})
    after = Record(roles={"worker": RoleRecord(in_place_counted=3)})
    statistics.passed("TrainingRun", A, before, after, ("Signal", "Signal", "NodeDown"))
    sample = registry.get_sample_value
    wanted = {"Signal": 2, "NodeDown": 1, "Container": 2, "Exit": None}
    found = {
        cause: sample("argosy_restarts_total", {"dialect": "TrainingRun", "cause": cause}) for cause in wanted
    }
    assert found == wanted


def test_time_in_a_phase_is_told_when_it_is_left() -> None:
    statistics, registry = counted()
    starting = Record(phase=Phase.STARTING, since=NOW)
    running = Record(phase=Phase.RUNNING, since=NOW + timedelta(seconds=7))
    statistics.passed("TrainingRun", A, starting, starting, ())
    statistics.passed("TrainingRun", A, starting, running, ())
    labels = {"dialect": "TrainingRun", "phase": "Starting"}
    assert registry.get_sample_value("argosy_phase_seconds_count", labels) == 1
    assert registry.get_sample_value("argosy_phase_seconds_sum", labels) == 7
