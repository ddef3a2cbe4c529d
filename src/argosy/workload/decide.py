"""Decides what to do next for a job, by applying all policies in order.

`decide` is a pure function. The Record in its plan is written before any action is executed, so that a later
reconcile knows why an action was taken.
"""

from datetime import datetime

from msgspec.structs import replace

from argosy.plan.actions import EmitEvent
from argosy.workload import (
    children,
    completion,
    elastic,
    elastic_capacity,
    gang,
    hosts,
    invalid,
    limits,
    messages,
    notice_response,
    phases,
    pods,
    process_saves,
    propagation,
    reasons,
    recoveries,
    saves,
    scaling,
    suspend,
    wait_reasons,
)
from argosy.workload.model import Phase, Problems, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.plan import Plan
from argosy.workload.record import HistoryEntry, Record, WaitReason
from argosy.workload.record_sync import sync_record, with_shown_operations_kept
from argosy.workload.restarts.policy import RestartPlan, plan_restarts, restart_below_min
from argosy.workload.transitions import find_transitions
from argosy.workload.usage import with_usage

_WARNING_REASONS = frozenset(
    {
        Phase.FAILED.value,
        reasons.RESTARTING,
        reasons.INVALID_SPEC,
        reasons.HOST_LIST_NOT_WRITTEN,
        reasons.DISRUPTION_NOTICE,
        reasons.CHECKPOINT_TIMEOUT,
        reasons.CHECKPOINT_FAILED,
        reasons.CHECKPOINT_INVALID,
    }
)


def decide(workload: Workload, before: Record | None, observed: Observed, now: datetime) -> Plan:
    """Return the Record to write and the actions to execute."""
    record = sync_record(workload, before, observed, now)
    if workload.deleting:
        return Plan(before or record)  # the garbage collector deletes everything that belongs to the job
    record = propagation.with_propagated_labels(workload, record)
    if record.finished_at:
        plan = completion.clean_up(workload, record, observed, now)
    else:
        plan = _decide_active(workload, before, record, observed, now)
        plan = process_saves.with_backups(workload, record, plan, observed, now)
        after = _without_interrupted(workload, record, plan.record, now)
        after = recoveries.track_recoveries(workload, record, after, observed, now)
        plan = replace(plan, record=with_shown_operations_kept(before, after))
        plan = plan.with_requeue_at(recoveries.recheck_at(after, now))
        plan = _with_history_events(before, plan)
        plan = replace(plan, transitions=find_transitions(workload, before, plan.record, observed))
        accounted = with_usage(workload, before, plan.record, observed.priced_nodes, now)
        plan = replace(plan, record=accounted)
    return plan.with_actions(propagation.sync_metadata(workload, observed, plan.actions))


def _decide_active(
    workload: Workload, before: Record | None, synced: Record, observed: Observed, now: datetime
) -> Plan:
    """Return the plan of a job that has not finished."""
    # The API server rejects what the spec asks for: report it.
    if message := invalid.rejection_message(workload, before or synced, observed):
        return invalid.plan(workload, synced, reasons.SPEC_REJECTED, message, observed, now)
    record = saves.record_acks(workload, synced, observed, now)
    record = process_saves.with_failed_backup(record, observed, now)
    # Suspended: delete all pods and wait.
    if suspend.should_suspend(workload, record):
        return suspend.plan(workload, record, observed, now)
    # Some APIs show the phase Pending before anything is created.
    if workload.semantics.report_pending_first and _should_report_pending(workload, before, record, observed):
        return Plan(replace(record, waiting=None), requeue_at=now)
    # A preempted gang waits until its scheduler has evicted all of it.
    record = gang.choose_scheduler(workload, suspend.resume(record, now), observed)
    if held := gang.hold_after_preemption(workload, record, observed, now):
        return _hold(workload, held, observed, now)
    # Follow changed sizes, answer notices, record lost pods as restarts, derive the phases of roles, and fit
    # elastic roles to the capacity.
    record = elastic.resize(workload, record, observed, now)
    notices = notice_response.respond(workload, record, observed, now)
    restarts = plan_restarts(workload, notices.record, observed, now)
    record = phases.with_role_phases(workload, restarts.record, observed, now)
    capacity = elastic_capacity.fit_to_capacity(workload, record, observed, now)
    record = elastic.track_below_min(workload, capacity.record, observed, now)
    # Finish the job, if this was its end.
    limit = limits.check_limits(workload, record, observed, now)
    result = _first_result(phases.terminal_result(workload, record), restarts.result, limit.result)
    if result is limit.result and (again := _restart_below_min(workload, record, limit.result, now)):
        result, restarts, record = None, again, again.record
    if result is not None:
        succeeded = result.phase is Phase.SUCCEEDED
        # A program may exit with 0 because a pod was deleted that the cache still shows: ask first.
        if succeeded and (confirmations := pods.confirmations_before_success(workload, record, observed)):
            return Plan(record, confirmations)
        return completion.finish(workload, record, observed, result, now)
    # Add and remove replicas as requested, and update the host list. Replicas of a new attempt are others.
    record = _without_interrupted(workload, synced, record, now)
    scale = scaling.advance(workload, record, observed, now)
    host_list = hosts.update_host_list(workload, scale.record, observed, now)
    # Order a checkpoint, if one is due.
    orders = saves.plan_orders(workload, host_list.record, observed, now)
    # Otherwise create and delete pods to match the Record.
    plan = _converge(workload, orders.record, observed, now)
    plan = plan.with_actions((*host_list.calls, *scale.calls))
    plan = plan.with_requeue_at(limit.next_at, scale.requeue_at, host_list.requeue_at)
    plan = plan.with_requeue_at(notices.requeue_at, capacity.requeue_at, orders.requeue_at)
    return replace(plan, restart_causes=(*notices.causes, *restarts.causes))


