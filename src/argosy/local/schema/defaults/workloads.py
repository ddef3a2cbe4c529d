"""Defaults of kinds with a pod template, and of PersistentVolumeClaims."""

from argosy.local.schema.defaults.pod import default_pod_spec
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import part, parts

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def deployment_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    spec.setdefault("replicas", 1)
    strategy = part(spec, "strategy")
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        if isinstance(rolling, dict):
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    template_defaults(spec)


def daemon_set_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    metadata = part(obj, "metadata")
    metadata["annotations"] = {TEMPLATE_GENERATION: "1", **part(metadata, "annotations")}
    strategy = part(spec, "updateStrategy")
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        if isinstance(rolling, dict):
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", 10)
    template_defaults(spec)


def stateful_set_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = part(spec, "updateStrategy")
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] == "RollingUpdate" and isinstance(rolling, dict):
        rolling.setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    if isinstance(retention, dict):
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    for claim in parts(spec, "volumeClaimTemplates"):
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")
        claim_defaults(claim)
    template_defaults(spec)


def replica_set_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    spec.setdefault("replicas", 1)
    template_defaults(spec)


def replication_controller_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    labels = part(spec, "template", "metadata", "labels")
    if labels and not spec.get("selector"):
        spec["selector"] = dict(labels)
    metadata = part(obj, "metadata")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    replica_set_defaults(obj)


def template_defaults(owner: Json) -> None:
    spec = part(owner, "template").get("spec")
    if isinstance(spec, dict):
        default_pod_spec(spec)


def job_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    _job_spec(spec)
    labels = part(spec, "template", "metadata", "labels")
    metadata = part(obj, "metadata")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _job_spec(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2147483647 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault(
        "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    )
    _failure_policy(spec)
    template_defaults(spec)


def _failure_policy(spec: Json) -> None:
    for rule in parts(spec, "podFailurePolicy", "rules"):
        for pattern in parts(rule, "onPodConditions"):
            if not pattern.get("status"):
                pattern["status"] = "True"


def cron_job_defaults(obj: Json) -> None:
    spec = part(obj, "spec")
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = part(spec, "jobTemplate", "spec")
    _failure_policy(template)
    template_defaults(template)


def claim_defaults(obj: Json) -> None:
    part(obj, "status").setdefault("phase", "Pending")
    part(obj, "spec").setdefault("volumeMode", "Filesystem")
