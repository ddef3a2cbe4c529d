"""Builds the conditions of a TrainingRun, for `kubectl wait --for=condition=…`."""

from collections.abc import Sequence

from argosy.kinds.trainingrun_status import RunCondition
from argosy.workload import checkpoint_messages, reasons
from argosy.workload.model import Phase
from argosy.workload.record import Record
from argosy.workload.recoveries import RecoveryOutcome

PHASES = (Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)


def conditions(
    stored: Sequence[RunCondition], record: Record, *, keeps_checkpoints: bool
) -> list[RunCondition]:
    """Return all conditions; the time of a condition changes only with its status."""
    valid = not (record.waiting and record.waiting.reason == reasons.INVALID_SPEC)
    wanted = [_valid(record, valid), *(_phase(record, phase) for phase in PHASES)]
    if keeps_checkpoints:
        wanted += [_checkpoint_ready(record), _progress_lost(record)]
    existing = {condition.type: condition for condition in stored}
    return [_with_old_time(existing.get(condition.type), condition) for condition in wanted]


def _valid(record: Record, valid: bool) -> RunCondition:
    assert record.phase_since
    if valid or record.waiting is None:
        return RunCondition("Valid", "True", reasons.ACCEPTED, record.phase_since, "", record.generation)
    waiting = record.waiting
    return RunCondition(
        "Valid", "False", reasons.INVALID_SPEC, waiting.since, waiting.message, record.generation
    )


def _phase(record: Record, phase: Phase) -> RunCondition:
    assert record.phase_since
    if record.phase is not phase:
        return RunCondition(
            phase.value, "False", record.phase.value, record.phase_since, "", record.generation
        )
    reason = record.reason or phase.value
    return RunCondition(phase.value, "True", reason, record.phase_since, record.message, record.generation)


def _checkpoint_ready(record: Record) -> RunCondition:
    """Return whether there is a good checkpoint, and none is late."""
    assert record.phase_since
    saved, order = record.saved, record.order_in_force
    status, reason, at, message = "False", reasons.NO_CHECKPOINT_YET, record.phase_since, ""
    if saved is not None:
        status, reason, at = "True", reasons.CHECKPOINT_COMPLETED, saved.at
        message = checkpoint_messages.completed(saved)
    if order is not None and order.late:
        status, reason, at = "False", reasons.CHECKPOINT_TIMEOUT, order.by
        message = checkpoint_messages.late(order)
    return RunCondition("CheckpointReady", status, reason, at, message, record.generation)


def _progress_lost(record: Record) -> RunCondition:
    """Return whether the last loss of pods has cost progress, and no checkpoint was saved since."""
    assert record.phase_since
    last = next((recovery for recovery in reversed(record.recoveries) if recovery.ended_at), None)
    saved_at = record.saved.at if record.saved else None
    if last is None or last.ended_at is None or last.outcome != RecoveryOutcome.PROGRESS_LOST:
        at = last.ended_at if last and last.ended_at else record.phase_since
        return RunCondition("ProgressLost", "False", reasons.NO_LOSS, at, "", record.generation)
    if saved_at is not None and saved_at > last.ended_at:
        return RunCondition("ProgressLost", "False", reasons.CHECKPOINTED, saved_at, "", record.generation)
    reason = reasons.CHECKPOINT_OUTDATED
    if last.saved_step is None:
        reason = reasons.NO_CHECKPOINT_FOUND
    elif last.restored_step is not None and last.restored_step < last.saved_step:
        reason = reasons.CHECKPOINT_INVALID
    message = checkpoint_messages.recovery(last)
    return RunCondition("ProgressLost", "True", reason, last.ended_at, message, record.generation)


def _with_old_time(old: RunCondition | None, new: RunCondition) -> RunCondition:
    if old is None or old.status != new.status:
        return new
    return RunCondition(
        new.type, new.status, new.reason, old.last_transition_time, new.message, new.observed_generation
    )
