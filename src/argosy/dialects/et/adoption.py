"""Adopts jobs that et-operator has worked on: their status becomes a Record, so that they continue.

Without this a finished job would run again, and a running one would be taken for a new one. The workers of a
job are those of its status, because scalers have changed their number and replacements their names.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from msgspec.structs import replace

from argosy.dialects.et import conditions as listed
from argosy.dialects.et import names
from argosy.dialects.et.spec import read_job_spec
from argosy.dialects.et.status import FAILED, RUNNING, SCALING, SUCCEEDED, SUSPENDED
from argosy.kinds.trainingjob import (
    INDEX_LABEL,
    LAUNCHER,
    ROLE_LABEL,
    WORKER,
    JobCondition,
    TrainingJob,
    TrainingJobSpec,
)
from argosy.workload.index_set import EMPTY, MAX_INDEX, IndexSet
from argosy.workload.model import Phase
from argosy.workload.record import Record, RoleRecord

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
_RESUMED_ATTEMPT = 2
"""Of a job that was suspended: what is left of its pods is of the first."""


def adopted_record(obj: TrainingJob) -> Record | None:
    """Return the Record of a job whose status et-operator wrote; None if it has none, or one of ours."""
    status = obj.status
    if status.argosy or not status.phase:
        return None
    since = _since(obj, status.phase)
    record = Record(
        phase_since=since,
        generation=obj.metadata.generation,
        restarts=status.restart_count,
        started_at=status.start_time,
    )
    if status.phase == SUSPENDED:
        return _suspended(record)
    if status.phase in (SUCCEEDED, FAILED):
        return _finished(obj, record, since)
    return _active(obj, record, since)


def adopted_replica(labels: Mapping[str, str]) -> tuple[str, int] | None:
    """Return role and index of a pod that et-operator created; None if its labels do not say."""
    role, index = labels.get(ROLE_LABEL), labels.get(INDEX_LABEL, "")
    if role == LAUNCHER:
        return role, 0
    is_index = index.isascii() and index.isdecimal() and len(index) <= len(str(MAX_INDEX))
    return (role, int(index)) if role == WORKER and is_index else None


def _suspended(record: Record) -> Record:
    return replace(record, phase=Phase.SUSPENDED, attempt=_RESUMED_ATTEMPT, started_at=None)


def _finished(obj: TrainingJob, record: Record, since: datetime) -> Record:
    """Return the Record of a job that has ended; it keeps its status and never runs again."""
    status = obj.status
    phase = Phase.SUCCEEDED if status.phase == SUCCEEDED else Phase.FAILED
    condition = _condition(obj, status.phase)
    return replace(
        record,
        phase=phase,
        reason=condition.reason if condition else "",
        message=condition.message if condition else "",
        attempt_started_at=status.start_time,
        finished_at=status.completion_time or since,
        roles=_roles(obj, Phase.RUNNING, phase, since),
    )


def _active(obj: TrainingJob, record: Record, since: datetime) -> Record:
    """Return the Record of a job that has not ended, as far as its start has come."""
    conditions = obj.status.conditions
    runs = obj.status.phase in (RUNNING, SCALING)
    launched = runs or listed.is_true(conditions, listed.LAUNCHER_CREATED)
    ready = launched or listed.is_true(conditions, listed.WORKERS_READY)
    created = ready or listed.is_true(conditions, listed.WORKERS_CREATED)
    launcher = Phase.RUNNING if runs else Phase.STARTING if launched else Phase.PENDING
    workers = Phase.RUNNING if ready else Phase.STARTING if created else Phase.PENDING
    running = _condition(obj, RUNNING)
    return replace(
        record,
        phase=Phase.RUNNING if runs else Phase.STARTING if created else Phase.PENDING,
        started_at=record.started_at or since,
        attempt_started_at=(record.started_at or since) if created else None,
        first_running_at=(_time(running) or since) if runs else None,
        roles=_roles(obj, workers, launcher, since),
    )


def _roles(obj: TrainingJob, workers: Phase, launcher: Phase, since: datetime) -> dict[str, RoleRecord]:
    spec = read_job_spec(obj.spec)
    declared = spec.et_replica_specs.worker.replicas if isinstance(spec, TrainingJobSpec) else 1
    members = _indexes(obj, obj.status.target_workers) or IndexSet.first(declared)
    has_launcher = launcher is not Phase.PENDING
    return {
        LAUNCHER: RoleRecord(
            phase=launcher,
            phase_since=since,
            members=IndexSet.first(1),
            declared=1,
            created=IndexSet.first(1) if has_launcher else EMPTY,
        ),
        WORKER: RoleRecord(
            phase=workers,
            phase_since=since,
            members=members,
            # What scalers have changed is not a change of the spec.
            declared=declared,
            created=members if workers is Phase.RUNNING else EMPTY,
            listed=_indexes(obj, obj.status.current_workers) & members if has_launcher else EMPTY,
        ),
    }


def _indexes(obj: TrainingJob, workers: Iterable[str]) -> IndexSet:
    found = (names.worker_index(obj.metadata.name, worker) for worker in workers)
    return IndexSet.of(index for index in found if index is not None and index <= MAX_INDEX)


def _condition(obj: TrainingJob, kind: str) -> JobCondition | None:
    return next((item for item in obj.status.conditions if item.type == kind and item.status == "True"), None)


def _since(obj: TrainingJob, phase: str) -> datetime:
    """Return when the phase was entered, or the earliest time after that which the object has."""
    times = (_time(_condition(obj, phase)), obj.status.start_time, obj.metadata.creation_timestamp)
    return next((time for time in times if time is not None), _LONG_AGO)


def _time(condition: JobCondition | None) -> datetime | None:
    return condition.last_transition_time if condition else None
