"""Removes what a SpotInstanceJob has left when it has ended, and when it is being deleted."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from argosy.dialects.spot.backups import is_terminal
from argosy.dialects.spot.record import SpotJobRecord, encode
from argosy.kinds.kubernetes import Job
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot import ReplicaStatus, SpotInstanceJob
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Remove
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import Decision, Inputs
from argosy.plan.diff import remove

DELETED_KINDS: tuple[type[KubernetesObject], ...] = (CheckpointBackup, Job, ProvisionedInstance)
"""A job that is being deleted waits until no object of these kinds is left."""


def delete_job(obj: SpotInstanceJob, inputs: Inputs) -> Decision:
    """Remove everything that belongs to the job; it is released when all of it is gone."""
    left = [child for kind in DELETED_KINDS for child in inputs.owned(kind)]
    status = replace(obj.status, phase="Deleting")
    return Decision(status, _removals(left), released=not left)


def finished_children(record: SpotJobRecord, inputs: Inputs) -> list[KubernetesObject]:
    """Return what goes when the job has ended: VMs, unfinished backups, and Jobs that have not ended."""
    winner = next((r.current.job for r in record.replicas if r.index == record.winner), "")
    failed = {r.current.job for r in record.replicas if r.failure_message}
    return [
        *(backup for backup in inputs.owned(CheckpointBackup) if not is_terminal(backup)),
        *(job for job in inputs.owned(Job) if job.metadata.name not in {winner, *failed}),
        *inputs.owned(ProvisionedInstance),
    ]


def finish_job(
    obj: SpotInstanceJob, record: SpotJobRecord, ttl: int | None, inputs: Inputs, now: datetime
) -> Decision:
    """Remove what an ended job has left, and after its time to live also the Jobs that have ended."""
    left = finished_children(record, inputs)
    expires = None
    if ttl is not None and record.ended_at is not None:
        expires = record.ended_at + timedelta(seconds=ttl)
        if now >= expires:
            expires, left = None, [*left, *(job for job in inputs.owned(Job) if job not in left)]
    instances = inputs.owned(ProvisionedInstance)
    status = replace(
        obj.status,
        active_replicas=0,
        job_statuses=[
            replace(item, role="", phase=_last_phase(item, record)) for item in obj.status.job_statuses
        ],
        cost_per_hour=obj.status.cost_per_hour if instances else "",
        zones=obj.status.zones if instances else "",
        argosy=encode(record),
    )
    return Decision(status, _removals(left), requeue_at=expires)


def _last_phase(replica: ReplicaStatus, record: SpotJobRecord) -> str:
    """Return the phase of a replica of an ended job; one that was stopped did not fail."""
    if replica.index == record.winner:
        return "Succeeded"
    return (
        "Failed"
        if any(r.index == replica.index and r.failure_message for r in record.replicas)
        else "Pending"
    )


def _removals(children: Iterable[KubernetesObject]) -> tuple[Remove, ...]:
    return tuple(remove(child) for child in children if child.metadata.deletion_timestamp is None)
