"""Defines what one reconcile of a SpotInstanceJob observes, and what it collects to be done."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

from argosy.dialects.spot.job_spec import SpotJob, Template
from argosy.dialects.spot.places import Cluster
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import Incarnation
from argosy.dialects.spot.replica_job import Completion
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Job, Node
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Action, ActionResult, CallResult, EmitEvent
from argosy.workload.announcements import NoticeRules

JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
"""Labels by which the Job controller marks the pods of a Job; older ones know only the second."""


class ObservedJob(Struct, frozen=True, kw_only=True):
    """The spec of the job, its children, and the nodes and pods that concern it."""

    now: datetime
    job: SpotJob
    settings: SpotSettings
    rules: NoticeRules
    template: Template | None
    gpus: int
    """GPUs of the node of each replica."""
    pods: tuple[ClusterPod, ...]
    """Those with the label of the job, of all its replicas."""
    nodes: Mapping[str, Node]
    """Nodes of the replicas, by name."""
    node_pods: tuple[ClusterPod, ...]
    """Pods on any node, while there are replicas without a place."""
    cluster: Cluster | None
    """What places are chosen from; None if no replica needs one."""
    jobs: Mapping[str, Job]
    backups: Mapping[str, CheckpointBackup]
    instances: Mapping[str, ProvisionedInstance]
    backups_served: bool
    complete: Completion
    """What replica pods get to save and resume checkpoints of their own."""
    calls: Mapping[str, CallResult]
    failures: tuple[ActionResult, ...]

    def job_of(self, incarnation: Incarnation) -> Job | None:
        """Return the Job of an incarnation, if it exists and is the one that was created for it."""
        job = self.jobs.get(incarnation.job)
        if job is None or (incarnation.uid and job.metadata.uid != incarnation.uid):
            return None
        return job

    def pods_of(self, incarnation: Incarnation) -> tuple[ClusterPod, ...]:
        """Return the pods of the Job of an incarnation, also if the Job is gone."""
        if not incarnation.job:
            return ()
        return tuple(pod for pod in self.pods if _is_of(pod, incarnation))

    def running_pod(self, incarnation: Incarnation) -> ClusterPod | None:
        return next((pod for pod in self.pods_of(incarnation) if pod.is_running), None)

    def instance_of(self, incarnation: Incarnation) -> ProvisionedInstance | None:
        return self.instances.get(incarnation.instance) if incarnation.instance else None

    def node_name(self, incarnation: Incarnation) -> str:
        """Return the node of an incarnation; that of a VM only once it has joined."""
        instance = self.instance_of(incarnation)
        return incarnation.node or (instance.status.node_name if instance else "")

    def node_of(self, incarnation: Incarnation) -> Node | None:
        return self.nodes.get(self.node_name(incarnation))


class Steps(Struct):
    """What a reconcile has decided to do so far."""

    actions: list[Action] = field(default_factory=list)
    events: list[EmitEvent] = field(default_factory=list)
    wake_times: list[datetime] = field(default_factory=list)

    def normal(self, reason: str, message: str) -> None:
        self.events.append(EmitEvent("Normal", reason, message))

    def warning(self, reason: str, message: str) -> None:
        self.events.append(EmitEvent("Warning", reason, message))

    def wake(self, at: datetime) -> None:
        """Reconcile again at this time even if nothing changes."""
        self.wake_times.append(at)


def _is_of(pod: ClusterPod, incarnation: Incarnation) -> bool:
    labels = pod.metadata.labels
    if not any(labels.get(label) == incarnation.job for label in JOB_NAME_LABELS):
        return False
    controller = pod.metadata.controller
    return controller is not None and (not incarnation.uid or controller.uid == incarnation.uid)
