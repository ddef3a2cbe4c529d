"""Renders CheckpointBackups, and tells which of them are good and which are kept.

An agent may be an older one that knows no digests and no times of its own, so nothing but the phase and the
built images is needed.
"""

from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

from argosy.checkpoint.image_names import InvalidImageNameError, Repository, checkpoint_tag, with_registry
from argosy.dialects.spot import names
from argosy.dialects.spot.job_spec import SpotJob
from argosy.dialects.spot.record import Backup
from argosy.kinds.migration import GOOD_PHASES, IMMEDIATELY, TERMINAL_PHASES, CheckpointBackup
from argosy.kinds.spot import REPLICA_JOB_LABEL, REPLICA_LABEL
from argosy.plan.children import Child

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def backup_object(job: SpotJob, backup: Backup) -> Child:
    """Return the CheckpointBackup of a replica's pod."""
    registry: dict[str, object] = {"url": job.repository.registry, "repository": job.repository.path}
    if job.registry_credentials is not None:
        secret = job.registry_credentials
        registry["secretRef"] = {"name": secret.name, "namespace": secret.namespace or job.namespace}
    labels = {
        **names.replica_labels(job.name, backup.index),
        REPLICA_JOB_LABEL: names.label_value(backup.job),
    }
    body = {
        "apiVersion": CheckpointBackup.resource.api_version,
        "kind": CheckpointBackup.resource.kind,
        "metadata": {"labels": labels},
        "spec": {
            "schedule": IMMEDIATELY,
            "stopPod": False,
            "podRef": {"name": backup.pod, "namespace": job.namespace},
            "resourceRef": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": backup.job,
                "namespace": job.namespace,
            },
            "registry": registry,
            "containers": [
                {"name": name, "image": f"{job.repository.path}:{checkpoint_tag(name, backup.stamp)}"}
                for name in job.containers
            ],
        },
    }
    return Child(CheckpointBackup, backup.name, body)


def is_terminal(backup: CheckpointBackup) -> bool:
    """Return True if the backup has ended. A phase that is not known has not."""
    return backup.status.phase in TERMINAL_PHASES


def good_images(
    backup: CheckpointBackup, containers: Collection[str], repository: Repository
) -> dict[str, str]:
    """Return the whole names of the images of a good backup by container; empty if it is not good."""
    if backup.status.phase not in GOOD_PHASES:
        return {}
    images: dict[str, str] = {}
    for built in backup.status.built_images:
        if built.container_name in containers and built.pushed:
            try:
                images[built.container_name] = str(with_registry(repository.registry, built.image_name))
            except InvalidImageNameError:
                return {}
    return images if set(images) == set(containers) else {}


def completed_at(backup: CheckpointBackup) -> datetime:
    """Return when a backup was completed, as far as the agent said."""
    status = backup.status
    built = [image.build_time for image in status.built_images if image.build_time is not None]
    times = (
        status.completion_time,
        status.last_checkpoint_time,
        max(built, default=None),
        backup.metadata.creation_timestamp,
    )
    return next((time for time in times if time is not None), LONG_AGO)


def newest_good(
    backups: Iterable[CheckpointBackup], containers: Collection[str], repository: Repository
) -> list[CheckpointBackup]:
    """Return the good backups, the newest first."""
    good = [backup for backup in backups if good_images(backup, containers, repository)]
    return sorted(good, key=lambda backup: (completed_at(backup), backup.metadata.name), reverse=True)


def surplus(
    backups: Iterable[CheckpointBackup], keep_last: int, used: Collection[str]
) -> Iterator[CheckpointBackup]:
    """Yield finished backups beyond those that are kept of each replica; used ones always are."""
    by_replica: dict[tuple[str, bool], list[CheckpointBackup]] = {}
    for backup in backups:
        if is_terminal(backup) and backup.metadata.deletion_timestamp is None:
            key = backup.metadata.labels.get(REPLICA_LABEL, ""), backup.status.phase in GOOD_PHASES
            by_replica.setdefault(key, []).append(backup)
    for group in by_replica.values():
        newest_first = sorted(group, key=lambda b: (completed_at(b), b.metadata.name), reverse=True)
        yield from (backup for backup in newest_first[keep_last:] if backup.metadata.name not in used)
