"""How writes and deletions of built-in kinds differ, as sets of storages.

The values are those of Kubernetes. The rules of custom resources are in the modules that apply them.
"""

COUNTS_GENERATIONS = frozenset(
    {
        "pods",
        "deployments.apps",
        "replicasets.apps",
        "jobs.batch",
        "endpointslices.discovery.k8s.io",
        "networkpolicies.networking.k8s.io",
        "poddisruptionbudgets.policy",
        "priorityclasses.scheduling.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)
"""Kinds whose metadata.generation starts at 1 and increases with every change of the spec."""

COUNTS_ANNOTATIONS = frozenset({"deployments.apps"})
"""Kinds whose generation also increases with changes of annotations, which they copy to their children."""

STATUS_KEEPS_LABELS = frozenset({"deployments.apps"})
"""Kinds whose labels a write to the status cannot change."""

CREATED_BY_UPDATE = frozenset(
    {
        "leases.coordination.k8s.io",
        "events",
        "services",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
    }
)
"""Kinds that a PUT creates if they do not exist."""

NEEDS_VERSION = frozenset(
    {
        "poddisruptionbudgets.policy",
        "leases.coordination.k8s.io",
        "customresourcedefinitions.apiextensions.k8s.io",
        "mutatingwebhookconfigurations.admissionregistration.k8s.io",
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
    }
)
"""Kinds for which a PUT needs a resourceVersion."""

RETURNED_WHEN_DELETED = frozenset(
    {
        "resourcequotas",
        "persistentvolumeclaims",
        "serviceaccounts",
        "namespaces",
        "pods",
        "services",
    }
)
"""Kinds whose deletion returns the object instead of a Status."""

ORPHANS_BY_DEFAULT = frozenset({"jobs.batch"})
"""Kinds whose dependents are orphaned by default."""

KEEPS_STATUS_ON_CREATE = frozenset({"nodes", "customresourcedefinitions.apiextensions.k8s.io"})
"""Kinds that can be created with a status."""

NEVER_COLLECTED = frozenset({"events"})
"""Kinds that garbage collection ignores."""
