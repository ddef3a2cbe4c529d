"""Types and reasons of conditions, and reasons of Events, of SpotInstanceJobs."""

from typing import Final

# Types of conditions.
ACCEPTED: Final = "Accepted"
CREDENTIALS_READY: Final = "CredentialsReady"
JOIN_CONFIG_READY: Final = "JoinConfigReady"
INSTANCES_READY: Final = "InstancesReady"
CHECKPOINT_READY: Final = "CheckpointReady"
RECOVERING: Final = "Recovering"
PROGRESS_LOST: Final = "ProgressLost"
DEGRADED: Final = "Degraded"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"

# Reasons of Accepted.
INVALID_SPEC: Final = "InvalidSpec"
TEMPLATE_NOT_FOUND: Final = "TemplateNotFound"
INVALID_IMAGE_REPO: Final = "InvalidImageRepo"
INVALID_JOB_TEMPLATE: Final = "InvalidJobTemplate"
UNSUPPORTED_JOB_TEMPLATE: Final = "UnsupportedJobTemplate"

# Reasons of CredentialsReady, JoinConfigReady and InstancesReady; others are those of the instances.
NOT_REQUIRED: Final = "NotRequired"
ALL_READY: Final = "AllReady"
PROVISIONING: Final = "Provisioning"
TERMINAL_INSTANCE_REASONS: Final = ("JoinAttemptsExhausted", "PermissionDenied", "InvalidRequest")
"""Reasons for which no VM is bought any more until something is changed."""

# Reasons of CheckpointReady.
CHECKPOINT_COMPLETED: Final = "CheckpointCompleted"
NO_CHECKPOINT_YET: Final = "NoCheckpointYet"
CHECKPOINT_UNAVAILABLE: Final = "CheckpointUnavailable"
CHECKPOINT_FAILED: Final = "CheckpointFailed"
CHECKPOINT_TIMEOUT: Final = "CheckpointTimeout"

# Reasons of the other conditions.
RECOVERED: Final = "Recovered"
NO_CHECKPOINT_FOUND: Final = "NoCheckpointFound"
CHECKPOINT_INVALID: Final = "CheckpointInvalid"
CHECKPOINTED: Final = "Checkpointed"
REPLICA_FAILED: Final = "ReplicaFailed"
REPLICA_MISSING: Final = "ReplicaMissing"
ALL_REPLICAS: Final = "AllReplicas"
REPLICA_SUCCEEDED: Final = "ReplicaSucceeded"
RESTART_LIMIT_EXCEEDED: Final = "RestartLimitExceeded"

# Reasons of Events, besides those that are also reasons of conditions.
INSTANCE_DELETED: Final = "InstanceDeleted"
JOB_CREATED: Final = "JobCreated"
JOB_DELETED: Final = "JobDeleted"
CHECKPOINT_REQUESTED: Final = "CheckpointRequested"
PREEMPTION_NOTICE: Final = "PreemptionNotice"
RECOVERY_STARTED: Final = "RecoveryStarted"
RECOVERY_COMPLETED: Final = "RecoveryCompleted"
RESTORE_UNSUPPORTED: Final = "RestoreUnsupported"
TEMPLATE_CHANGED: Final = "TemplateChanged"
SUCCEEDED: Final = "Succeeded"
