"""Deletes pods and children of a finished job by policy, and the job itself after its time to live.

Terminal phases are final, so nothing is created here. Pods that still wait in an init container, and all
running pods of a job stopped by a limit, are deleted whatever the policy.
"""

from datetime import datetime

from argosy.plan.diff import remove
from argosy.workload.clock_skew import deadline
from argosy.workload.limits import STOP_REASONS
from argosy.workload.model import CleanupPolicy, Phase, Ttl, Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import Action, DeleteJob, DeletePod, Plan
from argosy.workload.pods import forced_deletions
from argosy.workload.record import Record


def plan(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    """The deletions that are due after the end, and when the next ones will be."""
    gone_at = _due(workload.limits.ttl, record)
    bare_at = _due(workload.limits.children_ttl, record)
    if gone_at and now >= gone_at:
        reason = f"its time to live after it {record.phase.lower()} is over"
        return Plan(record, (DeleteJob(reason),))
    everything = bool(bare_at and now >= bare_at)
    every_pod = everything or workload.cleanup is CleanupPolicy.ALL
    actions: list[Action] = [
        DeletePod(
            pod.name,
            pod.uid,
            reason="the job has ended",
            resource_version="" if every_pod else pod.resource_version,
        )
        for pod in observed.pods
        if not pod.terminating and (every_pod or _goes(pod, workload.cleanup, record))
    ]
    forced, look_again = forced_deletions(workload.limits, observed, now)
    actions += forced
    if every_pod:
        actions += [remove(child) for child in observed.children]
    times = (time for time in (gone_at, bare_at) if time and time > now)
    return Plan(record, tuple(actions)).with_requeue_at(*times, look_again)


def _goes(pod: ObservedPod, policy: CleanupPolicy, record: Record) -> bool:
    if pod.ended:
        return False
    return policy is CleanupPolicy.RUNNING or pod.waits_for_dependency or record.reason in STOP_REASONS


def _due(ttl: Ttl, record: Record) -> datetime | None:
    seconds = ttl.succeeded if record.phase is Phase.SUCCEEDED else ttl.failed
    if seconds is None or record.finished_at is None:
        return None
    return deadline(record.finished_at, seconds)
