"""Builds the conditions of an AresJob. Past conditions stay in the list; after a failure only an edit changes
them."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from argosy.dialects.ares import reasons as ares_reasons
from argosy.dialects.checkpoints import checkpoint_conditions
from argosy.kinds.aresjob import AresCondition
from argosy.workload import messages, reasons
from argosy.workload.limits import STOP_REASONS
from argosy.workload.model import Phase, RestartScope, Workload
from argosy.workload.observed import Observed
from argosy.workload.record import Record

CREATED, RUNNING, SUCCEEDED, FAILED = "Created", "Running", "Succeeded", "Failed"
SCHEDULED, RESTARTING, SUSPENDED = "Scheduled", "Restarting", "Suspended"

_RESTARTS = "limits.restarts"
_FIELDS = {
    _RESTARTS: "spec.runPolicy.backoffLimit",
    "limits.activeDeadline": "spec.runPolicy.activeDeadlineSeconds",
    "limits.belowMinTimeout": "spec.runPolicy.belowMinTimeout",
    "spec.gang": "spec.runPolicy.schedulingPolicy",
    "spec.suspend": "spec.runPolicy.suspend",
}
"""Field names of the engine's messages, and what this API calls them."""


def conditions(
    stored: Sequence[AresCondition],
    name: str,
    phase: str,
    workload: Workload | None,
    record: Record,
    observed: Observed,
) -> list[AresCondition]:
    conditions_set = _ConditionSet({condition.type: condition for condition in stored}, record.phase_since)
    wrong = record.waiting is not None and record.waiting.reason in (
        reasons.INVALID_SPEC,
        reasons.SPEC_REJECTED,
    )
    if conditions_set.is_true(FAILED) and not wrong:
        if phase == FAILED:
            return conditions_set.all()
        conditions_set.set(
            FAILED, "False", ares_reasons.DEFINITION_CHANGED, "the spec was edited and is valid"
        )
    if wrong and record.waiting is not None:
        conditions_set.set(
            FAILED, "True", reasons.INVALID_DEFINITION, record.waiting.message, record.waiting.since
        )
        conditions_set.clear(RUNNING, record.waiting.since)
        return conditions_set.all()
    usual = f"AresJob {name} is {phase}."
    if phase in (Phase.PENDING.value, Phase.STARTING.value):
        conditions_set.set(CREATED, "True", phase, usual)
    elif phase == RUNNING:
        conditions_set.set(RUNNING, "True", phase, usual)
    elif phase == SUCCEEDED:
        conditions_set.set(SUCCEEDED, "True", phase, usual)
        conditions_set.clear(RUNNING)
    elif phase == FAILED:
        conditions_set.set(FAILED, "True", *_failure(workload, record, usual))
        conditions_set.clear(RUNNING)
    if workload is not None:
        _set_scheduled(conditions_set, workload, record, observed)
        _set_restarting(conditions_set, workload, record, usual)
        _set_checkpoint_conditions(conditions_set, workload, record)
    _set_suspended(conditions_set, record)
    return conditions_set.all()


def with_ares_field_names(message: str) -> str:
    """Return a message of the engine with the field names of this API."""
    for ours, theirs in _FIELDS.items():
        message = message.replace(ours, theirs)
    return message


def _failure(workload: Workload | None, record: Record, usual: str) -> tuple[str, str]:
    if record.reason in (reasons.INVALID_DEFINITION, reasons.PREEMPTED):
        return record.reason, with_ares_field_names(record.message)
    if record.reason not in STOP_REASONS:
        return FAILED, usual
    message, field = with_ares_field_names(record.message), _FIELDS[_RESTARTS]
    if record.reason == reasons.RESTARTS_EXHAUSTED and field not in message and workload is not None:
        message += f" ({field}: {workload.limits.restarts})"
    return ares_reasons.JOB_FAILED, message


def _set_scheduled(
    conditions_set: "_ConditionSet", workload: Workload, record: Record, observed: Observed
) -> None:
    if workload.gang is None or record.finished_at:
        return
    waiting = record.waiting
    if waiting is not None and waiting.reason == reasons.GANG_SCHEDULER_MISSING:
        message = with_ares_field_names(waiting.message)
        conditions_set.set(SCHEDULED, "False", reasons.GANG_SCHEDULER_MISSING, message, waiting.since)
    elif record.gang_scheduled_at and not conditions_set.is_true(SCHEDULED):
        conditions_set.set(
            SCHEDULED,
            "True",
            SCHEDULED,
            observed.group.reason if observed.group else "",
            record.gang_scheduled_at,
        )


def _set_restarting(conditions_set: "_ConditionSet", workload: Workload, record: Record, usual: str) -> None:
    """Set whether the job restarts as a whole, or an elastic role has too few running pods."""
    missing = _below_minimum(workload, record)
    whole = workload.rules.restart_scope is RestartScope.JOB
    if record.finished_at or record.phase is Phase.SUSPENDED:
        conditions_set.clear(RESTARTING)
    elif missing:
        conditions_set.set(RESTARTING, "True", reasons.BELOW_MIN_REPLICAS, missing)
    elif not whole and record.phase is not Phase.RUNNING:
        conditions_set.clear(RESTARTING)
    elif record.phase is Phase.RESTARTING:
        conditions_set.set(RESTARTING, "True", RESTARTING, with_ares_field_names(record.message))
    elif record.phase is Phase.RUNNING and conditions_set.is_true(RESTARTING):
        conditions_set.set(RESTARTING, "False", RUNNING, usual)


def _below_minimum(workload: Workload, record: Record) -> str:
    """Return the message about the first elastic role with too few running pods; empty if there is none."""
    for name, role in workload.roles.items():
        if record.role(name).below_min_since:
            return messages.waiting_for_minimum(name, role.min_running)
    return ""


def _set_checkpoint_conditions(conditions_set: "_ConditionSet", workload: Workload, record: Record) -> None:
    if workload.checkpoint is None:
        return
    for condition in checkpoint_conditions(record):
        message = with_ares_field_names(condition.message)
        conditions_set.set(condition.type, condition.status, condition.reason, message, condition.at)


def _set_suspended(conditions_set: "_ConditionSet", record: Record) -> None:
    if record.phase is Phase.SUSPENDED:
        conditions_set.set(SUSPENDED, "True", SUSPENDED, "suspended by spec.runPolicy.suspend")
        conditions_set.clear(RUNNING)
    elif conditions_set.is_true(SUSPENDED):
        conditions_set.set(SUSPENDED, "False", reasons.RESUMED, "resumed by spec.runPolicy.suspend")


class _ConditionSet:
    """A set of conditions; the transition time of one changes only with its status."""

    def __init__(self, conditions: dict[str, AresCondition], since: datetime | None) -> None:
        self._conditions = conditions
        self._since = since

    def is_true(self, kind: str) -> bool:
        return kind in self._conditions and self._conditions[kind].status == "True"

    def set(self, kind: str, status: str, reason: str, message: str, at: datetime | None = None) -> None:
        at = at or self._since
        old = self._conditions.get(kind)
        new = AresCondition(kind, status, reason, message, at, at)
        if old is not None and old.status == status:
            new = replace(new, last_transition_time=old.last_transition_time)
            if (old.reason, old.message) == (reason, message):
                new = old
        self._conditions[kind] = new

    def clear(self, kind: str, at: datetime | None = None) -> None:
        """Set a condition to False, if it is True."""
        if self.is_true(kind):
            old = self._conditions[kind]
            self.set(kind, "False", old.reason, old.message, at)

    def all(self) -> list[AresCondition]:
        return list(self._conditions.values())
