"""Lists the reasons in conditions and events of TrainingJobs and scalers that other job APIs do not have.

Those without a note are et-operator's, whose users and tools know them. Reasons of all job APIs are in
`workload.reasons`; of those, TrainingJobs have InvalidSpec, DeadlineExceeded, BelowMinReplicas,
CheckpointCompleted and CheckpointTimeout.
"""

# Conditions of a job, and events.

TRAINING_JOB_CREATED = "TrainingJobCreated"
"""Condition Created: the job was seen for the first time, or is started again."""
TRAINING_JOB_RUNNING = "TrainingJobRunning"
"""Condition Running: the launcher runs."""
TRAINING_JOB_SUCCEEDED = "TrainingJobSucceeded"
"""Condition Succeeded: the launcher succeeded."""
TRAINING_JOB_FAILED = "TrainingJobFailed"
"""Condition Failed: the launcher failed, and its pod has no reason of its own."""
TRAINING_JOB_EVICTED = "TrainingJobEvicted"
"""Condition Failed: the launcher was evicted."""
WAITING_RESOURCE_TIMEOUT = "WaitingResourceTimeout"
"""Condition Suspended: an annotation suspends the job."""
TRAINING_JOB_SUSPENDED = "TrainingJobSuspended"
"""Condition Suspended: the spec suspends the job. Added."""
TRAINING_JOB_RESUMED = "TrainingJobResumed"
"""Condition Suspended is False: nothing suspends the job any more. Added."""
TRAINING_JOB_RESTARTING = "TrainingJobRestarting"
"""Condition Restarting: the launcher failed, and all pods are replaced. Added."""
POD_CREATE_FAILED = "PodCreateFailed"
"""Condition WorkersCreated or LauncherCreated is False: a pod, or an object that it needs, cannot be created
and is tried again. Added."""

# Conditions of a job and of its scalers, and events.

SCALING_START = "ScalingStart"
"""Condition Scaling: a scaler is executed."""
SCALING_IN_SUCCEEDED = "ScalingInSucceeded"
"""Condition ScaleSucceeded: a ScaleIn has removed its workers."""
SCALING_IN_FAILED = "ScalingInFailed"
"""Condition ScaleFailed: a ScaleIn was invalid, or its host list could not be written."""
SCALING_OUT_SUCCEEDED = "ScalingOutSucceeded"
"""Condition ScaleSucceeded: a ScaleOut has added its workers."""
SCALING_OUT_FAILED = "ScalingOutFailed"
"""Condition ScaleFailed: a ScaleOut was invalid, or its workers did not run in time."""
TRAINING_JOB_NOT_FOUND = "TrainingJobNotFound"
"""Condition WaitingForJob of a scaler: there is no job of the name in its selector. Added."""

# Events only.

TRAINING_JOB_WORKER_FAILED = "TrainingJobWorkerFailed"
"""A worker was lost."""
TRAINING_JOB_WORKER_CREATED = "TrainingJobWorkerCreated"
"""Workers are created in place of lost ones."""
UNKNOWN_PHASE = "UnknownPhase"
"""The status had a phase that is none of a TrainingJob; it was derived from the pods again. Added."""
NOT_MANAGED_BY = "NotManagedBy"
"""An object of another owner has the name of one that the job needs. Added."""
WORKER_DELETED = "WorkerDeleted"
"""A worker was removed by a scaler. Added."""
DRAIN_TIMEOUT = "DrainTimeout"
"""Workers were removed although training processes still ran in them. Added."""
WORKER_REPLACEMENT_LIMIT_REACHED = "WorkerReplacementLimitReached"
"""Lost workers are not replaced any more. Added."""
REPLICAS_OUT_OF_RANGE = "ReplicasOutOfRange"
"""The number of workers was set below minReplicas or above maxReplicas, which is ignored. Added."""
NODE_RELEASING = "NodeReleasing"
"""Workers are removed from a node that is going to be released. Added."""
SINGLE_WORKER_ELASTIC = "SingleWorkerElastic"
"""Horovod cannot start with one worker unless the network interfaces are named. Added."""


def scaling_ended(kind: str, *, succeeded: bool) -> str:
    """Return the reason of the end of a ScaleIn or ScaleOut."""
    if kind == "ScaleIn":
        return SCALING_IN_SUCCEEDED if succeeded else SCALING_IN_FAILED
    return SCALING_OUT_SUCCEEDED if succeeded else SCALING_OUT_FAILED


def launcher_failed(pod_reason: str) -> str:
    """Return the reason of a job whose launcher failed, by the reason in the status of its pod."""
    return TRAINING_JOB_EVICTED if pod_reason == "Evicted" else pod_reason or TRAINING_JOB_FAILED
