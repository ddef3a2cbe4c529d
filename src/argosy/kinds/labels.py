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

HOSTNAME = "kubernetes.io/hostname"

OPERATOR_NAMESPACE = "argosy-system"
"""Where the operator keeps what is its own: Lease, keys, the Service that pods reach it by."""

NODE_NOTES = f"{DOMAIN}/node-notes"
"""Annotation on local nodes: what their pods have to do without, and why."""

DIGEST = f"{DOMAIN}/digest"
"""Annotation on children that are kept up to date: what their body was made from."""
