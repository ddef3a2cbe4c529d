"""Decides what a Job does next: pods to create and to delete, and the status to write. Pure.

The tracking finalizer makes counts exact across crashes, as in Kubernetes: a terminated pod is first recorded
by uid in `uncountedTerminatedPods`, then loses its finalizer, and only then is added to `succeeded` or
`failed`. Whatever is interrupted, no pod is counted twice and none is missed. A Job that is about to end
first gets the condition SuccessCriteriaMet or FailureTarget, and ends when its last pod is gone.
"""

import copy
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct, field

from argosy.local.controllers.api_types import Job, JobStatus, Pod, StatusCondition
from argosy.local.controllers.job.backoff import JobBackoff, backoff_remaining
from argosy.local.controllers.job.indexes import completion_index, format_indexes, parse_indexes
from argosy.local.controllers.job.pod_failure_policy import evaluate_failure, has_failed
from argosy.local.controllers.podutil import is_ready

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
MAX_PODS_PER_PASS = 500
"""How many pods are created, deleted or counted in one reconcile."""


class Plan(Struct):
    status: JobStatus
    create: list[int | None] = field(default_factory=list)
    """One entry per pod to create: its index, or None for a Job without indexes."""
    drop: list[Pod] = field(default_factory=list)
    """Surplus pods: deleted without their finalizer, not counted."""
    stop: list[Pod] = field(default_factory=list)
    """Active pods of a Job that is ending: deleted and counted."""
    release: list[Pod] = field(default_factory=list)
    """Pods whose finalizer is removed once the status is written."""
    events: list[tuple[str, str, str]] = field(default_factory=list)
    requeue_after: float | None = None
    expired: bool = False
    """The Job is finished and its time to live is over: delete it."""


def decide(job: Job, pods: Sequence[Pod], now: datetime, backoff: JobBackoff = JobBackoff()) -> Plan:
    tracked = [pod for pod in pods if TRACKING_FINALIZER in pod.metadata.finalizers]
    if finished_condition(job) is not None or job.metadata.deletion_timestamp is not None:
        return _decide_finished(job, tracked, now)
    plan = Plan(status=copy.deepcopy(job.status))
    _count_released(plan.status, {pod.metadata.uid for pod in tracked}, job)
    counts = _count_pods(job, plan.status, pods, tracked)
    if plan.status.start_time is None and not job.spec.suspend:
        plan.status.start_time = now
    ending = _ending_condition(job, plan, pods, counts, now)
    if ending is not None:
        plan.stop = counts.active
    else:
        _manage_pods(job, plan, pods, counts, now, backoff)
        if _is_complete(job, plan, counts):
            ending = _condition(
                "SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods", now
            )
        else:
            _record_suspension(job, plan, now)
    removed = {pod.metadata.uid for pod in (*plan.drop, *plan.stop)}
    staying = [pod for pod in counts.active if pod.metadata.uid not in removed]
    plan.status.active = len(staying) + len(plan.create)
    plan.status.ready = sum(is_ready(pod) for pod in staying)
    plan.status.terminating = len(counts.terminating) + len(removed)
    _record_terminated(job, plan, tracked, ending)
    if ending is not None:
        _finish(plan, ending, now, pending=len(tracked))
    return plan


def finished_condition(job: Job) -> StatusCondition | None:
    return next(
        (c for c in job.status.conditions if c.type in ("Complete", "Failed") and c.status == "True"), None
    )


class _PodCounts(Struct):
    active: list[Pod]
    terminating: list[Pod]
    succeeded: int
    failed: int
    completed: set[int]


def _decide_finished(job: Job, tracked: list[Pod], now: datetime) -> Plan:
    plan = Plan(status=job.status, release=tracked)
    end = finished_condition(job)
    ttl = job.spec.ttl_seconds_after_finished
    if end is None or ttl is None or job.metadata.deletion_timestamp is not None:
        return plan
    left = ((end.last_transition_time or now) + timedelta(seconds=ttl) - now).total_seconds()
    plan.expired, plan.requeue_after = left <= 0, max(left, 0.0)
    return plan


def _count_released(status: JobStatus, tracked: set[str], job: Job) -> None:
    """Add recorded pods that have lost their finalizer to the counts."""
    uncounted = status.uncounted_terminated_pods
    if not is_indexed(job):
        status.succeeded += sum(uid not in tracked for uid in uncounted.succeeded)
    status.failed += sum(uid not in tracked for uid in uncounted.failed)
    uncounted.succeeded = [uid for uid in uncounted.succeeded if uid in tracked]
    uncounted.failed = [uid for uid in uncounted.failed if uid in tracked]


