"""Counts failures by index for Jobs with `backoffLimitPerIndex`: each index has its own retries and delays.

As in Kubernetes, an annotation on each pod carries the number of failures before it. The last failed pod of
an index therefore keeps its finalizer until its successor exists, or the count would be lost. An index that
has used its retries, or whose failure the policy makes final, has failed; the Job fails when the other
indexes are done.
"""

from collections.abc import Iterable
from datetime import datetime

from argosy.local.controllers.job.backoff import JobBackoff, backoff_after, finish_time
from argosy.local.controllers.job.indexes import completion_index, parse_indexes
from argosy.local.controllers.job.pod_failure_policy import evaluate_failure, has_failed
from argosy.local.controllers.kinds import Job, JobStatus, Pod

FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
IGNORED_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"


def failed_indexes(job: Job, status: JobStatus, fresh: Iterable[Pod]) -> set[int]:
    """Return the indexes that have failed: those in the status, and those of pods not yet counted."""
    limit, tries = job.spec.completions or 0, job.spec.backoff_limit_per_index
    if tries is None:
        return set()
    failed = parse_indexes(status.failed_indexes or "")
    for pod in fresh:
        index = completion_index(pod)
        if index is None or not has_failed(job, pod):
            continue
        verdict = evaluate_failure(job, pod)
        if verdict.fails_index or (verdict.counts and _annotated_count(pod, FAILURES_ANNOTATION) >= tries):
            failed.add(index)
    return {index for index in failed if index < limit}


def last_failed_pods(job: Job, tracked: Iterable[Pod], settled: set[int], now: datetime) -> dict[int, Pod]:
    """Return the last failed pod of each index that needs another; `settled` indexes do not."""
    last: dict[int, Pod] = {}
    if job.spec.backoff_limit_per_index is None:
        return last
    for pod in tracked:
        index = completion_index(pod)
        if (
            index is None
            or index >= (job.spec.completions or 0)
            or index in settled
            or not has_failed(job, pod)
        ):
            continue
        before = last.get(index)
        if before is None or (_total_failures(before), finish_time(before, now)) <= (
            _total_failures(pod),
            finish_time(pod, now),
        ):
            last[index] = pod
    return last


def index_backoff(before: Pod | None, now: datetime, backoff: JobBackoff) -> float:
    """Return the seconds until the next pod of an index may be created."""
    if before is None:
        return 0.0
    return max(backoff_after(_total_failures(before) + 1, finish_time(before, now), now, backoff), 0.0)


def successor_annotations(job: Job, before: Pod | None) -> dict[str, str]:
    """Return the annotations that carry an index's failure counts to its next pod."""
    if job.spec.backoff_limit_per_index is None:
        return {}
    failures = ignored = 0
    if before is not None:
        counts = evaluate_failure(job, before).counts
        failures = _annotated_count(before, FAILURES_ANNOTATION) + counts
        ignored = _annotated_count(before, IGNORED_ANNOTATION) + (not counts)
    return {FAILURES_ANNOTATION: str(failures)} | ({IGNORED_ANNOTATION: str(ignored)} if ignored else {})


def _total_failures(pod: Pod) -> int:
    return _annotated_count(pod, FAILURES_ANNOTATION) + _annotated_count(pod, IGNORED_ANNOTATION)


def _annotated_count(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    return int(text) if text.isdecimal() else 0
