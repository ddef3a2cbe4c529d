"""Schedules the pods of a gang together or not at all: chooses the scheduler, admits, handles preemption.

The gang scheduler (`workload.gang_schedulers`) is chosen when the job starts and stays the same. The state of
the pod group matters only until the pods of an attempt are created; after that a lost pod is replaced like
that of any other job.
"""

from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds import labels
from argosy.plan.actions import Apply, Remove
from argosy.plan.children import Child
from argosy.plan.contract import Inputs
from argosy.plan.diff import changes, remove
from argosy.workload import capacity, messages, reasons
from argosy.workload.clock_skew import deadline
from argosy.workload.current_pods import all_current_pods
from argosy.workload.gang_schedulers.base import DEFAULT_QUEUE, GangScheduler, Group
from argosy.workload.gang_schedulers.registry import BUILTIN, GANG_SCHEDULERS, NONE, choose
from argosy.workload.gang_schedulers.volcano import VOLCANO
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.record import Record, WaitReason

PREEMPTION_HOLD = timedelta(seconds=60)
"""How long a job is held after one of its pods was preempted, since the others may follow."""


class Admission(Struct, frozen=True):
    """Whether pods may be created, or what they wait for; and the change of the pod group that is due."""

    allowed: bool = True
    reason: str = ""
    message: str = ""
    action: Apply | Remove | None = None


def choose_scheduler(workload: Workload, record: Record, observed: Observed) -> Record:
    """Return the record with the gang scheduler of the job; an existing pod group decides.

    The choice is final, unless that scheduler is uninstalled before the job has started.
    """
    is_final = record.gang_scheduler and (
        record.attempt_started_at or record.gang_scheduler in observed.available_gang_schedulers
    )
    if workload.gang is None or is_final:
        return record
    name = (
        observed.group.scheduler
        if observed.group
        else choose(observed.gang_scheduler_setting, observed.available_gang_schedulers)
    )
    return replace(record, gang_scheduler=name)


def admission(workload: Workload, record: Record, observed: Observed) -> Admission:
    """Return whether the gang is admitted; one whose pods were created once stays admitted."""
    gang = workload.gang
    if gang is None:
        return Admission()
    started = record.attempt_started_at is not None
    backend = GANG_SCHEDULERS.get(record.gang_scheduler)
    if backend is None or backend.name not in observed.available_gang_schedulers:
        return Admission(
            allowed=started,
            reason=reasons.GANG_SCHEDULER_MISSING,
            message=_missing_scheduler(observed.gang_scheduler_setting, backend),
        )
    action = _sync_group(workload, backend.group, observed, started) if backend.group else None
    if started:
        return Admission(action=action)
    if backend is BUILTIN and not (observed.capacity and capacity.fits(workload, observed.capacity)):
        message = messages.waiting_for_capacity(gang.min_available)
        return Admission(allowed=False, reason=reasons.QUEUED, message=message)
    if backend.group and backend.waits_for_admission and (observed.group is None or observed.group.queued):
        message = messages.waiting_for_admission(gang.queue or DEFAULT_QUEUE)
        return Admission(allowed=False, reason=reasons.QUEUED, message=message, action=action)
    if isinstance(action, Remove):
        message = messages.WAITING_FOR_POD_GROUP
        return Admission(allowed=False, reason=reasons.QUEUED, message=message, action=action)
    return Admission(action=action)


