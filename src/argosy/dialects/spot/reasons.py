"""Lists the types and reasons of conditions, and the reasons of events, of SpotInstanceJobs.

Reasons with the same meaning in all job APIs are in `workload.reasons`, those of VMs in `capacity.reasons`;
some are repeated here by name.
"""

from typing import Final

from argosy.capacity import reasons as machine_reasons
from argosy.workload import reasons

# Types of conditions.

ACCEPTED: Final = reasons.ACCEPTED
"""The spec, the template and the Job template are valid; also the reason of that condition if it is true."""
CREDENTIALS_READY: Final = machine_reasons.CREDENTIALS_READY
"""The Secret with the credentials of the cloud exists and can be used."""
JOIN_CONFIG_READY: Final = machine_reasons.JOIN_CONFIG_READY
"""The Secret by which VMs join the cluster exists and has all its keys."""
INSTANCES_READY: Final = "InstancesReady"
"""All bought VMs are nodes on which Jobs can run."""
CHECKPOINT_READY: Final = "CheckpointReady"
"""There is a verified checkpoint, and the newest one did not fail."""
RECOVERING: Final = "Recovering"
"""At least one lost or failed replica is being replaced; the reason is the cause."""
PROGRESS_LOST: Final = "ProgressLost"
"""A replica has started without its last progress; also an event and an outcome of a recovery."""
DEGRADED: Final = "Degraded"
"""Fewer replicas run than the spec asks for."""
COMPLETE: Final = "Complete"
"""The job has succeeded."""
FAILED: Final = "Failed"
"""The job has failed; also an event, the cause of recoveries after errors of the replica's own, and an
outcome of recoveries."""

# Reasons of Accepted.

INVALID_SPEC: Final = reasons.INVALID_SPEC
"""The spec has invalid fields; the message has their paths."""
TEMPLATE_NOT_FOUND: Final = machine_reasons.TEMPLATE_NOT_FOUND
"""The SpotInstanceVM or InstanceTemplate does not exist."""
INVALID_IMAGE_REPO: Final = "InvalidImageRepo"
"""The repository for checkpoint images is invalid."""
INVALID_JOB_TEMPLATE: Final = "InvalidJobTemplate"
"""The Job template is invalid, or the API server has rejected the Job."""
UNSUPPORTED_JOB_TEMPLATE: Final = "UnsupportedJobTemplate"
"""The Job template has fields that replicas do not support."""

# Reasons of CredentialsReady, JoinConfigReady and InstancesReady; others are those of the instances.

FOUND: Final = machine_reasons.FOUND
"""The Secret exists and has all its keys."""
SECRET_NOT_FOUND: Final = machine_reasons.SECRET_NOT_FOUND
"""The Secret does not exist, or may not be used from this namespace."""
NOT_REQUIRED: Final = "NotRequired"
"""All replicas run on nodes of the cluster, and nothing is bought."""
ALL_READY: Final = machine_reasons.ALL_READY
"""All bought VMs are ready nodes."""
PROVISIONING: Final = machine_reasons.PROVISIONING
"""At least one VM is not a ready node yet."""
TERMINAL_INSTANCE_REASONS: Final = (
    machine_reasons.JOIN_ATTEMPTS_EXHAUSTED,
    machine_reasons.PERMISSION_DENIED,
    machine_reasons.INVALID_REQUEST,
)
"""Reasons for which no VM is bought any more until something is changed."""

# Reasons of CheckpointReady.

CHECKPOINT_COMPLETED: Final = reasons.CHECKPOINT_COMPLETED
"""The newest checkpoint is complete and verified; also an event."""
NO_CHECKPOINT_YET: Final = reasons.NO_CHECKPOINT_YET
"""No checkpoint is complete yet."""
CHECKPOINT_UNAVAILABLE: Final = "CheckpointUnavailable"
"""The cluster does not serve the kind CheckpointBackup."""
CHECKPOINT_FAILED: Final = reasons.CHECKPOINT_FAILED
"""The newest checkpoint could not be made; also an event."""
CHECKPOINT_TIMEOUT: Final = reasons.CHECKPOINT_TIMEOUT
"""The newest checkpoint was not begun or not complete in time; also an event."""

# Reasons of the other conditions, and outcomes of recoveries.

RECOVERED: Final = "Recovered"
"""No replica is being replaced any more. As an outcome: the replica continues from a checkpoint that is known
to be good."""
SUPERSEDED: Final = "Superseded"
"""Outcome of a recovery that something else has ended: the next loss, a scale-down, or the end of the job."""
UNKNOWN: Final = machine_reasons.UNKNOWN
"""Outcome of a recovery after which the training resumes by itself, and nothing shows what it has saved."""
NO_CHECKPOINT_FOUND: Final = reasons.NO_CHECKPOINT_FOUND
"""Training starts from the beginning: there is no checkpoint."""
CHECKPOINT_INVALID: Final = reasons.CHECKPOINT_INVALID
"""Training starts from the beginning: the registry does not have the images of any checkpoint."""
CHECKPOINTED: Final = reasons.CHECKPOINTED
"""A checkpoint was completed since progress was lost."""
REPLICA_FAILED: Final = "ReplicaFailed"
"""A replica has failed and is not restarted any more; also an event."""
REPLICA_MISSING: Final = "ReplicaMissing"
"""A replica does not run, and will."""
ALL_REPLICAS: Final = "AllReplicas"
"""All replicas run."""
REPLICA_SUCCEEDED: Final = "ReplicaSucceeded"
"""A replica has succeeded, and with it the job."""
RESTART_LIMIT_EXCEEDED: Final = "RestartLimitExceeded"
"""All replicas have failed and are not restarted any more."""

# Reasons of events, besides those that are also reasons of conditions.

INSTANCE_REQUESTED: Final = machine_reasons.INSTANCE_REQUESTED
"""A VM is bought for a replica."""
INSTANCE_DELETED: Final = machine_reasons.INSTANCE_DELETED
"""A VM was deleted."""
JOB_CREATED: Final = "JobCreated"
"""The Job of a replica was created."""
JOB_DELETED: Final = "JobDeleted"
"""The Job of a lost incarnation was deleted."""
CHECKPOINT_REQUESTED: Final = "CheckpointRequested"
"""A checkpoint of a replica was ordered."""
PREEMPTION_NOTICE: Final = machine_reasons.PREEMPTION_NOTICE
"""The node of a replica is lost or will be; the message has the cause and who has reported it."""
RECOVERY_STARTED: Final = "RecoveryStarted"
"""A lost or failed replica is being replaced."""
RECOVERY_COMPLETED: Final = "RecoveryCompleted"
"""A replaced replica runs again."""
RESTORE_UNSUPPORTED: Final = "RestoreUnsupported"
"""A node cannot restore checkpoint images; the training resumes from its own checkpoint."""
TEMPLATE_CHANGED: Final = "TemplateChanged"
"""The Job template or the template of VMs was changed; the next incarnations use it."""
SUCCEEDED: Final = "Succeeded"
"""The job has succeeded."""
