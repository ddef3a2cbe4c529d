"""Tests that a number of replicas in the spec is tried again until the job has it."""

import pytest

from argosy.workload.declared_scale import after_failure
from argosy.workload.record import RoleRecord
from tests.support.et_simulator import EtSimulator, running_job, workers
from tests.support.workloads import NOW

W0, W1, W2, W3 = workers(0, 1, 2, 3)

DELAYS = {0: 30.0, 1: 60.0, 4: 480.0, 5: 600.0, 1000: 600.0}


@pytest.mark.parametrize(("failures", "want"), DELAYS.items())
def test_delay_doubles_up_to_ten_minutes(failures: int, want: float) -> None:
    retry = after_failure(RoleRecord(scale_failures=failures), NOW)
    assert retry.seconds == want
    assert retry.fields["scale_failures"] == failures + 1


def failed_scale_out() -> EtSimulator:
    """Return a job with two workers that could not be scaled to three."""
    job = running_job()
    job.cluster.pending = {W2, W3}
    job.edit({"worker.replicas": 3})
    while job.record.role("worker").scale_retry_at is None:
        job.run(1, 10)
    assert job.status.target_workers == [W0, W1]
    return job


def test_failure_and_next_try_are_in_the_status() -> None:
    job = running_job()
    job.cluster.pending = {W2}
    job.edit({"worker.replicas": 3})
    while "ScaleFailed" not in job.conditions():
        job.run(1, 50)
    status, reason, message = job.condition("ScaleFailed")
    assert (status, reason) == ("True", "ScalingOutFailed")
    assert message.endswith(f"execution timeout: {W2} not running; tried again in 30 s")
    assert "ScalingOutFailed" in job.reasons("Warning")


def test_failed_scale_is_tried_again_until_there_is_capacity() -> None:
    job = failed_scale_out()
    job.run(30, 50)
    assert job.cluster.created.count(W2) >= 2
    assert job.hosts == [W0, W1]
    job.cluster.pending = set()
    job.run(20, 50)
    assert job.hosts == [W0, W1, W2]
    created = list(job.cluster.created)
    job.run(20, 50)
    assert job.cluster.created == created
    assert (job.record.role("worker").scale_failures, job.record.role("worker").scale_retry_at) == (0, None)


def test_other_number_is_tried_at_once() -> None:
    job = failed_scale_out()
    job.edit({"worker.replicas": 1})
    job.run(15)
    assert job.hosts == [W0]


def test_number_that_the_job_has_again_is_not_tried() -> None:
    job = failed_scale_out()
    job.edit({"worker.replicas": 2})
    created = list(job.cluster.created)
    job.cluster.pending = set()
    job.run(20, 50)
    assert job.cluster.created == created
    assert job.hosts == [W0, W1]


def test_scaler_that_succeeds_meanwhile_has_the_last_word() -> None:
    job = failed_scale_out()
    job.scale_in("in", toDelete={"count": 1})
    while job.scalers["in"].status.phase != "ScaleSucceeded":
        job.run(1, 1)
    job.cluster.pending = set()
    job.run(20, 50)
    assert job.hosts == [W0]


def test_number_that_is_changed_while_workers_are_added_is_followed_at_once() -> None:
    job = running_job()
    job.cluster.pending = {W2, W3}
    job.edit({"worker.replicas": 4})
    job.run(5)
    assert job.status.phase == "Scaling"
    job.edit({"worker.replicas": 1})
    job.run(15)
    assert job.hosts == [W0]
    assert "the number of replicas was changed" in job.event_messages("ScalingOutFailed")[-1]


def test_number_that_a_scaler_has_reached_before_is_not_tried_later() -> None:
    job = running_job()
    job.scale_out("out", toAdd={"count": 1})
    job.run(15)
    job.edit({"worker.replicas": 3})
    job.run(5)
    job.scale_in("in", toDelete={"count": 1})
    job.run(30)
    assert job.hosts == [W0, W1]
