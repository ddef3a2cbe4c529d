"""Lists the types and reasons of conditions, and the reasons of events, of machines that are bought.

Users read them in ProvisionedInstances; jobs repeat the reasons of their machines. Those of pools of machines
are in `pool_reasons`.
"""

from typing import Final

# Types of conditions.

CREDENTIALS_READY: Final = "CredentialsReady"
"""The Secret with the credentials of the cloud exists and can be used."""
JOIN_CONFIG_READY: Final = "JoinConfigReady"
"""The data by which the machine joins the cluster are complete."""
PROVISIONED: Final = "Provisioned"
"""The machine runs at its provider."""
NODE_READY: Final = "NodeReady"
"""The machine is a node on which jobs can run; also an event."""
LOST: Final = "Lost"
"""The machine is lost or will be, and the reason is the cause. Also the reason of NodeReady of such a one."""

# Reasons of CredentialsReady, JoinConfigReady and, of a machine that waits for them, Provisioned.

FOUND: Final = "Found"
"""The Secret exists and has all its keys."""
SECRET_NOT_FOUND: Final = "SecretNotFound"  # noqa: S105 - no password
"""The Secret does not exist, or may not be used from this namespace."""
KEY_MISSING: Final = "KeyMissing"
"""The Secret lacks a key, which the template does not have either."""
INVALID_CREDENTIALS: Final = "InvalidCredentials"
"""The Secret has something else than the JSON of a service account."""
TOKEN_NOT_ALLOWED: Final = "TokenNotAllowed"  # noqa: S105 - no password
"""The Secret asks for a bootstrap token of the machine's own, which its namespace may not have."""
TEMPLATE_NOT_FOUND: Final = "TemplateNotFound"
"""The SpotInstanceVM or InstanceTemplate does not exist, or is not shared with this namespace."""

# Reasons of Provisioned.

RUNNING: Final = "Running"
"""The machine runs."""
GONE: Final = "Gone"
"""The machine does not exist any more, and no other one is created for this object."""
PROVISIONING: Final = "Provisioning"
"""The machine is being created."""
ZONE_EXHAUSTED: Final = "ZoneExhausted"
"""The zone has no capacity, and the next one is tried; also an event."""
QUOTA_EXCEEDED: Final = "QuotaExceeded"
"""The project's quota of the region is used up, and the next region is tried; also an event."""
NO_CAPACITY: Final = "NoCapacity"
"""No zone is left; all are tried again after a while."""
PERMISSION_DENIED: Final = "PermissionDenied"
"""The credentials are not accepted, or lack a permission; also an event. It is tried again after a change."""
INVALID_REQUEST: Final = "InvalidRequest"
"""The provider does not accept the machine as the template describes it. It is tried again after a change."""
CLOUD_UNAVAILABLE: Final = "CloudUnavailable"
"""The provider does not answer, or with an error that may pass; the request is repeated."""
NAME_CONFLICT: Final = "NameConflict"
"""A node, a machine or an object of somebody else has the name."""
JOIN_TIMEOUT: Final = "JoinTimeout"
"""The machine was not a ready node in time, and is replaced by one in the next zone; also an event."""
JOIN_ATTEMPTS_EXHAUSTED: Final = "JoinAttemptsExhausted"
"""Too many machines in a row were not ready in time. It is tried again after a change."""

# Reasons of NodeReady, besides those of Provisioned.

READY: Final = "Ready"
"""The machine is a ready node."""
ALL_READY: Final = "AllReady"
"""All machines of a job or a pool are ready nodes."""
NODE_MISSING: Final = "NodeMissing"
"""The machine has not joined the cluster yet."""
NODE_NOT_READY: Final = "NodeNotReady"
"""The Node is not Ready."""
GPU_MISSING: Final = "GpuMissing"
"""The Node offers fewer GPUs than the job needs."""
NODE_PODS_NOT_READY: Final = "NodePodsNotReady"
"""Pods of DaemonSets on the node are not ready. As an event: they were not in time, and the node is used."""

# Causes of a loss: reasons of Lost, and `status.cause`.

PREEMPTED: Final = "Preempted"
"""The provider takes the machine back."""
MAINTENANCE: Final = "Maintenance"
"""The provider stops the machine for maintenance, or its node is drained."""
HOST_ERROR: Final = "HostError"
"""The machine has failed."""
USER_STOPPED: Final = "UserStopped"
"""Somebody has stopped or deleted the machine at its provider."""
NOT_FOUND: Final = "NotFound"
"""The provider does not know the machine any more, and no operation explains it."""
UNKNOWN: Final = "Unknown"
"""The machine is stopping, or its node is silent, and nothing says why."""

# Reasons of events, besides those that are also reasons of conditions.

INSTANCE_REQUESTED: Final = "InstanceRequested"
"""A machine is requested in a zone."""
INSTANCE_ADOPTED: Final = "InstanceAdopted"
"""The requested machine exists already, by a request whose answer was lost."""
INSTANCE_RUNNING: Final = "InstanceRunning"
"""The machine runs."""
INSTANCE_DELETED: Final = "InstanceDeleted"
"""The machine is deleted."""
INSTANCE_ABANDONED: Final = "InstanceAbandoned"
"""The machine is given up without being deleted, because a user has asked for that."""
NODE_JOINED: Final = "NodeJoined"
"""The machine has become a Node."""
PREEMPTION_NOTICE: Final = "PreemptionNotice"
"""The machine is lost or will be; the message has the cause and who has reported it."""
NOTICE_WITHDRAWN: Final = "NoticeWithdrawn"
"""The Node does not announce the machine's end any more; also a reason of Lost."""
JOIN_CONFIG_MISMATCH: Final = "JoinConfigMismatch"
"""The Secret with the join data and the template differ, and the Secret is used."""
