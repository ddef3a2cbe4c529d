"""Adopts jobs that AresOperator has worked on: their status becomes a Record, so that they continue.

Without this a finished job would run again, and a running one would be taken for a new one. A spec that
AresOperator found invalid stays invalid until it is edited.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from argosy.dialects.ares import spec
from argosy.dialects.ares.profiles import roles_of
from argosy.kinds.aresjob import INDEX_LABEL, ROLE_LABEL, AresCondition, AresJob, AresJobSpec, RoleStatus
from argosy.workload import reasons
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import Phase
from argosy.workload.record import Record, RoleRecord, WaitReason

LEGACY_ROLE, LEGACY_INDEX = "replica-type", "replica-index"
"""Labels of pods that early versions of AresOperator wrote."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def adopted_record(obj: AresJob) -> Record | None:
    """Return the Record of a job whose status AresOperator wrote; None if it has none, or one of ours."""
    status = obj.status
    phase = _phase(status.phase)
    if status.argosy or phase is None:
        return None
    condition = next(
        (
            condition
            for condition in status.conditions
            if condition.type == phase.value and condition.status == "True"
        ),
        None,
    )
    since, generation = _since(obj, condition), obj.metadata.generation
    if condition and condition.reason == reasons.INVALID_DEFINITION and status.running_time is None:
        return Record(
            phase_since=since,
            waiting=WaitReason(reasons.SPEC_REJECTED, condition.message, since),
            generation=generation,
        )
    failed = condition if phase is Phase.FAILED else None
    return Record(
        phase=phase,
        phase_since=since,
        reason=failed.reason if failed else "",
        message=failed.message if failed else "",
        generation=generation,
        started_at=status.start_time,
        attempt_started_at=status.start_time,
        first_running_at=status.running_time,
        finished_at=since if phase.terminal else None,
        roles=_roles(obj),
    )


def adopted_replica(labels: Mapping[str, str]) -> tuple[str, int] | None:
    """Return role and index of a pod that AresOperator created; None if its labels do not say."""
    role = labels.get(ROLE_LABEL) or labels.get(LEGACY_ROLE)
    index = labels.get(INDEX_LABEL) or labels.get(LEGACY_INDEX) or ""
    return (role, int(index)) if role and index.isdecimal() else None


def _roles(obj: AresJob) -> dict[str, RoleRecord]:
    written = spec.read(obj.spec)
    wanted = roles_of(written) if isinstance(written, AresJobSpec) else {}
    sizes = {name: role.replicas or 1 for name, role in wanted.items()}
    return {
        name: _role(status, phase, sizes[name])
        for name, status in obj.status.role_statuses.items()
        if name in sizes and (phase := _phase(status.phase)) is not None
    }


def _role(status: RoleStatus, phase: Phase, size: int) -> RoleRecord:
    """Return the Record of a role; if it has been Running, all its pods were created."""
    has_run = phase not in (Phase.PENDING, Phase.STARTING)
    members = IndexSet.first(size)
    return RoleRecord(
        phase=phase,
        reason=status.reason,
        message=status.message,
        phase_since=status.last_transition_time,
        members=members,
        declared=size,
        created=members if has_run else EMPTY,
        restarts=status.restarts,
    )


def _since(obj: AresJob, condition: AresCondition | None) -> datetime:
    """Return when the phase was entered, or the earliest time after that which the object has."""
    status = obj.status
    times = (
        status.completion_time,
        condition.last_transition_time if condition else None,
        status.last_reconcile_time,
        obj.metadata.creation_timestamp,
    )
    return next((time for time in times if time is not None), _LONG_AGO)


def _phase(written: str) -> Phase | None:
    phases = (Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED, Phase.FAILED)
    return next((phase for phase in phases if phase.value == written), None)
