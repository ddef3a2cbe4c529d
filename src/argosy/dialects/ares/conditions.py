"""Conditions of an AresJob. What a job was stays in the list; once it has failed only a cure changes that."""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from argosy.kinds.aresjob import AresCondition
from argosy.workload.invalid import INVALID_DEFINITION, INVALID_SPEC, REFUSED_SPEC
from argosy.workload.limits import REASONS
from argosy.workload.model import Phase, RestartScope, Workload
from argosy.workload.observed import Observed
from argosy.workload.record import Record

CREATED, RUNNING, SUCCEEDED, FAILED = "Created", "Running", "Succeeded", "Failed"
SCHEDULED, RESTARTING, SUSPENDED = "Scheduled", "Restarting", "Suspended"
JOB_FAILED, PREEMPTED, MISSING = "JobFailed", "Preempted", "GangSchedulerMissing"

_RESTARTS = "limits.restarts"
_FIELDS = {
    _RESTARTS: "spec.runPolicy.backoffLimit",
    "limits.activeDeadline": "spec.runPolicy.activeDeadlineSeconds",
    "spec.gang": "spec.runPolicy.schedulingPolicy",
}
"""The engine's words for what this API calls otherwise."""


def conditions(
    stored: Sequence[AresCondition],
    name: str,
    phase: str,
    workload: Workload | None,
    record: Record,
    seen: Observed,
) -> list[AresCondition]:
    told = _ConditionSet({one.type: one for one in stored}, record.phase_since)
    wrong = record.waiting is not None and record.waiting.reason in (INVALID_SPEC, REFUSED_SPEC)
    if told.is_true(FAILED) and not wrong:
        if phase == FAILED:
            return told.all()
        told.set(FAILED, "False", "DefinitionChanged", "the definition was changed and is valid")
    if wrong and record.waiting is not None:
        told.set(FAILED, "True", INVALID_DEFINITION, record.waiting.message, record.waiting.since)
        told.clear(RUNNING, record.waiting.since)
        return told.all()
    usual = f"AresJob {name} is {phase}."
    if phase in (Phase.PENDING.value, Phase.STARTING.value):
        told.set(CREATED, "True", phase, usual)
    elif phase == RUNNING:
        told.set(RUNNING, "True", phase, usual)
    elif phase == SUCCEEDED:
        told.set(SUCCEEDED, "True", phase, usual)
        told.clear(RUNNING)
    elif phase == FAILED:
        told.set(FAILED, "True", *_failure(workload, record, usual))
        told.clear(RUNNING)
    if workload is not None:
        _placed(told, workload, record, seen)
        _restarting(told, workload, record, usual)
    _suspended(told, record)
    return told.all()


def with_ares_field_names(message: str) -> str:
    """The engine's sentence with the names of this API's fields."""
    for ours, theirs in _FIELDS.items():
        message = message.replace(ours, theirs)
    return message


def _failure(workload: Workload | None, record: Record, usual: str) -> tuple[str, str]:
    if record.reason in (INVALID_DEFINITION, PREEMPTED):
        return record.reason, with_ares_field_names(record.message)
    if record.reason not in REASONS:
        return FAILED, usual
    said, field = with_ares_field_names(record.message), _FIELDS[_RESTARTS]
    if record.reason == "RestartsExhausted" and field not in said and workload is not None:
        said += f" ({field}: {workload.limits.restarts})"
    return JOB_FAILED, said


def _placed(told: "_ConditionSet", workload: Workload, record: Record, seen: Observed) -> None:
    if workload.gang is None or record.finished_at:
        return
    waiting = record.waiting
    if waiting is not None and waiting.reason == MISSING:
        told.set(SCHEDULED, "False", MISSING, with_ares_field_names(waiting.message), waiting.since)
    elif record.gang_scheduled_at and not told.is_true(SCHEDULED):
        told.set(
            SCHEDULED, "True", SCHEDULED, seen.group.reason if seen.group else "", record.gang_scheduled_at
        )


def _restarting(told: "_ConditionSet", workload: Workload, record: Record, usual: str) -> None:
    if (
        workload.rules.restart_scope is not RestartScope.JOB
        or record.finished_at
        or record.phase is Phase.SUSPENDED
    ):
        told.clear(RESTARTING)
    elif record.phase is Phase.RESTARTING:
        told.set(RESTARTING, "True", RESTARTING, with_ares_field_names(record.message))
    elif record.phase is Phase.RUNNING and told.is_true(RESTARTING):
        told.set(RESTARTING, "False", RUNNING, usual)


def _suspended(told: "_ConditionSet", record: Record) -> None:
    if record.phase is Phase.SUSPENDED:
        told.set(SUSPENDED, "True", SUSPENDED, "suspended by spec.runPolicy.suspend")
        told.clear(RUNNING)
    elif told.is_true(SUSPENDED):
        told.set(SUSPENDED, "False", "Resumed", "the job is not suspended any more")


class _ConditionSet:
    """The conditions so far; times change with what they are the times of."""

    def __init__(self, known: dict[str, AresCondition], since: datetime | None) -> None:
        self._known = known
        self._since = since

    def is_true(self, kind: str) -> bool:
        return kind in self._known and self._known[kind].status == "True"

    def set(self, kind: str, status: str, reason: str, message: str, at: datetime | None = None) -> None:
        at = at or self._since
        old = self._known.get(kind)
        new = AresCondition(kind, status, reason, message, at, at)
        if old is not None and old.status == status:
            new = replace(new, last_transition_time=old.last_transition_time)
            if (old.reason, old.message) == (reason, message):
                new = old
        self._known[kind] = new

    def clear(self, kind: str, at: datetime | None = None) -> None:
        """It is so no longer, if it was."""
        if self.is_true(kind):
            old = self._known[kind]
            self.set(kind, "False", old.reason, old.message, at)

    def all(self) -> list[AresCondition]:
        return list(self._known.values())
