"""Lists the reasons that users read in statuses, conditions and events of all job APIs.

A reason is one CamelCase word; the message that comes with it is built where the reason is chosen. Reasons
of AresJob alone are in `dialects.ares.reasons`. A job that changes to Running, Succeeded or Failed has the
phase itself as the reason of its event.
"""

from argosy.plan.actions import ActionResult, ActionStatus

# A job waits.

INVALID_SPEC = "InvalidSpec"
"""Waits for an edit; the message has the path of every invalid field. Also an event, and the reason of the
condition Valid."""
SPEC_REJECTED = "SpecRejected"
"""The same for an API whose invalid jobs have no children, if the API server rejected the spec. In the Record
only."""
PODS_STARTING = "PodsStarting"
"""Waits for pods to run, and none of them reports a problem."""
UNSCHEDULABLE = "Unschedulable"
"""Waits for pods that fit on no node; a word of Kubernetes. Other reasons of waiting pods, such as
ImagePullBackOff, are shown as Kubernetes reports them."""
PODS_TERMINATING = "PodsTerminating"
"""Waits for old pods to be deleted, which new pods of the same replicas need."""
NODE_UNREACHABLE = "NodeUnreachable"
"""Waits for a terminating pod on a node that does not respond and may still run it."""
NODE_UNCONFIRMED = "NodeUnconfirmed"
"""Waits for the API server to confirm the state of a node that the watch has not reported."""
BACK_OFF = "BackOff"
"""Waits for the backoff before a pod is replaced again."""
WAITING_FOR_ROLE = "WaitingForRole"
"""Waits for a role that another one depends on; all other pods run."""
QUEUED = "Queued"
"""Waits for admission of its gang, or for free capacity."""
GANG_SCHEDULER_MISSING = "GangSchedulerMissing"
"""Waits for the gang scheduler to be installed."""
SUSPENDED = "Suspended"
"""Waits until the spec no longer suspends it. Also an event."""
INCOMPATIBLE_CRD = "IncompatibleCRD"
"""Waits for a newer CRD, as the installed one drops `status.argosy`. Also an event."""

BELOW_REPLICAS = "BelowReplicas"
"""Runs, and waits for capacity for all replicas of an elastic role."""

# A job waits, or has failed.

PREEMPTED = "Preempted"
"""Waits up to a minute after a pod of its gang was preempted; failed if the scheduler evicted the gang, or
preempted a pod that is not replaced."""
BELOW_MIN_REPLICAS = "BelowMinReplicas"
"""Waits for an elastic role to have its minimum of running pods; failed if that took too long."""

# A job, or one of its roles, has failed or succeeded.

COMPLETED = "Completed"
"""Succeeded."""
POD_FAILED = "PodFailed"
"""Failed: a pod failed and is not replaced."""
MIXED_OUTCOME = "MixedOutcome"
"""Failed: all pods of a role have ended, and only some of them succeeded."""
POD_MISSING = "PodMissing"
"""Failed: a pod was deleted and is not replaced."""
ROLE_FAILED = "RoleFailed"
"""Failed: a role failed for which no reason is recorded."""
RESTARTS_EXHAUSTED = "RestartsExhausted"
"""Failed: another restart was needed than the limit allows."""
DEADLINE_EXCEEDED = "DeadlineExceeded"
"""Failed: the job was active for too long."""
START_TIMEOUT = "StartTimeout"
"""Failed: not all roles were running in time."""
GANG_TIMEOUT = "GangTimeout"
"""Failed: the gang was not scheduled in time."""
INVALID_DEFINITION = "InvalidDefinition"
"""Failed: the job had been running, and was then edited to an invalid spec, for an API in which that is
final. The word is part of AresJob's published API; elsewhere it is the spec that is invalid."""

# Something happened: events, and entries of the history.

RESTARTING = "Restarting"
"""Pods are being replaced; the message has the cause."""
REPLACEMENT_LIMIT_REACHED = "ReplacementLimitReached"
"""Lost pods of a role are not replaced any more, because the budget of the role is used up. In the Record
only."""
HOST_LIST_NOT_WRITTEN = "HostListNotWritten"
"""The launcher's sidecar has not acknowledged the host list, and a command could not write it either; both
are tried again."""
DISRUPTION_NOTICE = "DisruptionNotice"
"""The end of a node or a pod was announced; the message has the cause and what the job does about it."""
SAVING_CHECKPOINT = "SavingCheckpoint"
"""Waits for a checkpoint before its pods are deleted."""
INTERVAL = "Interval"
"""Why a checkpoint was ordered: the last one is old."""
CHECKPOINT_COMPLETED = "CheckpointCompleted"
"""A checkpoint is complete in the store; also the reason of the condition CheckpointReady."""
CHECKPOINT_TIMEOUT = "CheckpointTimeout"
"""An ordered checkpoint was not complete in time; also the reason of the condition CheckpointReady."""
CHECKPOINT_FAILED = "CheckpointFailed"
"""The node agent could not save the processes of a pod."""
NO_CHECKPOINT_YET = "NoCheckpointYet"
"""The condition CheckpointReady is not true: no checkpoint is complete yet."""
NO_LOSS = "NoLoss"
"""The condition ProgressLost is false: every loss of pods was recovered from."""
CHECKPOINTED = "Checkpointed"
"""The condition ProgressLost is false again: a checkpoint was saved since."""
CHECKPOINT_OUTDATED = "CheckpointOutdated"
"""The condition ProgressLost is true: pods were lost before a checkpoint could be saved."""
NO_CHECKPOINT_FOUND = "NoCheckpointFound"
"""The condition ProgressLost is true: there was no checkpoint to start from."""
SIGNALLED = "Signalled"
"""The condition ProgressLost is unknown: pods were replaced after their program got SIGTERM, and nothing
shows whether it has saved."""
CHECKPOINT_INVALID = "CheckpointInvalid"
"""The condition ProgressLost is true: the last checkpoint could not be used, and an older one was."""
NODE_QUARANTINED = "NodeQuarantined"
"""Event of a Node: pods of jobs failed there repeatedly, and it gets no new ones for a while."""
QUARANTINE_ENDED = "QuarantineEnded"
"""Event of a Node: it gets new pods again."""
RESIZED = "Resized"
"""The number of replicas of a role was changed."""
RESUMED = "Resumed"
"""The spec no longer suspends the job."""
ACCEPTED = "Accepted"
"""The condition Valid is true."""
STATUS_UPDATE_FAILED = "StatusUpdateFailed"
"""The status cannot be written, since the installed CRD does not allow it."""
UNSUPPORTED_RECORD_VERSION = "UnsupportedRecordVersion"
"""A later version of the operator wrote `status.argosy`, and this one cannot read it."""


def action_failed(result: ActionResult) -> str:
    """Return the reason of a job that waits because an action on one of its objects failed.

    `PodInvalid`: the API server rejects the object for good; `PodForbidden`: for now, because of a quota, a
    policy, a webhook or missing permissions; `PodNameConflict`: an object of another owner has the name;
    `PodCreateFailed`, `PodDeleteFailed`, `PodPatchFailed`, `PodGetFailed`: any other error, after which it is
    tried again.
    """
    if result.status is ActionStatus.NAME_CONFLICT:
        return name_conflict(result.kind)
    kind = result.kind.partition(".")[0]
    return f"{kind}{result.verb}Failed" if result.status is ActionStatus.RETRY else f"{kind}{result.status}"


def name_conflict(kind: str) -> str:
    return f"{kind.partition('.')[0]}NameConflict"
