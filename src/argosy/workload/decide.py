"""Decides what to do next with a job: the order in which all policies apply.

Pure: the same four arguments give the same plan. The Record in the plan is written before any action is
executed, so every later pass knows the reason for an action that was taken.
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
    restart,
    suspend,
    wait_reasons,
)
from argosy.workload.model import Phase, Problems, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record, WaitReason
from argosy.workload.record_sync import sync_record
from argosy.workload.transitions import find_transitions

_WARNINGS = frozenset({Phase.FAILED.value, reasons.RESTARTING, reasons.INVALID_SPEC})


def decide(workload: Workload, before: Record | None, observed: Observed, now: datetime) -> Plan:
    """What to remember and what to do next."""
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
    if said := invalid.rejection_message(workload, before or record, observed):
        return invalid.plan(workload, record, reasons.SPEC_REJECTED, said, observed, now)
    if workload.suspended:
        return suspend.plan(workload, record, observed, now)
    if workload.semantics.report_pending_first and _is_first_pass(workload, before, record, observed):
        return Plan(replace(record, waiting=None), requeue_at=now)
    record = gang.choose_scheduler(workload, suspend.resumed(record, now), observed)
    if waiting := gang.hold_after_preemption(workload, record, observed, now):
        return _hold(workload, waiting, observed, now)
    record = elastic.resize(workload, record, now)
    repair = restart.plan_restarts(workload, record, observed, now)
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
        and (doubt := pods.unconfirmed_before_success(workload, record, observed))
    ):
        return Plan(record, doubt)
    if ending:
        return completion.finish(workload, record, observed, ending, now)
    plan = _converge(workload, record, observed, now)
    return replace(plan.with_requeue_at(limit.next_at), restart_causes=repair.causes)


def plan_invalid(before: Record | None, problems: Problems, generation: int, now: datetime) -> Plan:
    """The plan for an object that cannot be lowered: say so, touch nothing, wait for an edit."""
    record = before or Record(phase_since=now)
    if record.finished_at:
        return Plan(record)
    said = str(problems)
    record = replace(record, generation=max(record.generation, generation))
    if record.waiting is None or record.waiting.message != said:
        record = replace(record, waiting=WaitReason(reasons.INVALID_SPEC, said, now)).with_history(
            now, reasons.INVALID_SPEC, said
        )
    return _with_history_events(before, Plan(record))


def plan_invalid_deletion(
    remains: Workload, before: Record | None, problems: Problems, observed: Observed, now: datetime
) -> Plan:
    """The plan for an object that cannot be lowered, of a dialect in which that ends the job; `remains` is
    what can be read of it."""
    record = propagation.with_propagated_labels(remains, before or Record(phase_since=now))
    return _with_history_events(
        before, invalid.plan(remains, record, reasons.INVALID_SPEC, str(problems), observed, now)
    )


def _is_first_pass(workload: Workload, before: Record | None, record: Record, observed: Observed) -> bool:
    """Whether the job has never been shown, or has been cured with restarts left to it."""
    if before is None:
        return not observed.pods
    limit = workload.limits.restarts
    wrong = (reasons.INVALID_SPEC, reasons.SPEC_REJECTED)
    cured = before.waiting is not None and before.waiting.reason in wrong
    return cured and (limit is None or record.restarts <= limit)


def _hold(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    """The plan of a job of which nothing is concluded for a while; limits hold all the same."""
    limit = limits.check_limits(workload, record, observed, now)
    if limit.result:
        return completion.finish(workload, record, observed, limit.result, now)
    return Plan(record).with_requeue_at(limit.next_at, gang.hold_until(observed))


def _converge(workload: Workload, record: Record, observed: Observed, now: datetime) -> Plan:
    """The plan of a job that has not ended: bring its pods to what the record says."""
    gate = gang.admission(workload, record, observed)
    idle = workload.rules.creates_no_pods
    missing = (
        pods.plan_creation(workload, record, observed, now)
        if gate.allowed and not idle
        else pods.PodCreation()
    )
    if record.attempt_started_at is None and (missing.create or (idle and gate.allowed)):
        record = phases.with_attempt_started(record, now)
    record = gang.mark_scheduled(workload, _phase(workload, record, observed, now), observed, now)
    record = wait_reasons.with_wait_reason(workload, record, observed, gate, missing, now)
    forced, look_again = pods.forced_deletions(workload.limits, observed, now)
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
    return Plan(record, actions).with_requeue_at(missing.retry_at, look_again, rights_at)


def _phase(workload: Workload, record: Record, observed: Observed, now: datetime) -> Record:
    phase = phases.job_phase(workload, record, observed)
    if phase is record.phase:
        return record
    record = replace(record, phase=phase, phase_since=now)
    if phase is not Phase.RUNNING:
        return record
    record = replace(record, first_running_at=record.first_running_at or now, reason="", message="")
    if record.history and record.history[-1].reason == Phase.RUNNING:
        return record  # a gap was filled, of which nothing was told
    return record.with_history(now, Phase.RUNNING.value, f"attempt {record.attempt} is running")


def _with_history_events(before: Record | None, plan: Plan) -> Plan:
    """Return the plan with one event for every new entry of the history."""
    known = set(before.history) if before else set()
    fresh = [entry for entry in plan.record.history if entry not in known]
    return replace(
        plan,
        events=tuple(
            EmitEvent("Warning" if entry.reason in _WARNINGS else "Normal", entry.reason, entry.message)
            for entry in fresh
        ),
    )
