"""Tests how long a job may wait for its workers, by its annotation."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from argosy.dialects.et.max_wait_time import max_wait_seconds, resumed_patch, suspending_patch
from argosy.kinds.trainingjob import JOB_STATUS_ANNOTATION, MAX_WAIT_TIME_ANNOTATION, SUSPEND_ANNOTATION
from tests.support.et_simulator import EtSimulator, running_job, worker
from tests.support.workloads import NOW

VALUES: dict[str, tuple[str, float | None]] = {
    "seconds: the seconds": ("90", 90.0),
    "duration: its seconds": ("1h30m", 5400.0),
    "zero: at once": ("0", 0.0),
    "no annotation: no limit": ("", None),
    "negative number: no limit": ("-5", None),
    "word: no limit": ("soon", None),
    "digits of another script: no limit": ("٣", None),
}


@pytest.mark.parametrize(("text", "want"), VALUES.values(), ids=VALUES)
def test_seconds_of_the_annotation(text: str, want: float | None) -> None:
    assert max_wait_seconds(text) == want


def waiting(limit: str = "30") -> EtSimulator:
    job = EtSimulator(annotations={MAX_WAIT_TIME_ANNOTATION: limit})
    job.cluster.pending = {worker(0)}
    job.run(3)
    return job


def test_the_patch_is_due_so_long_after_the_job_was_created() -> None:
    patch = suspending_patch(waiting().job)
    assert patch is not None
    assert patch.at == NOW + timedelta(seconds=30)
    annotations = {SUSPEND_ANNOTATION: "true", JOB_STATUS_ANNOTATION: "timeout"}
    assert patch.patch == {"metadata": {"annotations": annotations}}


def test_a_limit_beyond_the_calendar_is_never_reached() -> None:
    assert suspending_patch(waiting("9" * 300).job) is None


def test_a_job_that_does_not_wait_is_not_suspended() -> None:
    job = running_job(annotations={MAX_WAIT_TIME_ANNOTATION: "1"})
    assert suspending_patch(job.job) is None


def test_a_job_that_is_suspended_or_deleted_gets_no_patch() -> None:
    job = waiting()
    job.annotate(SUSPEND_ANNOTATION, "true")
    assert suspending_patch(job.job) is None
    deleted = waiting().job
    meta = replace(deleted.metadata, deletion_timestamp=NOW)
    assert suspending_patch(replace(deleted, metadata=meta)) is None


def test_the_reason_of_a_suspension_goes_with_it() -> None:
    job = waiting()
    job.annotate(JOB_STATUS_ANNOTATION, "timeout")
    assert resumed_patch(job.job) == {"metadata": {"annotations": {JOB_STATUS_ANNOTATION: None}}}
    job.annotate(SUSPEND_ANNOTATION, "true")
    assert resumed_patch(job.job) is None
