"""How writes and deletions of built-in kinds differ, as sets of storages.

The values are those of Kubernetes. The rules of custom resources are in the modules that apply them.
"""

COUNTS_GENERATIONS = frozenset(
    {
        "pods",
        "podtemplates",
        "replicationcontrollers",
        "daemonsets.apps",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "cronjobs.batch",
        "jobs.batch",
        "endpointslices.discovery.k8s.io",
        "ingresses.networking.k8s.io",
        "ingressclasses.networking.k8s.io",
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
        "endpoints",
        "events",
        "limitranges",
        "services",
        "runtimeclasses.node.k8s.io",
        "clusterroles.rbac.authorization.k8s.io",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "roles.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
    }
)
"""Kinds that a PUT creates if they do not exist."""

NEEDS_VERSION = frozenset(
    {
        "runtimeclasses.node.k8s.io",
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
        "storageclasses.storage.k8s.io",
        "resourcequotas",
        "persistentvolumes",
        "persistentvolumeclaims",
        "serviceaccounts",
        "namespaces",
        "pods",
        "services",
        "podtemplates",
    }
)
"""Kinds whose deletion returns the object instead of a Status."""

ORPHANS_BY_DEFAULT = frozenset({"jobs.batch", "replicationcontrollers"})
"""Kinds whose dependents are orphaned by default."""

KEEPS_STATUS_ON_CREATE = frozenset(
    {"nodes", "persistentvolumes", "customresourcedefinitions.apiextensions.k8s.io"}
)
"""Kinds that can be created with a status."""

NEVER_COLLECTED = frozenset({"events"})
"""Kinds that garbage collection ignores."""
