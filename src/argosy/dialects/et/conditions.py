"""The conditions of TrainingJobs and scalers: a plain list in which the order has a meaning.

- A condition that becomes True moves to the end of the list, so that the last one tells what happened last;
  `kubectl get scalein` shows it as the phase. One that becomes False stays where it is.
- Failed, Succeeded and Suspended set Running to False, and what else can be under way then. Running sets
  Restarting to False.
- Once Failed is True, nothing is recorded any more, except what else is wrong with an invalid spec. Only a
  new start clears the list: `after_restart`, `after_resume`, or `[]` for a job whose invalid spec was
  repaired and that starts as if it were new.
- A job is ScaleSucceeded or ScaleFailed until it is scaled again.
- CheckpointReady and ProgressLost come before all others, so that the last one still tells what happened
  last. They follow from the Record, whatever clears the list.

Every function returns a new list. The transition time of a condition changes only with its status.
"""

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from argosy.dialects.checkpoints import CHECKPOINT_READY, PROGRESS_LOST, CheckpointCondition
from argosy.dialects.et import reasons
from argosy.kinds.trainingjob import JobCondition
from argosy.workload.reasons import INVALID_SPEC

CREATED, WORKERS_CREATED, WORKERS_READY = "Created", "WorkersCreated", "WorkersReady"
LAUNCHER_CREATED, RUNNING, RESTARTING = "LauncherCreated", "Running", "Restarting"
SUCCEEDED, FAILED, SUSPENDED = "Succeeded", "Failed", "Suspended"
SCALING, SCALE_SUCCEEDED, SCALE_FAILED = "Scaling", "ScaleSucceeded", "ScaleFailed"
SCRIPT_EXECUTED, WAITING_FOR_JOB = "ScriptExecuted", "WaitingForJob"
"""The last four, and Created, are conditions of scalers too; WaitingForJob of scalers only."""

_SETS_FALSE = {
    FAILED: (RUNNING, RESTARTING, SCALING),
    SUCCEEDED: (RUNNING, RESTARTING, SCALING),
    SUSPENDED: (RUNNING, RESTARTING, SCALING),
    RUNNING: (RESTARTING,),
    CREATED: (WAITING_FOR_JOB,),
}
"""Conditions that become False when another one becomes True."""

Conditions = Sequence[JobCondition]


def is_true(conditions: Conditions, kind: str) -> bool:
    return any(condition.type == kind and condition.status == "True" for condition in conditions)


def with_true(
    conditions: Conditions, kind: str, reason: str, message: str, now: datetime
) -> list[JobCondition]:
    """Return the conditions with one that is True."""
    if _is_final(conditions) and not (kind == FAILED and _is_invalid(conditions)):
        return list(conditions)
    for other in _SETS_FALSE.get(kind, ()):
        conditions = with_cleared(conditions, other, now)
    if is_true(conditions, kind):
        return _with_status(conditions, kind, "True", reason, message, now)
    others = [condition for condition in conditions if condition.type != kind]
    return [*others, JobCondition(kind, "True", reason, message, now, now)]


def with_false(
    conditions: Conditions, kind: str, reason: str, message: str, now: datetime
) -> list[JobCondition]:
    """Return the conditions with one that is False; it is added if there is none of its type."""
    if _is_final(conditions):
        return list(conditions)
    if not any(condition.type == kind for condition in conditions):
        return [*conditions, JobCondition(kind, "False", reason, message, now, now)]
    return _with_status(conditions, kind, "False", reason, message, now)


def with_cleared(conditions: Conditions, kind: str, now: datetime) -> list[JobCondition]:
    """Return the conditions with one set to False, if it is True; its reason and message stay."""
    if not is_true(conditions, kind):
        return list(conditions)
    old = next(condition for condition in conditions if condition.type == kind)
    return with_false(conditions, kind, old.reason, old.message, now)


def with_scaling_started(conditions: Conditions, message: str, now: datetime) -> list[JobCondition]:
    """Return the conditions of a job, or of a scaler, when the scaler is begun."""
    for result in (SCALE_SUCCEEDED, SCALE_FAILED):
        conditions = with_cleared(conditions, result, now)
    return with_true(conditions, SCALING, reasons.SCALING_START, message, now)


def with_scaling_ended(
    conditions: Conditions, kind: str, message: str, now: datetime, *, succeeded: bool
) -> list[JobCondition]:
    """Return the conditions of a job, or of a ScaleIn or ScaleOut (`kind`), when the scaler has ended."""
    result = SCALE_SUCCEEDED if succeeded else SCALE_FAILED
    reason = reasons.scaling_ended(kind, succeeded=succeeded)
    return with_true(with_cleared(conditions, SCALING, now), result, reason, message, now)


def after_restart(message: str, now: datetime) -> list[JobCondition]:
    """Return the conditions of a job that is restarted as a whole."""
    return [JobCondition(RESTARTING, "True", reasons.TRAINING_JOB_RESTARTING, message, now, now)]


def after_resume(message: str, now: datetime) -> list[JobCondition]:
    """Return the conditions of a job that is not suspended any more."""
    return [JobCondition(SUSPENDED, "False", reasons.TRAINING_JOB_RESUMED, message, now, now)]


def with_checkpoint_conditions(
    conditions: Conditions, last: Conditions, found: Sequence[CheckpointCondition]
) -> list[JobCondition]:
    """Return the conditions with those of checkpoints in front; `last` are those of the last status."""
    known = {item.type: item for item in last}
    others = [item for item in conditions if item.type not in (CHECKPOINT_READY, PROGRESS_LOST)]
    return [*(_of_checkpoint(known.get(item.type), item) for item in found), *others]


def _of_checkpoint(old: JobCondition | None, new: CheckpointCondition) -> JobCondition:
    is_same = old is not None and old.status == new.status
    if old is not None and is_same and (old.reason, old.message) == (new.reason, new.message):
        return old
    since = old.last_transition_time if old is not None and is_same else new.at
    return JobCondition(new.type, new.status, new.reason, new.message, new.at, since)


def _is_final(conditions: Conditions) -> bool:
    return is_true(conditions, FAILED)


def _is_invalid(conditions: Conditions) -> bool:
    """Return True if the job failed because its spec is invalid."""
    return any(condition.type == FAILED and condition.reason == INVALID_SPEC for condition in conditions)


def _with_status(
    conditions: Conditions, kind: str, status: str, reason: str, message: str, now: datetime
) -> list[JobCondition]:
    """Return the conditions with a changed one in its place."""

    def changed(old: JobCondition) -> JobCondition:
        if old.type != kind or (old.status, old.reason, old.message) == (status, reason, message):
            return old
        since = old.last_transition_time if old.status == status else now
        return replace(
            old,
            status=status,
            reason=reason,
            message=message,
            last_update_time=now,
            last_transition_time=since,
        )

    return [changed(condition) for condition in conditions]
