"""Suspends a job whose workers do not all run in the time that an annotation allows [5.2].

The suspension is an annotation too, as if a user had set it, with a second one that says why. The job's
status follows from the first. A job that is resumed loses the second.
"""

from datetime import datetime

from argosy.dialects.base import TimedPatch
from argosy.dialects.et import conditions as listed
from argosy.kinds.quantity import parse_duration
from argosy.kinds.trainingjob import (
    JOB_STATUS_ANNOTATION,
    MAX_WAIT_TIME_ANNOTATION,
    SUSPEND_ANNOTATION,
    TrainingJob,
)
from argosy.workload.clock_skew import deadline
from argosy.workload.model import Json

TIMEOUT = "timeout"
"""The value of JOB_STATUS_ANNOTATION, which arena shows as MAX_WAIT_TIME_EXCEEDED."""


def resumed_patch(job: TrainingJob) -> Json | None:
    """Return the patch of a job that waited for too long and is not suspended any more."""
    annotations = job.metadata.annotations
    if annotations.get(JOB_STATUS_ANNOTATION) != TIMEOUT or annotations.get(SUSPEND_ANNOTATION) == "true":
        return None
    return _patch({JOB_STATUS_ANNOTATION: None})


def suspending_patch(job: TrainingJob) -> TimedPatch | None:
    """Return the patch that suspends a job whose workers are not ready, and when it is due."""
    meta, ends_at = job.metadata, _wait_ends_at(job)
    is_suspended = meta.annotations.get(SUSPEND_ANNOTATION) == "true"
    if ends_at is None or is_suspended or meta.deletion_timestamp is not None:
        return None
    return TimedPatch(ends_at, _patch({SUSPEND_ANNOTATION: "true", JOB_STATUS_ANNOTATION: TIMEOUT}))


def max_wait_seconds(text: str) -> float | None:
    """Return the value of the annotation, seconds or a duration; None if it is neither."""
    try:
        return float(int(text)) if text.isascii() and text.isdecimal() else parse_duration(text)
    except (ValueError, OverflowError):
        return None


def _wait_ends_at(job: TrainingJob) -> datetime | None:
    current = job.status.conditions
    created = next((item for item in current if item.type == listed.CREATED and item.status == "True"), None)
    seconds = max_wait_seconds(job.metadata.annotations.get(MAX_WAIT_TIME_ANNOTATION, ""))
    if created is None or created.last_transition_time is None or seconds is None:
        return None
    if any(listed.is_true(current, kind) for kind in _NOT_WAITING):
        return None
    return deadline(created.last_transition_time, seconds)


_NOT_WAITING = (listed.WORKERS_READY, listed.SUSPENDED, listed.FAILED, listed.SUCCEEDED)


def _patch(annotations: dict[str, str | None]) -> Json:
    return {"metadata": {"annotations": annotations}}