def _restart_below_min(
    workload: Workload, record: Record, result: PhaseResult | None, now: datetime
) -> RestartPlan | None:
    """Return the restart of a job that would fail because it has too few pods; None if it fails."""
    if result is None or result.reason != reasons.BELOW_MIN_REPLICAS:
        return None
    return restart_below_min(workload, record, now)


def _without_interrupted(workload: Workload, before: Record, after: Record, now: datetime) -> Record:
    """Return the record with the scale operation failed that the end of the attempt has interrupted."""
    if after.finished_at:
        return scaling.cancel(workload, after, now, messages.JOB_FINISHED_WHILE_SCALING)
    if workload.suspended:
        return scaling.cancel(workload, after, now, messages.JOB_SUSPENDED_WHILE_SCALING)
    if after.attempt != before.attempt:
        return scaling.cancel(workload, after, now, messages.JOB_RESTARTED_WHILE_SCALING)
    return after


def _first_result(
    roles: PhaseResult | None, restarts: PhaseResult | None, limit: PhaseResult | None
) -> PhaseResult | None:
    """Return how the job ended: success wins, then exhausted restarts, exceeded limits, failed roles."""
    if roles is not None and roles.phase is Phase.SUCCEEDED:
        return roles
    return restarts or limit or roles


def plan_invalid(before: Record | None, problems: Problems, generation: int, now: datetime) -> Plan:
    """Return the plan for a job with an invalid spec: report it, and keep everything until an edit."""
    record = before or Record(phase_since=now)
    if record.finished_at:
        return Plan(record)
    message = str(problems)
    record = replace(record, generation=max(record.generation, generation))
    if record.waiting is None or record.waiting.message != message:
        record = replace(record, waiting=WaitReason(reasons.INVALID_SPEC, message, now)).with_history(
            now, reasons.INVALID_SPEC, message
        )
    return _with_history_events(before, Plan(record))


def plan_invalid_cleanup(
    minimal: Workload, before: Record | None, problems: Problems, observed: Observed, now: datetime
) -> Plan:
    """Return the plan for a job with an invalid spec, for an API that deletes the children of such a job.

    `minimal` has the identity, the cleanup policy and the TTLs of the job, and no roles.
    """
    record = propagation.with_propagated_labels(minimal, before or Record(phase_since=now))
    return _with_history_events(
        before, invalid.plan(minimal, record, reasons.INVALID_SPEC, str(problems), observed, now)
    )


def _should_report_pending(
    workload: Workload, before: Record | None, record: Record, observed: Observed
) -> bool:
    """Return True if the job has no status yet, or an edit has just made its spec valid.

    Not if the edit left it without restarts: then it fails at once.
    """
    if before is None:
        return not observed.pods
    limit = workload.limits.restarts
    invalid_reasons = (reasons.INVALID_SPEC, reasons.SPEC_REJECTED)
    was_invalid = before.waiting is not None and before.waiting.reason in invalid_reasons
    return was_invalid and (limit is None or record.restarts <= limit)


def _hold(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    """Return the plan of a job that is held after a preemption: only exceeded limits have an effect."""
    limit = limits.check_limits(workload, record, observed, now)
    if limit.result:
        return completion.finish(workload, record, observed, limit.result, now)
    return Plan(record).with_requeue_at(limit.next_at, gang.hold_until(observed))


def _converge(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    """Return the plan of a job that has not finished: create and delete pods to match the record."""
    admission = gang.admission(workload, record, observed)
    creates_no_pods = workload.rules.creates_no_pods
    creation = (
        pods.plan_creation(workload, record, observed, now)
        if admission.allowed and not creates_no_pods
        else pods.PodCreation()
    )
    if record.attempt_started_at is None and (creation.create or (creates_no_pods and admission.allowed)):
        record = phases.with_attempt_started(workload, record, now)
    record = gang.mark_scheduled(workload, _with_phase(workload, record, observed, now), observed, now)
    record = saves.without_stops_of(record, creation.create)
    record = wait_reasons.with_wait_reason(workload, record, observed, admission, creation, now)
    forced, recheck_at = pods.forced_deletions(workload.limits, observed, now)
    actions = (
        *(() if admission.action is None else (admission.action,)),
        *children.sync_children(workload, record, observed),
        *children.ssh_secret_if_needed(workload, creation.create),
        *children.secrets_if_needed(workload, creation.create),
        *pods.stale_deletions(workload, record, observed, now),
        *forced,
        *creation.confirm,
        *creation.create,
    )
    rbac_at = children.rbac_requeue_at(workload, bool(creation.create), now)
    return Plan(record, actions).with_requeue_at(creation.retry_at, recheck_at, rbac_at)


def _with_phase(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    phase = phases.job_phase(workload, record, observed)
    if phase is record.phase:
        return record
    record = replace(record, phase=phase, phase_since=now)
    if phase is not Phase.RUNNING:
        return record
    record = replace(record, first_running_at=record.first_running_at or now, reason="", message="")
    if record.history and record.history[-1].reason == Phase.RUNNING:
        return record  # Running again after a replacement: no new entry
    return record.with_history(now, Phase.RUNNING.value, f"attempt {record.attempt} is running")


def _with_history_events(before: Record | None, plan: Plan) -> Plan:
    """Return the plan with one event for every new entry of the history."""
    old = set(before.history) if before else set()
    new = [entry for entry in plan.record.history if entry not in old]
    saved = saves.completed_event(before, plan.record)
    return replace(plan, events=(*saved, *map(_history_event, new)))


def _history_event(entry: HistoryEntry) -> EmitEvent:
    is_warning = entry.reason in _WARNING_REASONS
    return EmitEvent("Warning" if is_warning else "Normal", entry.reason, entry.message)
