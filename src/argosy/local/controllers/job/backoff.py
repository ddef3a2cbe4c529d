"""Computes the delay before a Job's failed pod is replaced: doubling with each failure, up to a maximum."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from argosy.local.controllers.api_types import Job, Pod
from argosy.local.controllers.job.pod_failure_policy import evaluate_failure, has_failed


class JobBackoff(Struct, frozen=True):
    """Delays after failures in seconds: doubling from the first, up to a maximum."""

    initial: float = 10.0
    maximum: float = 600.0


def backoff_remaining(job: Job, pods: Sequence[Pod], now: datetime, backoff: JobBackoff) -> float:
    """Return the seconds until the Job's next pod, by its failures since the last success."""
    latest = max((_finish_time(pod, now) for pod in pods if pod.status.phase == "Succeeded"), default=None)
    failures = [
        _finish_time(pod, now) for pod in pods if has_failed(job, pod) and evaluate_failure(job, pod).counts
    ]
    failures = [when for when in failures if latest is None or when > latest]
    if not failures:
        return 0.0
    delay = min(backoff.initial * 2.0 ** min(len(failures) - 1, 30), backoff.maximum)
    return delay - (now - max(failures)).total_seconds()


def _finish_time(pod: Pod, now: datetime) -> datetime:
    """Return when the pod ended: when its last container did, else its deletion, else now."""
    ends = [
        status.state.terminated.finished_at
        for status in pod.status.container_statuses
        if status.state.terminated is not None and status.state.terminated.finished_at is not None
    ]
    if ends:
        return max(ends)
    meta = pod.metadata
    if meta.deletion_timestamp is not None:
        return meta.deletion_timestamp - timedelta(seconds=meta.deletion_grace_period_seconds or 0)
    return meta.creation_timestamp or now
