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
    gang,
    invalid,
    limits,
    phases,
    pods,
    propagation,
    reasons,
    suspend,
    wait_reasons,
)
from argosy.workload.model import Phase, Problems, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record, WaitReason
from argosy.workload.record_sync import sync_record
from argosy.workload.restarts.policy import plan_restarts
from argosy.workload.transitions import find_transitions

_WARNINGS = frozenset({Phase.FAILED.value, reasons.RESTARTING, reasons.INVALID_SPEC})


def decide(workload: Workload, before: Record | None, observed: Observed, now: datetime) -> Plan:
    """Return the Record to write and the actions to execute."""
    record = sync_record(workload, before, observed, now)
    if workload.deleting:
        return Plan(before or record)
    record = propagation.with_propagated_labels(workload, record)
    if record.finished_at:
        plan = completion.clean_up(workload, record, observed, now)
    else:
        plan = _with_history_events(before, _decide_active(workload, before, record, observed, now))
        plan = replace(plan, transitions=find_transitions(workload, before, observed))
    return plan.with_actions(propagation.sync_metadata(workload, observed, plan.actions))


def _decide_active(
    workload: Workload, before: Record | None, record: Record, observed: Observed, now: datetime
) -> Plan:
    if message := invalid.rejection_message(workload, before or record, observed):
        return invalid.plan(workload, record, reasons.SPEC_REJECTED, message, observed, now)
    if workload.suspended:
        return suspend.plan(workload, record, observed, now)
    if workload.semantics.report_pending_first and _is_first_pass(workload, before, record, observed):
        return Plan(replace(record, waiting=None), requeue_at=now)
    record = gang.choose_scheduler(workload, suspend.resume(record, now), observed)
    if waiting := gang.hold_after_preemption(workload, record, observed, now):
        return _hold(workload, waiting, observed, now)
    record = elastic.resize(workload, record, now)
    repair = plan_restarts(workload, record, observed, now)
    record = elastic.track_below_min(
        workload, phases.with_role_phases(workload, repair.record, observed, now), observed, now
    )
    outcome = phases.terminal_result(workload, record)
    limit = limits.check_limits(workload, record, observed, now)
    ending = (
        outcome if outcome and outcome.phase is Phase.SUCCEEDED else repair.result or limit.result or outcome
    )
    if (
        ending
        and ending.phase is Phase.SUCCEEDED
        and (unconfirmed := pods.unconfirmed_before_success(workload, record, observed))
    ):
        return Plan(record, unconfirmed)
    if ending:
        return completion.finish(workload, record, observed, ending, now)
    plan = _converge(workload, record, observed, now)
    return replace(plan.with_requeue_at(limit.next_at), restart_causes=repair.causes)


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


def plan_invalid_deletion(
    remains: Workload, before: Record | None, problems: Problems, observed: Observed, now: datetime
) -> Plan:
    """Return the plan for a job with an invalid spec, for an API that deletes the children of such a job.

    `remains` is the valid part of the spec.
    """
    record = propagation.with_propagated_labels(remains, before or Record(phase_since=now))
    return _with_history_events(
        before, invalid.plan(remains, record, reasons.INVALID_SPEC, str(problems), observed, now)
    )


def _is_first_pass(workload: Workload, before: Record | None, record: Record, observed: Observed) -> bool:
    """Return True if the job has no status yet, or an edit has just made its spec valid."""
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
    gate = gang.admission(workload, record, observed)
    idle = workload.rules.creates_no_pods
    missing = (
        pods.plan_creation(workload, record, observed, now)
        if gate.allowed and not idle
        else pods.PodCreation()
    )
    if record.attempt_started_at is None and (missing.create or (idle and gate.allowed)):
        record = phases.with_attempt_started(record, now)
    record = gang.mark_scheduled(workload, _with_phase(workload, record, observed, now), observed, now)
    record = wait_reasons.with_wait_reason(workload, record, observed, gate, missing, now)
    forced, recheck_at = pods.forced_deletions(workload.limits, observed, now)
    actions = (
        *(() if gate.action is None else (gate.action,)),
        *children.missing_children(workload, observed),
        *children.ssh_secret_if_needed(workload, missing.create),
        *pods.stale_deletions(record, observed),
        *forced,
        *missing.confirm,
        *missing.create,
    )
    rights_at = children.rbac_requeue_at(workload, bool(missing.create), now)
    return Plan(record, actions).with_requeue_at(missing.retry_at, recheck_at, rights_at)


def _with_phase(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    phase = phases.job_phase(workload, record, observed)
    if phase is record.phase:
        return record
    record = replace(record, phase=phase, phase_since=now)
    if phase is not Phase.RUNNING:
        return record
    record = replace(record, first_running_at=record.first_running_at or now, reason="", message="")
    if record.history and record.history[-1].reason == Phase.RUNNING:
        return record  # a lost pod was replaced, which is no line of history
    return record.with_history(now, Phase.RUNNING.value, f"attempt {record.attempt} is running")


def _with_history_events(before: Record | None, plan: Plan) -> Plan:
    """Return the plan with one event for every new entry of the history."""
    old = set(before.history) if before else set()
    new = [entry for entry in plan.record.history if entry not in old]
    return replace(
        plan,
        events=tuple(
            EmitEvent("Warning" if entry.reason in _WARNINGS else "Normal", entry.reason, entry.message)
            for entry in new
        ),
    )
