"""Renders the batch/v1 Job of one incarnation of a replica from the Job template.

What the user has set stays, except for what binds the replica to its node, tells whose it is, and would
delete a finished Job before its success was seen.
"""

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.spot import names
from argosy.dialects.spot.job_spec import SpotJob
from argosy.dialects.spot.pods import DISRUPTION_TARGET
from argosy.dialects.spot.record import FRESH, Incarnation
from argosy.kinds import labels
from argosy.kinds.kubernetes import Job
from argosy.kinds.meta import Json
from argosy.kinds.spot import (
    CHECKPOINT_UPDATED,
    INCARNATION,
    INSTANCE_LABEL,
    RESTORED_FROM,
    SpotInstanceJob,
)
from argosy.plan.children import Child
from argosy.workload.capacity import PodRequirements
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod

NODE_NAME_FIELD = "metadata.name"
_NATIVE_DOMAIN = "kubernetes.io"
_IGNORE_DISRUPTIONS = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": DISRUPTION_TARGET, "status": "True"}]}]
}


class Run(Struct, frozen=True):
    """One incarnation of a replica, as far as its Job depends on it."""

    index: int
    incarnation: Incarnation
    has_saved: bool = False
    """Whether any replica has ever acknowledged a checkpoint of its own."""


Completion = Callable[[dict[str, object], Workload, CreatePod], dict[str, object]]
"""Adds to the spec of a pod what lets it save and resume its own checkpoints."""


def unchanged(spec: dict[str, object], workload: Workload, pod: CreatePod) -> dict[str, object]:
    """Return the spec as it is, where nothing is added."""
    del workload, pod
    return spec


