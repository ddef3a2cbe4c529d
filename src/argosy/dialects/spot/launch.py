"""Gives replicas places, creates their Jobs, and removes what lost incarnations have left.

A place is a node of the cluster with enough room, or else one ProvisionedInstance. A Job is created when its
place is ready, the checkpoint to start from is verified, and no pod of an earlier incarnation can run any
more. Until then the earlier Job stays.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from argosy.dialects.spot import names, reasons
from argosy.dialects.spot.dying_pods import remove_job
from argosy.dialects.spot.job_spec import SpotJob, Template
from argosy.dialects.spot.losses import is_fenced
from argosy.dialects.spot.observed import ObservedJob, Steps
from argosy.dialects.spot.places import fitting_nodes, is_quarantined, is_ready, ready_problem
from argosy.dialects.spot.record import Incarnation, Replica, SpotJobRecord
from argosy.dialects.spot.recovery import with_source
from argosy.dialects.spot.replica_job import Run, replica_job
from argosy.kinds.spot import REPLICA_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Apply
from argosy.plan.children import Child, KubernetesObject
from argosy.plan.diff import remove

JOB_STAGE = 1
"""The Secret by which a Job pulls its images is created before it."""


def assign_places(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Give every replica without a place one: a node that has room, or a VM that is to be bought.

    A node that has come into quarantine before the Job was recorded is given up again, also by a replica that
    has failed there. A bought VM is kept: it has no other replica.
    """
    if observed.cluster is None or observed.template is None:
        return record
    taken = set(_used_nodes(record, observed))
    replicas: list[Replica] = []
    for replica in record.replicas:
        current = replica.current
        is_movable = not replica.failure_message and not current.job and not current.instance
        if is_movable and is_quarantined(observed.node_of(current), observed.job.namespace, observed.now):
            current = replace(current, node="")
        if is_movable and not current.node:
            fitting = fitting_nodes(
                observed.job, observed.gpus, observed.cluster, taken, observed.rules, observed.now
            )
            if fitting:
                taken.add(fitting[0])
                current = replace(current, node=fitting[0])
            else:
                template = observed.job.template.name
                name = names.instance_name(observed.job.name, template, replica.index, current.stamp)
                current = replace(current, instance=name)
                steps.normal(reasons.INSTANCE_REQUESTED, f"replica {replica.index}: VM {name} requested")
        replicas.append(replace(replica, current=current))
    return replace(record, replicas=tuple(replicas))


