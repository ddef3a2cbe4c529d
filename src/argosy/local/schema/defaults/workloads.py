"""Defaults of kinds with a pod template, and of PersistentVolumeClaims."""

from argosy.local.schema.defaults.pod import default_pod_spec
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_maps


def deployment_defaults(obj: Json) -> None:
    spec = get_map(obj, "spec")
    spec.setdefault("replicas", 1)
    strategy = get_map(spec, "strategy")
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        if isinstance(rolling, dict):
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    template_defaults(spec)


def replica_set_defaults(obj: Json) -> None:
    spec = get_map(obj, "spec")
    spec.setdefault("replicas", 1)
    template_defaults(spec)


def template_defaults(owner: Json) -> None:
    spec = get_map(owner, "template").get("spec")
    if isinstance(spec, dict):
        default_pod_spec(spec)


def job_defaults(obj: Json) -> None:
    spec = get_map(obj, "spec")
    _job_spec(spec)
    labels = get_map(spec, "template", "metadata", "labels")
    metadata = get_map(obj, "metadata")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _job_spec(spec: Json) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault(
        "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    )
    _failure_policy(spec)
    template_defaults(spec)


def _failure_policy(spec: Json) -> None:
    for rule in get_maps(spec, "podFailurePolicy", "rules"):
        for pattern in get_maps(rule, "onPodConditions"):
            if not pattern.get("status"):
                pattern["status"] = "True"


def claim_defaults(obj: Json) -> None:
    get_map(obj, "status").setdefault("phase", "Pending")
    get_map(obj, "spec").setdefault("volumeMode", "Filesystem")
