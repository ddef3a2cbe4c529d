"""Lists the reasons of the condition Ready of CheckpointRestores and StatefulMigrations.

A change of the reason is also an event.
"""

from typing import Final

from argosy.workload import reasons

# CheckpointRestores.

BACKUP_NOT_FOUND: Final = "BackupNotFound"
"""The CheckpointBackup does not exist (yet)."""
BACKUP_NOT_READY: Final = "BackupNotReady"
"""The CheckpointBackup is not complete."""
BACKUP_FAILED: Final = "BackupFailed"
"""The CheckpointBackup has failed."""
POD_EXISTS: Final = "PodExists"
"""Another pod has the name."""
POD_INVALID: Final = "PodInvalid"
"""The API server does not accept the pod."""
POD_PENDING: Final = "PodPending"
"""The pod does not run yet."""
POD_LOST: Final = "PodLost"
"""The pod ended, or was deleted, before it ran."""
RESTORED: Final = "Restored"
"""The pod runs."""

# StatefulMigrations.

BACKUPS_CREATED: Final = "BackupsCreated"
"""There is a CheckpointBackup for each pod of the workload."""
NO_PODS: Final = "NoPods"
"""The workload has no pods."""
RESOURCE_NOT_FOUND: Final = "ResourceNotFound"
"""The workload does not exist."""
UNSUPPORTED_KIND: Final = "UnsupportedKind"
"""The kind of the workload is not supported."""
CLUSTER_UNKNOWN: Final = "ClusterUnknown"
"""A source cluster is neither this one nor a member of Karmada; its pods are not checkpointed."""
INVALID_SPEC: Final = reasons.INVALID_SPEC
"""The spec is invalid; the message has the path of the field."""
BACKUP_REJECTED: Final = "BackupRejected"
"""The API server does not accept a CheckpointBackup."""
POLICY_REJECTED: Final = "PolicyRejected"
"""The API server does not accept a PropagationPolicy of Karmada, or another object has its name."""
