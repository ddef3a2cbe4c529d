"""Builds the status of a CheckpointBackup after each step.

The condition Ready has the reasons of Kubernetes' PodCheckpoint. Its last transition is when the checkpoint
that is under way began, or when the last one ended.
"""

from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from argosy.checkpoint import reasons
from argosy.kinds import migration as phases
from argosy.kinds.migration import (
    BuiltImage,
    CheckpointBackup,
    CheckpointBackupStatus,
    CheckpointFile,
    CompletedCheckpoint,
)
from argosy.kinds.status_condition import StatusCondition

READY: Final = "Ready"
RETRYING: Final = "retrying: "
"""What the message begins with while a step is repeated."""
RETRY_TIME = timedelta(minutes=10)
"""How long a step that fails for a temporary reason is repeated."""


def ready_changed_at(status: CheckpointBackupStatus) -> datetime | None:
    """Return when the condition Ready last changed: the begin of a checkpoint under way, else its end."""
    times = (item.last_transition_time for item in status.conditions if item.type == READY)
    return next(times, None)


def may_retry(status: CheckpointBackupStatus, now: datetime) -> bool:
    """Return True while a step that failed for a temporary reason is repeated."""
    since = ready_changed_at(status)
    return since is None or now - since < RETRY_TIME


def without_retry(status: CheckpointBackupStatus) -> CheckpointBackupStatus:
    """Return the status without the message about a step that is repeated."""
    if not status.message.startswith(RETRYING):
        return status
    message = next((item.message for item in status.conditions if item.type == READY), "")
    return replace(status, message=message)


def with_begin(
    backup: CheckpointBackup,
    node: str,
    pod_uid: str,
    template: dict[str, object],
    containers: int,
    now: datetime,
) -> CheckpointBackupStatus:
    """Return the status at the begin of a checkpoint."""
    at = now.replace(microsecond=0)
    message = "the containers are checkpointed one after the other" if containers > 1 else ""
    old = backup.status
    return CheckpointBackupStatus(
        phase=phases.CHECKPOINTING,
        message=message,
        observed_generation=backup.metadata.generation,
        conditions=_with_ready(backup, "False", reasons.CHECKPOINT_IN_PROGRESS, message, at, restart=True),
        last_checkpoint_time=old.last_checkpoint_time,
        node_name=node,
        source_pod_uid=pod_uid,
        checkpointed_pod_template=template,
        last_completed=_last_completed(old),
    )


def _last_completed(status: CheckpointBackupStatus) -> CompletedCheckpoint | None:
    """Return the images that stay in the registry while others are made: those of the last complete round."""
    images = status.built_images
    if status.phase not in phases.GOOD_PHASES or not images or not all(image.pushed for image in images):
        return status.last_completed
    return CompletedCheckpoint(
        completion_time=status.completion_time,
        last_checkpoint_time=status.last_checkpoint_time,
        source_pod_uid=status.source_pod_uid,
        built_images=images,
        digests=status.digests,
    )


def with_archive(
    status: CheckpointBackupStatus, container: str, path: str, size: int, at: datetime
) -> CheckpointBackupStatus:
    """Return the status with the archive of a container."""
    file = CheckpointFile(container, path, checkpoint_time=at)
    return replace(
        status,
        checkpoint_files=[*status.checkpoint_files, file],
        last_checkpoint_time=at,
        size=status.size + size,
    )


def with_stored_archive(status: CheckpointBackupStatus, container: str, path: str) -> CheckpointBackupStatus:
    """Return the status with the place of an archive in the claim for checkpoints."""
    files = [
        replace(item, storage_path=path) if item.container_name == container else item
        for item in status.checkpoint_files
    ]
    return replace(status, checkpoint_files=files)


def with_image(
    status: CheckpointBackupStatus, container: str, image: str, digest: str, note: str, now: datetime
) -> CheckpointBackupStatus:
    """Return the status with the image of a container, which is not pushed yet."""
    item = BuiltImage(container, image, now.replace(microsecond=0))
    return replace(
        status,
        built_images=[*status.built_images, item],
        digests={**status.digests, container: digest},
        message="; ".join(filter(None, (status.message, note))),
    )


def with_pushed_image(status: CheckpointBackupStatus, container: str) -> CheckpointBackupStatus:
    """Return the status after the image of a container was pushed."""
    images = [
        replace(item, pushed=True) if item.container_name == container else item
        for item in status.built_images
    ]
    return replace(status, built_images=images)


def with_phase(status: CheckpointBackupStatus, phase: str) -> CheckpointBackupStatus:
    """Return the status in another phase."""
    return replace(status, phase=phase)


def with_completion(backup: CheckpointBackup, error: str, now: datetime) -> CheckpointBackupStatus:
    """Return the status of a complete checkpoint; `error` is what failed afterwards."""
    stop, at = backup.spec.stop_pod is True, now.replace(microsecond=0)
    phase = phases.COMPLETED_POD_DELETED if stop else phases.COMPLETED
    message = backup.status.message
    if error:
        phase, message = phases.COMPLETED_WITH_ERROR, error
    return replace(
        backup.status,
        phase=phase,
        message=message,
        completion_time=at,
        last_completed=None,
        conditions=_with_ready(backup, "True", reasons.CHECKPOINT_COMPLETED, message, at),
    )


def with_failure(backup: CheckpointBackup, message: str, now: datetime) -> CheckpointBackupStatus:
    """Return the status of a checkpoint that could not be made or not be pushed."""
    partly = any(image.pushed for image in backup.status.built_images)
    at = now.replace(microsecond=0)
    return replace(
        backup.status,
        phase=phases.COMPLETED_WITH_ERROR if partly else phases.FAILED,
        message=message,
        observed_generation=backup.metadata.generation,
        completion_time=at,
        conditions=_with_ready(backup, "False", reasons.CHECKPOINT_FAILED, message, at),
    )


def _with_ready(
    backup: CheckpointBackup,
    status: str,
    reason: str,
    message: str,
    now: datetime,
    *,
    restart: bool = False,
) -> list[StatusCondition]:
    """Return the conditions with another Ready; its time changes with the status, or with `restart`."""
    others = [item for item in backup.status.conditions if item.type != READY]
    current = next((item for item in backup.status.conditions if item.type == READY), None)
    keep = current is not None and current.status == status and not restart
    since = current.last_transition_time if current is not None and keep else now
    return [*others, StatusCondition(READY, status, reason, message, since, backup.metadata.generation)]