def create_instances(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> SpotJobRecord:
    """Create the ProvisionedInstances that are recorded, and record the uids of those that exist."""
    replicas: list[Replica] = []
    for replica in record.replicas:
        current = replica.current
        existing = observed.instance_of(current)
        if existing is not None and not current.instance_uid:
            current = replace(current, instance_uid=existing.metadata.uid)
        elif (
            existing is None and current.instance and not current.instance_uid and not replica.failure_message
        ):
            steps.actions.append(
                Apply(instance_object(observed.job, observed.template, replica.index, current))
            )
        replicas.append(replace(replica, current=current))
    return replace(record, replicas=tuple(replicas))


def instance_object(job: SpotJob, template: Template | None, index: int, incarnation: Incarnation) -> Child:
    """Return the ProvisionedInstance of an incarnation."""
    credentials = job.gcp_credentials
    kind = type(template).__name__ if template is not None else job.template.kind.__name__
    body = {
        "apiVersion": ProvisionedInstance.resource.api_version,
        "kind": ProvisionedInstance.resource.kind,
        "metadata": {"labels": names.replica_labels(job.name, index)},
        "spec": {
            "instanceTemplateName": job.template.name,
            "instanceTemplateNamespace": job.namespace,
            "instanceTemplateKind": kind,
            "spotInstanceJobRef": {
                "apiVersion": SpotInstanceJob.resource.api_version,
                "kind": SpotInstanceJob.resource.kind,
                "name": job.name,
                "uid": job.uid,
            },
            "gcpCredentialsSecretRef": {
                "name": credentials.name,
                "namespace": credentials.namespace or job.namespace,
            },
        },
    }
    return Child(ProvisionedInstance, incarnation.instance, body)


def place_problem(replica: Replica, observed: ObservedJob) -> str:
    """Return why no Job may be bound to the place of a replica yet; empty if one may."""
    current = replica.current
    if current.node and not current.instance:
        return "" if is_ready(observed.node_of(current)) else f"node {current.node} is not Ready"
    if not current.instance:
        return "no place yet"
    node, grace = observed.node_of(current), observed.settings.pods_ready_grace
    return ready_problem(observed.job, observed.gpus, node, observed.node_pods, observed.now, grace)


def launch(observed: ObservedJob, replica: Replica, pull_secret_ready: bool, steps: Steps) -> Replica:
    """Record the Job of a replica's current incarnation as soon as it may be created."""
    current, recovery = replica.current, replica.recovery
    if current.job or replica.failure_message or not (current.node or current.instance):
        return replica
    if recovery is not None and recovery.not_before is not None and observed.now < recovery.not_before:
        steps.wake(recovery.not_before)
        return replica
    if recovery is not None and recovery.source.step != "Found":
        return replica
    if place_problem(replica, observed):
        return replica
    current = with_source(replace(current, node=observed.node_name(current)), replica, observed)
    if current.images and observed.job.registry_credentials is not None and not pull_secret_ready:
        return replica
    if not _fence(replica, observed, steps):
        return replica
    job = names.job_name(observed.job.name, replica.index, current.stamp)
    steps.normal(reasons.JOB_CREATED, f"replica {replica.index}: Job {job} created on node {current.node}")
    return replace(replica, current=replace(current, job=job))


def create_jobs(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> None:
    """Create the Jobs that are recorded and were never seen."""
    for replica in record.replicas:
        current = replica.current
        if (
            current.job
            and not current.uid
            and observed.job_of(current) is None
            and not replica.failure_message
        ):
            run = Run(replica.index, current, record.has_saved)
            child = replica_job(observed.job, run, observed.complete)
            steps.actions.append(Apply(replace(child, stage=JOB_STAGE)))


def release_old(observed: ObservedJob, replica: Replica, steps: Steps) -> Replica:
    """Remove what is left of lost incarnations that are not needed any more; forget those that are gone."""
    left: list[Incarnation] = []
    for incarnation in replica.old:
        replaced = bool(replica.current.job) or bool(replica.failure_message) or not incarnation.job
        job, instance = observed.job_of(incarnation), observed.instance_of(incarnation)
        if replaced:
            remove_job(job, incarnation, steps)
            _remove_instance(instance, steps)
        if not replaced or job is not None or instance is not None:
            left.append(incarnation)
    return replace(replica, old=tuple(left))


def remove_stale_children(record: SpotJobRecord, observed: ObservedJob, steps: Steps) -> None:
    """Remove Jobs, VMs and backups of indexes that the job has no more."""
    indexes = {str(replica.index) for replica in record.replicas}
    children: tuple[KubernetesObject, ...] = (
        *observed.backups.values(),
        *observed.jobs.values(),
        *observed.instances.values(),
    )
    for child in children:
        if _index_of(child) not in indexes and child.metadata.deletion_timestamp is None:
            steps.actions.append(remove(child))


def _fence(replica: Replica, observed: ObservedJob, steps: Steps) -> bool:
    """Delete the Jobs of earlier incarnations; return True when none of their pods can run any more.

    A VM that is silent but may still run is deleted to get there.
    """
    fenced = True
    for incarnation in replica.old:
        remove_job(observed.job_of(incarnation), incarnation, steps)
        if is_fenced(incarnation, observed):
            continue
        fenced = False
        if not is_ready(observed.node_of(incarnation)):
            _remove_instance(observed.instance_of(incarnation), steps)
    return fenced


def _remove_instance(instance: ProvisionedInstance | None, steps: Steps) -> None:
    if instance is not None and instance.metadata.deletion_timestamp is None:
        steps.actions.append(remove(instance))


def _used_nodes(record: SpotJobRecord, observed: ObservedJob) -> Iterator[str]:
    """Yield the nodes of replicas, and those that their VMs will be: a Node is not labelled at once."""
    for replica in record.replicas:
        for incarnation in (replica.current, *replica.old):
            if incarnation.instance:
                yield names.machine_name(incarnation.instance)
            yield observed.node_name(incarnation)


def _index_of(child: KubernetesObject) -> str:
    return child.metadata.labels.get(REPLICA_LABEL, "")
