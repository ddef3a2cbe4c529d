"""The condition Ready of CheckpointRestores and StatefulMigrations, and its reasons."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from argosy.kinds.status_condition import StatusCondition
from argosy.workload import reasons

READY: Final = "Ready"

BACKUP_NOT_FOUND: Final = "BackupNotFound"
"""The CheckpointBackup does not exist (yet)."""
BACKUP_NOT_READY: Final = "BackupNotReady"
"""It is not complete."""
BACKUP_FAILED: Final = "BackupFailed"
POD_EXISTS: Final = "PodExists"
"""Another pod has the name."""
POD_INVALID: Final = "PodInvalid"
"""The API server does not accept the pod."""
POD_PENDING: Final = "PodPending"
"""The pod does not run yet."""
POD_LOST: Final = "PodLost"
"""The pod ended, or was deleted, before it ran."""
RESTORED: Final = "Restored"

BACKUPS_CREATED: Final = "BackupsCreated"
NO_PODS: Final = "NoPods"
"""The workload has no pods."""
RESOURCE_NOT_FOUND: Final = "ResourceNotFound"
UNSUPPORTED_KIND: Final = "UnsupportedKind"
CLUSTER_UNKNOWN: Final = "ClusterUnknown"
"""Pods of other clusters than this one are not checkpointed."""
INVALID_SPEC: Final = reasons.INVALID_SPEC
BACKUP_REJECTED: Final = "BackupRejected"
"""The API server does not accept a CheckpointBackup."""


def with_ready(
    conditions: Sequence[StatusCondition],
    status: str,
    reason: str,
    message: str,
    generation: int,
    now: datetime,
) -> list[StatusCondition]:
    """Return the conditions with another Ready; its time changes with its status."""
    others = [item for item in conditions if item.type != READY]
    current = next((item for item in conditions if item.type == READY), None)
    keep = current is not None and current.status == status
    since = current.last_transition_time if current is not None and keep else now.replace(microsecond=0)
    return [*others, StatusCondition(READY, status, reason, message, since, generation)]