def mark_scheduled(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    """Return the record with the time at which the gang was first observed as scheduled."""
    backend = GANG_SCHEDULERS.get(record.gang_scheduler)
    if (
        workload.gang is None
        or backend is None
        or record.gang_scheduled_at
        or record.attempt_started_at is None
    ):
        return record
    if backend.group:
        scheduled = observed.group is not None and observed.group.scheduled
    else:
        on_nodes = sum(1 for pod in all_current_pods(record, observed) if pod.node)
        scheduled = backend is BUILTIN or on_nodes >= workload.gang.min_available
    return replace(record, gang_scheduled_at=now) if scheduled else record


def hold_after_preemption(
    workload: Workload, record: Record, observed: Observed, now: datetime
) -> Record | None:
    """Return the record of a job that is held after the preemption of a pod; None if it is not held."""
    if workload.gang is None or observed.group is None or observed.group.evicted:
        return None
    preempted = [
        pod
        for pod in all_current_pods(record, observed)
        if pod.preempted_at and now < pod.preempted_at + PREEMPTION_HOLD
    ]
    if not preempted:
        return None
    message = messages.held_after_preemption(preempted[0].name)
    since = record.waiting.since if record.waiting and record.waiting.reason == reasons.PREEMPTED else now
    return replace(record, waiting=WaitReason(reasons.PREEMPTED, message, since))


def hold_until(observed: Observed) -> datetime | None:
    """Return when the hold after a preemption ends."""
    return max(
        (pod.preempted_at + PREEMPTION_HOLD for pod in observed.pods if pod.preempted_at), default=None
    )


def delete_group(observed: Observed) -> list[Remove]:
    """Delete the pod group, of whichever scheduler."""
    kinds = tuple(scheduler.group.kind for scheduler in GANG_SCHEDULERS.values() if scheduler.group)
    return [remove(child) for child in observed.children if isinstance(child, kinds)]


def gang_limit(
    workload: Workload, record: Record, observed: Observed, now: datetime
) -> PhaseResult | datetime | None:
    """Return the failure of a job whose gang was evicted or not scheduled in time, or when its time is up."""
    gang = workload.gang
    if gang is None:
        return None
    if observed.group and observed.group.evicted:
        return PhaseResult(Phase.FAILED, reasons.PREEMPTED, messages.GANG_EVICTED)
    was_scheduled = (
        record.first_running_at
        or record.gang_scheduled_at
        or (observed.group is not None and observed.group.scheduled)
    )
    since = record.attempt_started_at or record.phase_since
    if gang.timeout is None or was_scheduled or since is None or record.phase is Phase.SUSPENDED:
        return None
    if (now - since).total_seconds() >= gang.timeout:
        message = messages.gang_timeout(gang.min_available, gang.timeout)
        return PhaseResult(Phase.FAILED, reasons.GANG_TIMEOUT, message)
    return deadline(since, gang.timeout)


def _missing_scheduler(setting: str, chosen: GangScheduler | None) -> str:
    """Return what to install: the gang scheduler of the job, or the configured one."""
    wanted = chosen or GANG_SCHEDULERS.get(setting, VOLCANO)
    if setting == NONE:
        return messages.GANG_SCHEDULING_DISABLED
    return messages.gang_scheduler_missing(wanted.required_crd, wanted.install_hint, BUILTIN.name)


def _sync_group(workload: Workload, group: Group, observed: Observed, started: bool) -> Apply | Remove | None:
    """Create or update the pod group; one that cannot be changed is deleted first, while it has no pods."""
    action = next(iter(changes([_group_child(workload, group)], Inputs(observed.children))), None)
    if isinstance(action, Apply) and action.uid and group.immutable:
        return None if started else Remove(group.kind, action.child.name, action.uid)
    return action if isinstance(action, Apply) else None


def _group_child(workload: Workload, group: Group) -> Child:
    """Return the pod group, with the annotations of the job.

    Propagated metadata is on it from the beginning, and kept up to date by `propagation`.
    """
    propagated = workload.propagated
    excluded = (labels.LAST_APPLIED, *propagated.keys)
    own = {key: text for key, text in workload.annotations.items() if key not in excluded}
    return Child(
        group.kind,
        workload.name,
        {"metadata": {"annotations": own}, "spec": group.spec(workload)},
        propagated={"annotations": propagated.annotations, "labels": propagated.labels},
    )
