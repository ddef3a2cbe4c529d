"""Builds the status of a TrainingRun from its Record and its pods."""

from collections.abc import Mapping

from argosy.dialects.base import StatusInput
from argosy.dialects.checkpoints import checkpoint_status, recoveries
from argosy.dialects.counts import fold_running_into_succeeded
from argosy.dialects.notices import open_notices
from argosy.dialects.restart_history import restart_history
from argosy.dialects.trainingrun.conditions import conditions
from argosy.dialects.usage import usage_status
from argosy.kinds import labels
from argosy.kinds.trainingrun import WORKER, TrainingRun
from argosy.kinds.trainingrun_status import RoleStatus, TrainingRunStatus
from argosy.workload.model import Phase
from argosy.workload.observed import Observed
from argosy.workload.phases import Counts, count_pods
from argosy.workload.record import Record, RoleRecord
from argosy.workload.record_encoding import encode
from argosy.workload.wait_reasons import status_message


def to_status(run: TrainingRun, view: StatusInput) -> TrainingRunStatus:
    """Return the whole status; numbers of a finished run stay as they were when it finished."""
    workload, record, observed = view.workload, view.record, view.observed
    phase, waiting, last = record.phase, record.waiting, run.status
    counts = (
        {
            name: fold_running_into_succeeded(count_pods(workload, role, record, observed), record)
            for name, role in workload.roles.items()
        }
        if workload
        else {}
    )
    finished = record.finished_at is not None and last.completion_time is not None
    ready, wanted = _workers(record, counts)
    return TrainingRunStatus(
        phase=phase.value,
        reason=waiting.reason if waiting else "" if phase is Phase.SUCCEEDED else record.reason,
        message=status_message(workload, record, observed, counts),
        observed_generation=record.generation,
        attempt=_attempt(last.attempt, record, observed),
        restarts=record.restarts,
        workers=f"{ready}/{wanted}" if wanted and not finished else last.workers,
        replicas=counts[WORKER].existing if WORKER in counts else 0,
        selector=f"{labels.JOB}={run.metadata.name},{labels.ROLE}={WORKER}",
        start_time=record.started_at,
        running_time=record.first_running_at,
        completion_time=record.finished_at,
        waiting_since=waiting.since if waiting else None,
        conditions=conditions(last.conditions, record, keeps_checkpoints=run.spec.checkpoint is not None),
        roles=_roles(record, counts) if workload and not finished else last.roles,
        restart_history=restart_history(record),
        notices=open_notices(record),
        checkpoint=checkpoint_status(workload, record) or last.checkpoint,
        recoveries=recoveries(record),
        usage=usage_status(record),
        argosy=encode(record),
    )


def _roles(record: Record, counts: Mapping[str, Counts]) -> dict[str, RoleStatus]:
    statuses: dict[str, RoleStatus] = {}
    for name, numbers in counts.items():
        role = record.role(name)
        statuses[name] = RoleStatus(
            phase=role.phase.value,
            reason=role.reason,
            message=role.message,
            replicas=_desired_pods(role),
            current_replicas=role.size if role.size < _desired_pods(role) else 0,
            pending=numbers.pending,
            active=numbers.active,
            succeeded=numbers.succeeded,
            failed=numbers.failed,
            unknown=numbers.unknown,
            terminating=numbers.terminating,
            restarts=role.restarts,
        )
    return statuses


def _attempt(last: int, record: Record, observed: Observed) -> int:
    """Return 0 before the first pod exists; a run whose first pods were rejected has not started either."""
    rejected = bool(observed.failed_actions) and record.attempt == 1 and record.first_running_at is None
    return record.attempt if observed.pods or (last and not rejected) else 0


def _workers(record: Record, counts: Mapping[str, Counts]) -> tuple[int, int]:
    """Return how many workers run or have succeeded, and how many are wanted."""
    names = [WORKER] if WORKER in counts else list(counts)
    ready = sum(counts[name].active + counts[name].succeeded for name in names)
    return ready, sum(_desired_pods(record.role(name)) for name in names)


def _desired_pods(role: RoleRecord) -> int:
    """Return the number of pods that the spec asks for; an elastic role may have fewer."""
    return max(role.size, role.declared)
