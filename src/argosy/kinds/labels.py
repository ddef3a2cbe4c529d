"""Every label, annotation and well-known name that Argosy writes or reads, in one place.

Pods carry enough of them to rebuild a lost Record: job, role, index, attempt and replacement.
"""

DOMAIN = "argosy.dev"

MANAGED_BY = "app.kubernetes.io/managed-by"
"""Set to `argosy` on everything we create; the operator's caches select on it."""

MANAGER = "argosy"
"""The value of MANAGED_BY, and the field manager of our writes."""

JOB = f"{DOMAIN}/job"
"""Name of the owning job object."""

ROLE = f"{DOMAIN}/role"
INDEX = f"{DOMAIN}/index"
ATTEMPT = f"{DOMAIN}/attempt"
REPLACEMENT = f"{DOMAIN}/replacement"

POD_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
"""Volcano's annotation that puts a pod into a PodGroup."""

TASK_SPEC_ANNOTATION = "volcano.sh/task-spec"

POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""The same for the coscheduling plugin."""

QUEUE_NAME = "kueue.x-k8s.io/queue-name"
POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_SIZE = "kueue.x-k8s.io/pod-group-total-count"
"""Kueue's labels, and the annotation with the number of pods that it waits for."""
HELPER_CONTAINER = "argosy"
"""The init container in which pods wait for others, or get what remote exec needs."""

INITIALIZER_CONTAINER = "initializer"
"""The same in AresJobs."""

HOSTNAME = "kubernetes.io/hostname"

OPERATOR_NAMESPACE = "argosy-system"
"""Where the operator keeps what is its own: Lease, keys, the Service that pods reach it by."""

NODE_LIMITATIONS = f"{DOMAIN}/node-limitations"
"""Annotation on local nodes: what their pods have to do without, and why."""

UID = f"{DOMAIN}/uid"
"""The uid of a child's owner. It counts only in the owner's namespace, together with an ownerReference."""

DIGEST = f"{DOMAIN}/digest"
"""Annotation on children that are kept up to date: what their body was made from."""

REMOVAL_PATCH = f"{DOMAIN}/removal-patch"
"""Annotation on groups: the merge patch that takes away all that we wrote, for what is wanted no longer."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation of kubectl's own, which is about one object and is never handed on."""
