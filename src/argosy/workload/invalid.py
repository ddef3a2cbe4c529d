"""Handles an invalid spec where the dialect deletes the children of such a job.

The job has not finished: an edit starts it again with the next attempt, so that no pod of the invalid spec is
mistaken for one of the valid spec. A job that ran before stays Failed, and its cleanup policy applies.
Only the API server may know that a spec is invalid: a permanent rejection is stored for the rejected
generation and not retried before an edit.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from argosy.kinds.text import join_messages
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.plan.diff import remove
from argosy.workload import completion, messages, reasons
from argosy.workload.clock_skew import deadline
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.phases import PhaseResult
from argosy.workload.plan import Action, DeleteJob, DeletePod, Plan
from argosy.workload.pods import forced_deletions
from argosy.workload.record import Record, RoleRecord, WaitReason
from argosy.workload.restarts.replacement import with_next_attempt

_PERMANENT = (ActionStatus.SPEC_REJECTED, ActionStatus.INVALID)


def rejection_message(workload: Workload, record: Record, observed: Observed) -> str:
    """Return why the API server rejected this generation of the spec for good; empty if it did not."""
    if not workload.semantics.delete_children_if_invalid:
        return ""
    if message := _rejections(observed.failed_actions):
        return message
    waiting = record.waiting
    if waiting is None or waiting.reason != reasons.SPEC_REJECTED or record.generation != workload.generation:
        return ""
    return waiting.message


def plan(
    workload: Workload, record: Record, reason: str, message: str, observed: Observed, now: datetime
) -> Plan:
    """Return the plan that reports the invalid spec and deletes the job's children.

    Of `workload` only the identity, the cleanup policy and the times to live are used.
    """
    if record.finished_at:
        return completion.clean_up(workload, record, observed, now)
    record = replace(record, generation=max(record.generation, workload.generation))
    if record.first_running_at:
        return completion.finish(
            workload, record, observed, PhaseResult(Phase.FAILED, reasons.INVALID_DEFINITION, message), now
        )
    if not _is_reported(record, reason, message):
        record = _reset_for_edit(record, observed, now)
        record = replace(record, waiting=WaitReason(reason, message, now)).with_history(
            now, reasons.INVALID_SPEC, message
        )
    forced, recheck_at = forced_deletions(workload.limits, observed, now)
    actions: list[Action] = [
        DeletePod(pod.name, pod.uid, reason=messages.SPEC_INVALID)
        for pod in observed.pods
        if not pod.terminating
    ]
    actions += [*forced, *(remove(child) for child in observed.children)]
    since = record.waiting.since if record.waiting else now
    return _with_ttl(
        Plan(record, tuple(actions)).with_requeue_at(recheck_at), since, workload.limits.ttl.failed, now
    )


def _with_ttl(plan: Plan, since: datetime, ttl: float | None, now: datetime) -> Plan:
    if ttl is None:
        return plan
    expiry = deadline(since, ttl)
    if expiry is None or now < expiry:
        return plan.with_requeue_at(expiry)
    return plan.with_actions([DeleteJob(messages.ttl_expired(Phase.FAILED))])


def _is_reported(record: Record, reason: str, message: str) -> bool:
    waiting = record.waiting
    return waiting is not None and (waiting.reason, waiting.message) == (reason, message)


def _reset_for_edit(record: Record, observed: Observed, now: datetime) -> Record:
    if record.attempt_started_at or observed.pods:
        record = with_next_attempt(record)
    since = record.phase_since if record.phase is Phase.PENDING else now
    roles = {
        name: RoleRecord(phase_since=role.phase_since, members=role.members, declared=role.declared)
        for name, role in record.roles.items()
    }
    return replace(
        record,
        phase=Phase.PENDING,
        phase_since=since,
        started_at=None,
        attempt_started_at=None,
        roles=roles,
        reason="",
        message="",
    )


def _rejections(failures: Sequence[ActionResult]) -> str:
    return join_messages(
        failure.message
        if failure.status is ActionStatus.SPEC_REJECTED
        else f"{failure.name}: {failure.message}"
        for failure in failures
        if failure.status in _PERMANENT and failure.kind in ("Pod", "Service")
    )