def is_indexed(job: Job) -> bool:
    return job.spec.completion_mode == "Indexed"


def _count_pods(job: Job, status: JobStatus, pods: Sequence[Pod], tracked: list[Pod]) -> _PodCounts:
    uncounted = status.uncounted_terminated_pods
    uncounted_uids = {*uncounted.succeeded, *uncounted.failed}
    fresh = [pod for pod in tracked if pod.metadata.uid not in uncounted_uids]
    completed = parse_indexes(status.completed_indexes)
    done = [pod for pod in fresh if pod.status.phase == "Succeeded"]
    if is_indexed(job):
        limit = job.spec.completions or 0
        completed |= {index for index in map(completion_index, done) if index is not None}
        completed = {index for index in completed if index < limit}
    succeeded = status.succeeded + len(uncounted.succeeded) + len(done)
    broken = [pod for pod in fresh if has_failed(job, pod) and evaluate_failure(job, pod).counts]
    active = [pod for pod in pods if not pod.finished and pod.metadata.deletion_timestamp is None]
    return _PodCounts(
        active=active,
        terminating=[pod for pod in pods if not pod.finished and pod.metadata.deletion_timestamp is not None],
        succeeded=len(completed) if is_indexed(job) else succeeded,
        failed=status.failed + len(uncounted.failed) + len(broken),
        completed=completed,
    )


def _ending_condition(
    job: Job, plan: Plan, pods: Sequence[Pod], counts: _PodCounts, now: datetime
) -> StatusCondition | None:
    """Return the condition with which the Job ends: one set before, else the first failure."""
    for condition in job.status.conditions:
        if condition.type in ("SuccessCriteriaMet", "FailureTarget") and condition.status == "True":
            return condition
    for pod in pods:
        if message := evaluate_failure(job, pod).fails_job:
            return _condition("FailureTarget", "PodFailurePolicy", message, now)
    if counts.failed > job.spec.backoff_limit or _exceeds_restart_limit(job, pods):
        text = "Job has reached the specified backoff limit"
        return _condition("FailureTarget", "BackoffLimitExceeded", text, now)
    deadline, started = job.spec.active_deadline_seconds, plan.status.start_time
    if deadline is not None and started is not None and not job.spec.suspend:
        left = (started + timedelta(seconds=deadline) - now).total_seconds()
        if left <= 0:
            text = "Job was active longer than specified deadline"
            return _condition("FailureTarget", "DeadlineExceeded", text, now)
        plan.requeue_after = left
    return None


