"""Where the built-in kinds differ from one another in how they are written and deleted.

Facts of Kubernetes, as sets of storages. Custom resources have their own rules, stated where they are used.
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
"""Kinds whose metadata.generation starts at 1 and grows with every change of the spec."""

COUNTS_ANNOTATIONS = frozenset({"deployments.apps"})
"""Kinds whose generation grows with changes of annotations too: they are passed on to what they make."""

STATUS_KEEPS_LABELS = frozenset({"deployments.apps"})
"""Kinds whose labels a write of the status cannot change."""

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
"""Kinds that a PUT creates when they are not there."""

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
"""Kinds that a PUT must name the resourceVersion of."""

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
"""Kinds whose deletion answers the object rather than a Status."""

ORPHANS_BY_DEFAULT = frozenset({"jobs.batch", "replicationcontrollers"})
"""Kinds whose dependents stay unless the deletion says otherwise."""

KEEPS_STATUS_ON_CREATE = frozenset(
    {"nodes", "persistentvolumes", "customresourcedefinitions.apiextensions.k8s.io"}
)
"""Kinds whose creator may say the status too."""

NEVER_COLLECTED = frozenset({"events"})
"""Kinds that garbage collection, and so orphaning, does not know."""