def replica_job(job: SpotJob, run: Run, complete: Completion) -> Child:
    """Return the Job of an incarnation that has a place and a source."""
    incarnation = run.incarnation
    own = names.replica_labels(job.name, run.index)
    metadata = _mapping(job.job_template.get("metadata"))
    annotations = {**_mapping(metadata.get("annotations")), **_restored(incarnation)}
    body = {
        "apiVersion": Job.resource.api_version,
        "kind": Job.resource.kind,
        "metadata": {
            "labels": {**_mapping(metadata.get("labels")), **own},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": _job_spec(job, run, own, complete),
    }
    return Child(Job, incarnation.job, body)


def check_job(job: SpotJob, complete: Completion) -> Child:
    """Return a Job with which the API server is asked whether it accepts the template."""
    return replica_job(job, Run(0, Incarnation(0, node="node", job=names.check_name(job.name))), complete)


def with_whole_pod(job: SpotJob, complete: Completion) -> SpotJob:
    """Return the job with the requirements of its whole pod, with the containers that are added to it."""
    if not job.saves_by_order:
        return job
    template = _mapping(job.job_spec.get("template"))
    name = names.copy_name(0)
    spec = complete(
        _mapping(template.get("spec")), _workload(job, Run(0, Incarnation(0))), CreatePod(name, 0, 1, 0)
    )
    return replace(job, pod=msgspec.convert(spec, PodRequirements))


def asks_for(job: SpotJob, resource: str) -> bool:
    """Return True if a container of the replica's pod requests an extended resource."""
    containers = (*job.pod.containers, *job.pod.init_containers)
    return any(
        {**c.resources.limits, **c.resources.requests}.get(resource, 0) not in (0, "0") for c in containers
    )


def _job_spec(job: SpotJob, run: Run, own: Mapping[str, str], complete: Completion) -> Json:
    spec = {name: value for name, value in job.job_spec.items() if name != "ttlSecondsAfterFinished"}
    template = _mapping(spec.get("template"))
    metadata = _mapping(template.get("metadata"))
    bought = {INSTANCE_LABEL: names.label_value(run.incarnation.instance)} if run.incarnation.instance else {}
    pod = _pod_spec(job, run, _mapping(template.get("spec")))
    if job.saves_by_order:
        name = names.copy_name(run.index)
        pod = complete(pod, _workload(job, run), CreatePod(name, 0, 1, run.incarnation.number))
    if pod.get("restartPolicy") == "Never" and "podFailurePolicy" not in spec:
        spec["podFailurePolicy"] = _IGNORE_DISRUPTIONS
    metadata["labels"] = {**_mapping(metadata.get("labels")), **own, **bought}
    if images := run.incarnation.images:
        restored = {labels.RESTORED_CONTAINERS: ",".join(sorted(images))}
        metadata["annotations"] = {**_mapping(metadata.get("annotations")), **restored}
    return {**spec, "template": {**template, "metadata": metadata, "spec": pod}}


def _pod_spec(job: SpotJob, run: Run, spec: Json) -> Json:
    incarnation = run.incarnation
    variables = _variables(job, run)
    pod = {
        **spec,
        "affinity": _bound_affinity(_mapping(spec.get("affinity")), incarnation.node),
        "containers": _each(
            spec.get("containers"),
            lambda c: _with_image(_with_variables(_with_limits(c), variables), incarnation.images),
        ),
    }
    if "initContainers" in spec:
        pod["initContainers"] = _each(spec["initContainers"], _with_limits)
    if incarnation.images and job.registry_credentials is not None:
        secret = {"name": names.pull_secret_name(job.name)}
        existing = spec.get("imagePullSecrets")
        pod["imagePullSecrets"] = [*(existing if isinstance(existing, list) else []), secret]
    return pod


def _variables(job: SpotJob, run: Run) -> dict[str, str]:
    incarnation = run.incarnation
    variables = {
        "ARGOSY_REPLICA_INDEX": str(run.index),
        "ARGOSY_INCARNATION": str(incarnation.number),
        "ARGOSY_RESUME": "0" if incarnation.mode == FRESH else "1",
    }
    return {**variables, "ARGOSY_CHECKPOINT_URI": job.storage_uri} if job.storage_uri else variables


def _workload(job: SpotJob, run: Run) -> Workload:
    """Return a replica as a workload, as far as its pod needs that to save checkpoints."""
    resource = SpotInstanceJob.resource
    return Workload(
        kind=resource.kind,
        api_version=resource.api_version,
        namespace=job.namespace,
        name=job.name,
        uid=job.uid,
        generation=job.generation,
        framework="",
        roles={},
        checkpoint=job.checkpoint_policy(names.copy_name(run.index), has_saved=run.has_saved),
    )


def _restored(incarnation: Incarnation) -> dict[str, object]:
    """Return the annotations of a Job that takes the place of another one."""
    if not incarnation.number:
        return {}
    annotations: dict[str, object] = {INCARNATION: str(incarnation.number)}
    if incarnation.images:
        annotations |= {CHECKPOINT_UPDATED: "true", RESTORED_FROM: incarnation.source}
    return annotations


def _bound_affinity(affinity: Json, node: str) -> Json:
    """Return the affinity with the node's name in every required term; terms are alternatives."""
    wanted = {"key": NODE_NAME_FIELD, "operator": "In", "values": [node]}
    node_affinity = _mapping(affinity.get("nodeAffinity"))
    required = _mapping(node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution"))
    terms = required.get("nodeSelectorTerms")
    bound = [
        {**term, "matchFields": [*_list(term.get("matchFields")), wanted]}
        for term in map(_mapping, _list(terms) or [{}])
    ]
    required = {**required, "nodeSelectorTerms": bound}
    node_affinity = {**node_affinity, "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**affinity, "nodeAffinity": node_affinity}


def _with_limits(container: Json) -> Json:
    """Return the container with a limit for each extended resource that it only requests.

    Extended resources cannot be overcommitted, so the API server refuses a request without a limit.
    """
    resources = _mapping(container.get("resources"))
    limits = _mapping(resources.get("limits"))
    missing = {
        name: amount
        for name, amount in _mapping(resources.get("requests")).items()
        if _is_extended(name) and name not in limits
    }
    return (
        {**container, "resources": {**resources, "limits": {**limits, **missing}}} if missing else container
    )


def _is_extended(resource: str) -> bool:
    domain, slash, _ = resource.partition("/")
    return bool(slash) and domain != _NATIVE_DOMAIN and not domain.endswith(f".{_NATIVE_DOMAIN}")


def _with_variables(container: Json, variables: Mapping[str, str]) -> Json:
    existing = _list(container.get("env"))
    present = {_mapping(variable).get("name") for variable in existing}
    added = [{"name": name, "value": value} for name, value in variables.items() if name not in present]
    return {**container, "env": [*existing, *added]}


def _with_image(container: Json, images: Mapping[str, str]) -> Json:
    image = images.get(str(container.get("name")))
    return {**container, "image": image} if image else container


def _each(value: object, change: Callable[[Json], Json]) -> list[Json]:
    return [change(_mapping(item)) for item in _list(value)]


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _mapping(value: object) -> Json:
    return dict(value) if isinstance(value, Mapping) else {}
