"""What a job API needs for `spec.checkpoint`, the same for all: children, validation, conditions and status.

An API that has the field lists `CHILD_KINDS` and `on_demand_children` in its `JobApi`, and `CHECKPOINT_RULES`
among its RBAC rules; without jobs of a single pod only `CHILD_KINDS` and `APP_CHECKPOINT_RULES`. Its dialect
sets `Workload.checkpoint`, and reports `spec_problems` and `checkpoint_problems`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar

from msgspec import Struct

from argosy.checkpoint.image_names import InvalidImageNameError, parse_repository, parse_store
from argosy.kinds.checkpoint_spec import (
    STORE_OF_REGROUPING_ROLES,
    CheckpointLevel,
    CheckpointSpec,
    DrainPolicy,
    IntervalMode,
)
from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.kubernetes import PodDisruptionBudgetMetadata
from argosy.kinds.migration import CheckpointBackup
from argosy.plan.children import KubernetesObject
from argosy.workload import checkpoint_messages, process_saves, reasons
from argosy.workload.checkpoint_policy import SHARED_SCHEMES
from argosy.workload.model import Problem, Workload
from argosy.workload.record import Record
from argosy.workload.recoveries import RecoveryOutcome

T = TypeVar("T")

CHILD_KINDS: Final[tuple[type[KubernetesObject], ...]] = (PodDisruptionBudgetMetadata,)
"""Kinds of children of jobs with checkpoints."""
PATH: Final = "spec.checkpoint"
CHECKPOINT_READY, PROGRESS_LOST = "CheckpointReady", "ProgressLost"
"""The conditions of jobs with checkpoints."""
_MAY_HAVE_LOST: Final = (RecoveryOutcome.PROGRESS_LOST, RecoveryOutcome.SIGNALLED)


class CheckpointCondition(Struct, frozen=True):
    """A condition of a job with checkpoints, which each API writes in its own form."""

    type: str
    status: str
    reason: str
    at: datetime
    """When it became so."""
    message: str = ""


def on_demand_children(
    checkpoint_of: Callable[[T], CheckpointSpec | None],
) -> Mapping[type[KubernetesObject], Callable[[T], bool]]:
    """Return the kinds of children that the cluster may not serve, and whether a job needs them."""

    def may_save_processes(job: T) -> bool:
        checkpoint = checkpoint_of(job)
        return checkpoint is not None and checkpoint.level is not CheckpointLevel.APP

    return {CheckpointBackup: may_save_processes}


def spec_problems(spec: CheckpointSpec | None) -> Iterator[Problem]:
    """Yield what the rules of the CRD reject, for an API whose objects may be stored without them."""
    if spec is None:
        return
    store, saves_processes = spec.store or "", spec.level is not CheckpointLevel.APP
    if spec.mode is IntervalMode.ADAPTIVE and spec.interval is None:
        yield Problem(f"{PATH}.mode", "Adaptive requires interval: the longest time between two checkpoints")
    if spec.credentials and store.partition("://")[0] in SHARED_SCHEMES:
        message = "not supported with a store of pvc:// or file://, which needs none"
        yield Problem(f"{PATH}.credentials", message)
    if ".." in store.split("/"):
        yield Problem(f"{PATH}.store", "must not contain '..'")
    if not store and spec.level is not CheckpointLevel.PROCESS:
        message = "required with the levels App and auto: where the program keeps its checkpoints"
        yield Problem(f"{PATH}.store", message)
    if store and spec.level is CheckpointLevel.PROCESS:
        yield Problem(f"{PATH}.store", "not supported with the level Process, whose checkpoints are images")
    if saves_processes is (spec.images is None):
        message = "required with the levels Process and auto, and not supported with App"
        yield Problem(f"{PATH}.images", message)
    if spec.signal is not None:
        yield from _signal_problems(spec)


def _signal_problems(spec: CheckpointSpec) -> Iterator[Problem]:
    if spec.level is not CheckpointLevel.APP:
        message = "not supported with the levels Process and auto, with which the node agent saves"
        yield Problem(f"{PATH}.signal", message)
    if spec.interval is not None:
        message = "not supported with signal, after which the pod ends; the program can save at an interval"
        yield Problem(f"{PATH}.interval", f"{message} of its own")
    if spec.on_drain is DrainPolicy.SAVE:
        yield Problem(f"{PATH}.onDrain", "not supported with signal: an eviction sends SIGTERM itself")


def checkpoint_problems(workload: Workload) -> list[Problem]:
    """Return what keeps a job from storing its checkpoints, or from saving its processes."""
    policy = workload.checkpoint
    problems: list[Problem] = []
    if policy is None:
        return problems
    if policy.uri and not policy.is_shared and workload.rules.regrouping_roles:
        problems.append(Problem(f"{PATH}.store", STORE_OF_REGROUPING_ROLES))
    if policy.scheme == "oci":
        try:
            parse_store(policy.uri)
        except InvalidImageNameError as error:
            problems.append(Problem(f"{PATH}.store", str(error)))
    if policy.images is None:
        return problems
    try:
        parse_repository(f"{policy.images.registry}/{policy.images.repository}")
    except InvalidImageNameError as error:
        problems.append(Problem(f"{PATH}.images.repository", str(error)))
    if policy.level is CheckpointLevel.PROCESS and (reason := process_saves.obstacle(workload)):
        problems.append(Problem(f"{PATH}.level", f'invalid value "Process": {reason}; must be App'))
    return problems


def checkpoint_conditions(record: Record) -> Sequence[CheckpointCondition]:
    """Return the conditions of a job with checkpoints: whether there is a good one, and whether progress was
    lost."""
    return _checkpoint_ready(record), _progress_lost(record)


def checkpoint_status(workload: Workload | None, record: Record) -> CheckpointStatus | None:
    """Return the last good checkpoint; None for a job that keeps none."""
    if workload is None or workload.checkpoint is None:
        return None
    saved, order = record.saved, record.order_in_force
    message = checkpoint_messages.ordered(order) if order and not record.finished_at else ""
    if saved is None:
        return CheckpointStatus(uri=workload.checkpoint.uri, steps_lost=record.steps_lost, message=message)
    return CheckpointStatus(
        last_step=None if saved.level else saved.step,
        last_time=saved.at,
        digest=saved.digest,
        uri=workload.checkpoint.uri,
        size=saved.size,
        steps_lost=record.steps_lost,
        level=saved.level,
        images=dict(saved.images),
        message=message,
    )


def recoveries(record: Record) -> list[RecoveryStatus]:
    """Return the last losses of pods, the oldest first."""
    return [
        RecoveryStatus(
            cause=recovery.cause,
            action=recovery.action,
            time=recovery.since,
            source=recovery.source,
            deadline=recovery.deadline,
            saved_step=None if recovery.saved_level else recovery.saved_step,
            restored_from=None if recovery.saved_level else recovery.restored_step,
            reached_step=recovery.reached_step,
            steps_lost=recovery.steps_lost,
            outcome=recovery.outcome,
            message=checkpoint_messages.recovery(recovery),
        )
        for recovery in record.recoveries
    ]


def _checkpoint_ready(record: Record) -> CheckpointCondition:
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
    return CheckpointCondition(CHECKPOINT_READY, status, reason, at, message)


def _progress_lost(record: Record) -> CheckpointCondition:
    """Return whether the last loss of pods has cost progress, and no checkpoint was saved since."""
    assert record.phase_since
    last = next((recovery for recovery in reversed(record.recoveries) if recovery.ended_at), None)
    saved_at = record.saved.at if record.saved else None
    if last is None or last.ended_at is None or last.outcome not in _MAY_HAVE_LOST:
        at = last.ended_at if last and last.ended_at else record.phase_since
        return CheckpointCondition(PROGRESS_LOST, "False", reasons.NO_LOSS, at)
    if saved_at is not None and saved_at > last.ended_at:
        return CheckpointCondition(PROGRESS_LOST, "False", reasons.CHECKPOINTED, saved_at)
    message = checkpoint_messages.recovery(last)
    if last.outcome == RecoveryOutcome.SIGNALLED:
        return CheckpointCondition(PROGRESS_LOST, "Unknown", reasons.SIGNALLED, last.ended_at, message)
    reason = reasons.CHECKPOINT_OUTDATED
    if last.saved_step is None:
        reason = reasons.NO_CHECKPOINT_FOUND
    elif last.restored_step is not None and last.restored_step < last.saved_step:
        reason = reasons.CHECKPOINT_INVALID
    return CheckpointCondition(PROGRESS_LOST, "True", reason, last.ended_at, message)
