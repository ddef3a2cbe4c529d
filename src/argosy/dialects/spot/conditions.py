"""Computes the conditions of a SpotInstanceJob."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from argosy.capacity import reasons as machine_reasons
from argosy.dialects.spot import reasons
from argosy.dialects.spot.job_spec import Rejection
from argosy.dialects.spot.launch import place_problem
from argosy.dialects.spot.observed import ObservedJob
from argosy.dialects.spot.record import Replica, SpotJobRecord
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.kinds.status_condition import StatusCondition

ConditionStatus = Literal["True", "False", "Unknown"]


class Stated(Struct, frozen=True):
    """The wanted content of a condition."""

    type: str
    status: ConditionStatus
    reason: str
    message: str = ""


def update_conditions(
    before: Sequence[StatusCondition], stated: Sequence[Stated], generation: int, now: datetime
) -> list[StatusCondition]:
    """Return the conditions with what is stated; a condition that is not stated stays."""
    conditions = {condition.type: condition for condition in before}
    for new in stated:
        old = conditions.get(new.type)
        since = old.last_transition_time if old is not None and old.status == new.status else now
        conditions[new.type] = StatusCondition(
            new.type, new.status, new.reason, new.message, since, generation
        )
    return list(conditions.values())


def rejected(rejection: Rejection) -> Stated:
    return Stated(reasons.ACCEPTED, "False", rejection.reason, rejection.message)


def job_conditions(
    record: SpotJobRecord, observed: ObservedJob, before: Sequence[StatusCondition]
) -> list[Stated]:
    """Return the conditions of a job that is accepted."""
    earlier = {condition.type: condition for condition in before}
    return [
        Stated(reasons.ACCEPTED, "True", reasons.ACCEPTED),
        *_instance_conditions(record, observed),
        *_checkpoint_condition(record, observed),
        *_recovery_conditions(record, earlier),
        *_degraded(record, observed, earlier),
        *_end_conditions(record, observed),
    ]


def instance_problem(record: SpotJobRecord, observed: ObservedJob) -> Stated | None:
    """Return why a VM of the job is not ready, as its ProvisionedInstance says."""
    problems = [
        problem
        for replica in record.replicas
        if (instance := observed.instance_of(replica.current)) is not None
        and (problem := _false(instance, machine_reasons.PROVISIONED, machine_reasons.NODE_READY)) is not None
    ]
    terminal = [problem for problem in problems if problem.reason in reasons.TERMINAL_INSTANCE_REASONS]
    return next(iter([*terminal, *problems]), None)


def _instance_conditions(record: SpotJobRecord, observed: ObservedJob) -> Iterator[Stated]:
    bought = [
        (replica, observed.instance_of(replica.current))
        for replica in record.replicas
        if replica.current.instance and not replica.failure_message
    ]
    for kind in (reasons.CREDENTIALS_READY, reasons.JOIN_CONFIG_READY):
        if not bought:
            yield Stated(kind, "True", reasons.NOT_REQUIRED)
            continue
        found = [instance for _, instance in bought if instance is not None]
        problem = next((p for instance in found if (p := _false(instance, kind)) is not None), None)
        ready = any(c.type == kind and c.status == "True" for i in found for c in i.status.conditions)
        if problem is not None:
            yield problem
        elif ready:
            yield Stated(kind, "True", reasons.FOUND)
    placeless = any(not (r.current.node or r.current.instance or r.failure_message) for r in record.replicas)
    if observed.template is None and placeless:
        job = observed.job
        text = f"{job.template.kind.__name__} {job.namespace}/{job.template.name} does not exist"
        yield Stated(reasons.INSTANCES_READY, "False", reasons.TEMPLATE_NOT_FOUND, text)
        return
    if not bought:
        yield Stated(reasons.INSTANCES_READY, "True", reasons.NOT_REQUIRED)
        return
    waiting = [
        (replica, place_problem(replica, observed)) for replica, _ in bought if not replica.current.job
    ]
    if not any(problem for _, problem in waiting):
        yield Stated(reasons.INSTANCES_READY, "True", reasons.ALL_READY)
        return
    problem = instance_problem(record, observed)
    text = "; ".join(f"replica {replica.index}: {text}" for replica, text in waiting if text)
    reason = problem.reason if problem else reasons.PROVISIONING
    message = problem.message if problem and problem.message else text
    yield Stated(reasons.INSTANCES_READY, "False", reason, message)


def _false(instance: ProvisionedInstance, *kinds: str) -> Stated | None:
    for condition in instance.status.conditions:
        if condition.type in kinds and condition.status == "False":
            return Stated(condition.type, "False", condition.reason, condition.message)
    return None


def _checkpoint_condition(record: SpotJobRecord, observed: ObservedJob) -> Iterator[Stated]:
    if not observed.backups_served and observed.job.level != "App":
        message = "kind CheckpointBackup is not served by this cluster"
        yield Stated(reasons.CHECKPOINT_READY, "False", reasons.CHECKPOINT_UNAVAILABLE, message)
    elif record.checkpoint_problem is not None and (
        record.checkpoint_problem[0] != reasons.CHECKPOINT_UNAVAILABLE
    ):
        yield Stated(reasons.CHECKPOINT_READY, "False", *record.checkpoint_problem)
    elif record.checkpoint is None:
        yield Stated(reasons.CHECKPOINT_READY, "Unknown", reasons.NO_CHECKPOINT_YET)
    else:
        message = record.checkpoint.image or (f"step {record.saved.step}" if record.saved else "")
        yield Stated(reasons.CHECKPOINT_READY, "True", reasons.CHECKPOINT_COMPLETED, message)


def _recovery_conditions(record: SpotJobRecord, earlier: dict[str, StatusCondition]) -> Iterator[Stated]:
    recovering = [replica for replica in record.replicas if replica.recovery and replica.recovery.cause]
    if recovering and not record.ended:
        recovery = recovering[0].recovery
        assert recovery is not None
        names = ", ".join(str(replica.index) for replica in recovering)
        yield Stated(reasons.RECOVERING, "True", recovery.cause, f"replicas {names}")
    elif reasons.RECOVERING in earlier:
        yield Stated(reasons.RECOVERING, "False", reasons.RECOVERED)
    if record.progress_lost is not None:
        yield Stated(reasons.PROGRESS_LOST, "True", *record.progress_lost)
    elif reasons.PROGRESS_LOST in earlier:
        yield Stated(reasons.PROGRESS_LOST, "False", reasons.CHECKPOINTED)


def _degraded(
    record: SpotJobRecord, observed: ObservedJob, earlier: dict[str, StatusCondition]
) -> Iterator[Stated]:
    failed = [replica for replica in record.replicas if replica.failure_message]
    if failed:
        text = "; ".join(f"replica {replica.index}: {replica.failure_message}" for replica in failed)
        yield Stated(reasons.DEGRADED, "True", reasons.REPLICA_FAILED, text)
        return
    if record.ended:
        return
    missing = [r.index for r in record.replicas if observed.running_pod(r.current) is None]
    if missing and (reasons.DEGRADED in earlier or any(_has_run(r) for r in record.replicas)):
        text = f"replicas {', '.join(map(str, missing))} do not run"
        yield Stated(reasons.DEGRADED, "True", reasons.REPLICA_MISSING, text)
    elif not missing:
        yield Stated(reasons.DEGRADED, "False", reasons.ALL_REPLICAS)


def _has_run(replica: Replica) -> bool:
    return bool(replica.interval_pod_uid) or replica.current.number > 0


def _end_conditions(record: SpotJobRecord, observed: ObservedJob) -> Iterator[Stated]:
    if record.ended == "Succeeded":
        yield Stated(
            reasons.COMPLETE, "True", reasons.REPLICA_SUCCEEDED, f"replica {record.winner} has succeeded"
        )
        return
    if record.ended == "Failed":
        text = "; ".join(f"replica {replica.index}: {replica.failure_message}" for replica in record.replicas)
        yield Stated(reasons.FAILED, "True", reasons.RESTART_LIMIT_EXCEEDED, text)
        return
    problem = instance_problem(record, observed)
    terminal = problem is not None and problem.reason in reasons.TERMINAL_INSTANCE_REASONS
    if problem is not None and terminal and not any(observed.running_pod(r.current) for r in record.replicas):
        yield Stated(reasons.FAILED, "True", problem.reason, problem.message)
    else:
        yield Stated(reasons.FAILED, "False", reasons.ACCEPTED)
