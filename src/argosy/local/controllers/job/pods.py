"""Builds a pod of a Job from its template, with the labels and references of the Job and the index."""

import copy

from argosy.kinds.meta import Json
from argosy.local.controllers.api_types import Job
from argosy.local.controllers.job.decide import TRACKING_FINALIZER
from argosy.local.controllers.job.indexes import COMPLETION_INDEX

INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
MAX_PREFIX_CHARS = 57
"""Maximum before the five random characters that the API server appends; names have at most 63."""


def build_pod(job: Job, index: int | None) -> Json:
    """Build the pod of an index, or of a Job without indexes."""
    template = copy.deepcopy(job.spec.template)
    metadata, spec = _mapping(template.get("metadata")), _mapping(template.get("spec"))
    labels, annotations = _mapping(metadata.get("labels")), _mapping(metadata.get("annotations"))
    name, uid = job.metadata.name, job.metadata.uid
    for key, value in {"controller-uid": uid, "job-name": name}.items():
        labels.setdefault(key, value)
        labels.setdefault(f"batch.kubernetes.io/{key}", value)
    prefix = name
    if index is not None:
        labels[COMPLETION_INDEX] = annotations[COMPLETION_INDEX] = str(index)
        prefix = f"{name}-{index}"
        spec.setdefault("hostname", prefix)
        _add_index_variable(spec)
    finalizers = metadata.get("finalizers")
    kept = [item for item in finalizers if item != TRACKING_FINALIZER] if isinstance(finalizers, list) else []
    owner = {
        "apiVersion": Job.resource.api_version,
        "kind": Job.resource.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "metadata": {
            "generateName": f"{prefix[:MAX_PREFIX_CHARS]}-",
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*kept, TRACKING_FINALIZER],
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _add_index_variable(spec: Json) -> None:
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    for field in ("initContainers", "containers"):
        containers = spec.get(field)
        for container in containers if isinstance(containers, list) else []:
            variables = container.setdefault("env", [])
            if all(variable.get("name") != INDEX_VARIABLE for variable in variables):
                variables.append({"name": INDEX_VARIABLE, "valueFrom": source})


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
