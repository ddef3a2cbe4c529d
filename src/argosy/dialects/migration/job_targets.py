"""Tells which CheckpointBackups are about the pods of Jobs, and what is read of Jobs and CronJobs for that.

Only what the spec says is looked at here. It is the index by which backups are found, so a pod whose Job has
none costs nothing else.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import ClassVar, Final

from msgspec import Struct, field

from argosy.kinds import aresjob, labels, migration, spot, trainingjob
from argosy.kinds.kubernetes import Job
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.migration import MEMBER_CLUSTER, CheckpointBackup
from argosy.kinds.resource import Resource

BY_TARGET: Final = "target"
"""Name of the index of `target_keys`."""
OWN_GROUPS: Final = frozenset(
    {labels.DOMAIN, aresjob.GROUP, trainingjob.GROUP, spot.GROUP, migration.GROUP},
)
"""The API groups whose controllers restore pods themselves, or whose backups are for something else."""
INDEXED: Final = "Indexed"


class BatchJobSpec(Struct, frozen=True, rename="camel"):
    """How many pods do the work of a Job, and what they run."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    template: dict[str, object] = field(default_factory=dict)


class BatchJob(Struct, frozen=True):
    """The Job of a pod."""

    resource: ClassVar[Resource] = Job.resource

    metadata: ObjectMeta
    spec: BatchJobSpec = BatchJobSpec()


class ActiveJob(Struct, frozen=True):
    """A Job of a CronJob that runs."""

    uid: str = ""


class CronJobStatus(Struct, frozen=True, rename="camel"):
    active: list[ActiveJob] = field(default_factory=list)
    last_successful_time: datetime | None = None


class CronJob(Struct, frozen=True):
    """The CronJob of a Job."""

    resource: ClassVar[Resource] = Resource("batch", "v1", "CronJob", "cronjobs")

    metadata: ObjectMeta
    status: CronJobStatus = CronJobStatus()


def target_keys(backup: CheckpointBackup) -> Iterable[str]:
    """Return by what a backup is found: its Job, or the CronJobs of its namespace."""
    target, namespace = backup.spec.resource_ref, backup.metadata.namespace
    if not target.api_version.startswith("batch/") or not concerns_pods(backup):
        return ()
    if target.kind == "Job":
        return (job_key(namespace, target.name),)
    return (cron_job_key(namespace),) if target.kind == "CronJob" else ()


def job_key(namespace: str, name: str) -> str:
    return f"{namespace}/Job/{name}"


def cron_job_key(namespace: str) -> str:
    """Return one key for all CronJobs of a namespace: a pod does not say which one its Job belongs to."""
    return f"{namespace}/CronJob"


def concerns_pods(backup: CheckpointBackup) -> bool:
    """Return True if pods of its target may start from the images that it pushes."""
    metadata, spec, own = backup.metadata, backup.spec, backup.metadata.namespace
    return (
        spec.registry is not None
        and {spec.pod_ref.namespace, spec.resource_ref.namespace} <= {"", own}
        and metadata.deletion_timestamp is None
        and MEMBER_CLUSTER not in metadata.annotations
        and metadata.annotations.get(labels.RESTORE_PODS) != "false"
        and spot.JOB_LABEL not in metadata.labels
        and not is_ours(metadata.controller)
    )


def is_ours(controller: OwnerReference | None) -> bool:
    """Return True if one of our own controllers owns the object."""
    return controller is not None and controller.api_version.partition("/")[0] in OWN_GROUPS


def job_of(pod: ObjectMeta) -> OwnerReference | None:
    """Return the Job of a pod that may be restored; None if there is none."""
    controller = pod.controller
    if controller is None or (controller.api_version, controller.kind) != ("batch/v1", "Job"):
        return None
    if pod.annotations.get(labels.RESTORE_PODS) == "false" or labels.RESTORED_CONTAINERS in pod.annotations:
        return None
    return None if spot.JOB_LABEL in pod.labels else controller


def cron_job_of(job: BatchJob) -> OwnerReference | None:
    """Return the CronJob that controls a Job; None if there is none."""
    controller = job.metadata.controller
    if controller is None or controller.kind != "CronJob":
        return None
    return controller if controller.api_version.startswith("batch/") else None


def backups_of(
    job: BatchJob, cron_job: CronJob | None, backups: Iterable[CheckpointBackup]
) -> Iterator[CheckpointBackup]:
    """Yield the backups whose target is the Job or its CronJob."""
    targets = {("Job", job.metadata.name)}
    if cron_job is not None:
        targets.add(("CronJob", cron_job.metadata.name))
    for backup in backups:
        reference = backup.spec.resource_ref
        if (reference.kind, reference.name) in targets and any(target_keys(backup)):
            yield backup
