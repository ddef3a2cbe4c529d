"""Builds the status of a SpotInstanceJob from its Record and what is observed."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec.structs import replace

from argosy.dialects.spot import reasons
from argosy.dialects.spot.conditions import Stated, job_conditions, update_conditions
from argosy.dialects.spot.launch import place_problem
from argosy.dialects.spot.observed import ObservedJob
from argosy.dialects.spot.record import Replica, SpotJobRecord, encode
from argosy.dialects.spot.recovery import end_outcome
from argosy.dialects.spot.roles import PRIMARY, STANDBY, primary_index
from argosy.dialects.spot.usage import usage_status
from argosy.kinds.spot import RecoveryStatus, ReplicaStatus, SpotInstanceJobStatus
from argosy.workload.capacity import parse_hourly_price

MAX_RECOVERIES = 10


def job_status(
    before: SpotInstanceJobStatus,
    record: SpotJobRecord,
    observed: ObservedJob,
    recoveries: Sequence[RecoveryStatus],
) -> SpotInstanceJobStatus:
    """Return the whole status of a job that is accepted."""
    job, now = observed.job, observed.now
    conditions = update_conditions(
        before.conditions, job_conditions(record, observed, before.conditions), job.generation, now
    )
    failed = any(c.type == reasons.FAILED and c.status == "True" for c in conditions)
    checkpoint = record.checkpoint
    zones = {
        instance.status.zone
        for replica in record.replicas
        if (instance := observed.instance_of(replica.current)) is not None and instance.status.zone
    }
    return SpotInstanceJobStatus(
        active_replicas=sum(_is_active(replica, observed) for replica in record.replicas),
        last_checkpoint_time=checkpoint.time if checkpoint else None,
        last_checkpoint_image=checkpoint.image if checkpoint else "",
        last_checkpoint_step=record.saved.step if record.saved else None,
        job_statuses=[_replica_status(replica, record, observed) for replica in record.replicas],
        conditions=conditions,
        phase=_phase(record, observed, failed),
        observed_generation=job.generation,
        preemption_count=sum(replica.preemptions for replica in record.replicas) + record.removed_preemptions,
        zones=",".join(sorted(zones)),
        cost_per_hour=_cost_per_hour(observed),
        saved_per_hour=_saved_per_hour(observed),
        recoveries=list(recoveries)[-MAX_RECOVERIES:],
        usage=usage_status(record),
        argosy=encode(record),
    )


def refused_status(
    before: SpotInstanceJobStatus,
    stated: Stated,
    record: SpotJobRecord | None,
    generation: int,
    now: datetime,
) -> SpotInstanceJobStatus:
    """Return the status of a job for which nothing is created; what runs goes on."""
    conditions = update_conditions(before.conditions, [stated], generation, now)
    return replace(
        before,
        conditions=conditions,
        phase=before.phase or "Pending",
        observed_generation=generation,
        argosy=encode(record) if record is not None else before.argosy,
    )


def update_recoveries(
    before: Sequence[RecoveryStatus], old: SpotJobRecord, new: SpotJobRecord, now: datetime
) -> list[RecoveryStatus]:
    """Return the list of recoveries with what has changed in those that are going on."""
    entries = {entry.id: entry for entry in before}
    for replica in new.replicas:
        recovery = replica.recovery
        if recovery is not None and recovery.cause:
            entry = entries.get(recovery.id) or RecoveryStatus(recovery.id, start_time=now)
            source = recovery.source
            entries[recovery.id] = replace(
                entry,
                index=replica.index,
                incarnation=replica.current.number,
                cause=recovery.cause,
                sources=list(recovery.sources),
                notice_time=recovery.notice_time,
                deadline=recovery.deadline,
                action=recovery.action,
                restored_from=source.found,
                digest=source.digest,
            )
    active = {r.recovery.id for r in new.replicas if r.recovery is not None}
    for replica in old.replicas:
        if replica.recovery is None or replica.recovery.id in active or replica.recovery.id not in entries:
            continue
        entry = entries[replica.recovery.id]
        entries[entry.id] = replace(entry, completion_time=now, outcome=_outcome(replica, new))
    return list(entries.values())[-MAX_RECOVERIES:]


def _outcome(replica: Replica, new: SpotJobRecord) -> str:
    """Return how the recovery of a replica has ended, which is not going on any more."""
    following = next((r for r in new.replicas if r.index == replica.index), None)
    if new.ended or following is None:
        return reasons.SUPERSEDED
    if following.failure_message:
        return reasons.FAILED
    if following.current.number != replica.current.number:
        return reasons.SUPERSEDED
    assert replica.recovery is not None
    return end_outcome(following.current, replica.recovery)


def replica_phase(replica: Replica, record: SpotJobRecord, observed: ObservedJob) -> str:
    if replica.failure_message:
        return "Failed"
    if record.winner == replica.index:
        return "Succeeded"
    if replica.recovery is not None and replica.recovery.cause:
        return "Recovering"
    current = replica.current
    if current.job:
        return "Running" if observed.running_pod(current) is not None else "Starting"
    if current.instance and place_problem(replica, observed):
        return "Provisioning"
    return "Pending"


def _phase(record: SpotJobRecord, observed: ObservedJob, failed: bool) -> str:
    if record.ended:
        return record.ended
    if failed:
        return "Failed"
    if any(replica.recovery is not None and replica.recovery.cause for replica in record.replicas):
        return "Recovering"
    if any(observed.running_pod(replica.current) is not None for replica in record.replicas):
        return "Running"
    placed = any(replica.current.node or replica.current.instance for replica in record.replicas)
    return "Provisioning" if placed else "Pending"


def _replica_status(replica: Replica, record: SpotJobRecord, observed: ObservedJob) -> ReplicaStatus:
    current = replica.current
    instance = observed.instance_of(current)
    shown = current.job or (replica.old[-1].job if replica.old else "")
    role = ""
    if observed.running_pod(current) is not None:
        role = PRIMARY if primary_index(record, observed) == replica.index else STANDBY
    return ReplicaStatus(
        name=shown,
        node_name=observed.node_name(current),
        phase=replica_phase(replica, record, observed),
        last_checkpoint_image=replica.image,
        index=replica.index,
        incarnation=current.number,
        instance_name=current.instance,
        zone=instance.status.zone if instance is not None else "",
        price_per_hour=instance.status.price_per_hour if instance is not None else "",
        role=role,
        restarts=replica.restarts,
        preemptions=replica.preemptions,
        start_mode=current.mode if current.job else "",
    )


def _is_active(replica: Replica, observed: ObservedJob) -> bool:
    job = observed.job_of(replica.current)
    return job is not None and job.status.active > 0


def _cost_per_hour(observed: ObservedJob) -> str:
    """Return the price of all VMs of the job; empty if it is not known."""
    prices = (parse_hourly_price(instance.status.price_per_hour) for instance in observed.instances.values())
    return _total(price for price in prices if price is not None)


def _saved_per_hour(observed: ObservedJob) -> str:
    """Return how much more the VMs of the job would cost on demand; empty if that is not known of any."""
    statuses = [instance.status for instance in observed.instances.values()]
    prices = (
        (parse_hourly_price(each.on_demand_price_per_hour), parse_hourly_price(each.price_per_hour))
        for each in statuses
    )
    return _total(listed - paid for listed, paid in prices if listed is not None and paid is not None)


def _total(prices: Iterable[Decimal]) -> str:
    known = list(prices)
    return f"{sum(known):.3f}" if known else ""