def _exceeds_restart_limit(job: Job, pods: Sequence[Pod]) -> bool:
    spec = job.spec.template.get("spec")
    if not isinstance(spec, dict) or spec.get("restartPolicy") != "OnFailure":
        return False
    restarts = sum(
        status.restart_count
        for pod in pods
        if pod.status.phase in ("Pending", "Running")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts >= max(job.spec.backoff_limit, 1)


def _manage_pods(
    job: Job, plan: Plan, pods: Sequence[Pod], counts: _PodCounts, now: datetime, backoff: JobBackoff
) -> None:
    """Create or delete pods until the desired number is active."""
    if job.spec.suspend:
        plan.drop = counts.active
        return
    active = sorted(counts.active, key=_deletion_rank)
    wanted = _desired_active(job, counts)
    surplus = _surplus_index_pods(job, active, counts)
    twice = {pod.metadata.uid for pod in surplus}
    once = [pod for pod in active if pod.metadata.uid not in twice]
    surplus += once[: max(len(once) - wanted, 0)]
    if surplus:
        plan.drop = surplus[:MAX_PODS_PER_PASS]
        return
    waiting = len(counts.terminating) if job.spec.pod_replacement_policy == "Failed" else 0
    lacking = min(wanted - waiting - len(active), MAX_PODS_PER_PASS)
    if lacking <= 0:
        return
    seconds = backoff_remaining(job, pods, now, backoff)
    if seconds > 0:
        plan.requeue_after = min(seconds, plan.requeue_after or seconds)
    elif is_indexed(job):
        plan.create.extend(_free_indexes(job, active, counts, lacking))
    else:
        plan.create = [None] * lacking


def _desired_active(job: Job, counts: _PodCounts) -> int:
    if job.spec.completions is None:
        return len(counts.active) if counts.succeeded else job.spec.parallelism
    return max(min(job.spec.completions - counts.succeeded, job.spec.parallelism), 0)


def _deletion_rank(pod: Pod) -> tuple[bool, bool, str]:
    """Sort the pods to delete first: unscheduled, not ready, then by name."""
    return (bool(pod.spec.node_name), is_ready(pod), pod.metadata.name)


def _surplus_index_pods(job: Job, active: list[Pod], counts: _PodCounts) -> list[Pod]:
    """Return pods of an index that is completed, out of range, or has another pod."""
    if not is_indexed(job):
        return []
    active_indexes: set[int] = set()
    surplus = []
    for pod in reversed(active):
        index = completion_index(pod)
        done = index in active_indexes or index in counts.completed
        if index is None or index >= (job.spec.completions or 0) or done:
            surplus.append(pod)
        else:
            active_indexes.add(index)
    return surplus


def _free_indexes(job: Job, active: list[Pod], counts: _PodCounts, count: int) -> list[int]:
    held = {completion_index(pod) for pod in active}
    if job.spec.pod_replacement_policy == "Failed":
        held |= {completion_index(pod) for pod in counts.terminating}
    free = (i for i in range(job.spec.completions or 0) if i not in counts.completed and i not in held)
    return [index for index, _ in zip(free, range(count), strict=False)]


def _is_complete(job: Job, plan: Plan, counts: _PodCounts) -> bool:
    remaining = len(counts.active) - len(plan.drop) + len(plan.create)
    if job.spec.completions is None:
        return counts.succeeded > 0 and remaining == 0
    return counts.succeeded >= job.spec.completions and remaining == 0


def _record_suspension(job: Job, plan: Plan, now: datetime) -> None:
    suspended = next((c for c in plan.status.conditions if c.type == "Suspended"), None)
    if job.spec.suspend and (suspended is None or suspended.status != "True"):
        fresh = _condition("Suspended", "JobSuspended", "Job suspended", now)
        plan.status.start_time = None
        plan.events.append(("Normal", "Suspended", "Job suspended"))
    elif not job.spec.suspend and suspended is not None and suspended.status == "True":
        fresh = _condition("Suspended", "JobResumed", "Job resumed", now)
        fresh.status = "False"
        plan.status.start_time = now
        plan.events.append(("Normal", "Resumed", "Job resumed"))
    else:
        return
    plan.status.conditions = [c for c in plan.status.conditions if c.type != "Suspended"] + [fresh]


def _record_terminated(job: Job, plan: Plan, tracked: list[Pod], ending: StatusCondition | None) -> None:
    """Record terminated pods, so that their finalizers can be removed; pods to drop are not counted."""
    dropped = {pod.metadata.uid for pod in plan.drop}
    uncounted = plan.status.uncounted_terminated_pods
    completed = parse_indexes(plan.status.completed_indexes)
    failing = ending is not None and ending.type == "FailureTarget"
    succeeded, broken = set(uncounted.succeeded), set(uncounted.failed)
    for pod in tracked:
        uid = pod.metadata.uid
        if uid in succeeded or uid in broken:
            plan.release.append(pod)  # noted before, and interrupted then
            continue
        if uid in dropped or len(uncounted.succeeded) + len(uncounted.failed) >= MAX_PODS_PER_PASS:
            continue
        index = completion_index(pod)
        in_range = not is_indexed(job) or (index is not None and index < (job.spec.completions or 0))
        over = has_failed(job, pod)
        if not (over or ending is not None or pod.status.phase == "Succeeded"):
            continue
        plan.release.append(pod)
        if pod.status.phase == "Succeeded":
            if is_indexed(job) and index is not None and in_range:
                completed.add(index)
            elif not is_indexed(job):
                uncounted.succeeded.append(uid)
        elif (over or failing) and in_range and evaluate_failure(job, pod).counts:
            uncounted.failed.append(uid)
    if is_indexed(job):
        completed = {index for index in completed if index < (job.spec.completions or 0)}
        plan.status.completed_indexes = format_indexes(completed)
        plan.status.succeeded = len(completed)


def _finish(plan: Plan, ending: StatusCondition, now: datetime, *, pending: int) -> None:
    status = plan.status
    if all(c.type != ending.type for c in status.conditions):
        status.conditions.append(ending)
    uncounted = status.uncounted_terminated_pods
    if pending or status.terminating or uncounted.succeeded or uncounted.failed:
        return
    if ending.type == "SuccessCriteriaMet":
        status.conditions.append(_condition("Complete", ending.reason, ending.message, now))
        status.completion_time = now
        plan.events.append(("Normal", "Completed", "Job completed"))
    else:
        status.conditions.append(_condition("Failed", ending.reason, ending.message, now))
        plan.events.append(("Warning", ending.reason, ending.message))


def _condition(type: str, reason: str, message: str, now: datetime) -> StatusCondition:
    return StatusCondition(type, "True", reason, message, last_probe_time=now, last_transition_time=now)
