"""Builds the conditions of a TrainingRun, for `kubectl wait --for=condition=…`."""

from collections.abc import Iterator, Sequence

from argosy.dialects.checkpoints import checkpoint_conditions
from argosy.kinds.trainingrun_status import RunCondition
from argosy.workload import reasons
from argosy.workload.model import Phase
from argosy.workload.record import Record

PHASES = (Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED, Phase.SUCCEEDED, Phase.FAILED)


def conditions(
    stored: Sequence[RunCondition], record: Record, *, keeps_checkpoints: bool
) -> list[RunCondition]:
    """Return all conditions; the time of a condition changes only with its status."""
    valid = not (record.waiting and record.waiting.reason == reasons.INVALID_SPEC)
    wanted = [_valid(record, valid), *(_phase(record, phase) for phase in PHASES)]
    if keeps_checkpoints:
        wanted += _of_checkpoints(record)
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


def _of_checkpoints(record: Record) -> Iterator[RunCondition]:
    for condition in checkpoint_conditions(record):
        yield RunCondition(
            condition.type,
            condition.status,
            condition.reason,
            condition.at,
            condition.message,
            record.generation,
        )


def _with_old_time(old: RunCondition | None, new: RunCondition) -> RunCondition:
    if old is None or old.status != new.status:
        return new
    return RunCondition(
        new.type, new.status, new.reason, old.last_transition_time, new.message, new.observed_generation
    )
