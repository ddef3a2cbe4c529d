"""Defines the part of pods that SpotInstanceJobs read: their own, and those that use room on nodes."""

from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.kubernetes import PodStatus, Terminated
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.spot import JOB_LABEL
from argosy.plan.children import KubernetesObject
from argosy.workload.capacity import PodRequirements

JOB_INDEX = "spot-job"
"""Index of pods by the namespace and the label of their SpotInstanceJob."""
USAGE_INDEX = "usage"
"""Index of pods that use capacity: all that have not ended, under `USING`."""
USING = "node"
ALL_INDEX, ALL = "all", "all"
"""Index of nodes, and of SpotInstanceJobs, under one value."""

ENDED_PHASES = frozenset({"Succeeded", "Failed"})
DISRUPTION_TARGET = "DisruptionTarget"


class ClusterPod(Struct, gc=False):
    """Any pod of the cluster."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    spec: PodRequirements = field(default_factory=PodRequirements)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def has_ended(self) -> bool:
        return self.status.phase in ENDED_PHASES

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def is_running(self) -> bool:
        return self.status.phase == "Running" and not self.is_terminating

    @property
    def disruption(self) -> str:
        """Return why the pod is or was removed by the cluster; empty if it is not."""
        for condition in self.status.conditions:
            if condition.type == DISRUPTION_TARGET and condition.status == "True":
                return condition.reason or DISRUPTION_TARGET
        return ""

    @property
    def started_at(self) -> datetime | None:
        """Return when its first container was started."""
        states = (status.state.running for status in self.status.container_statuses)
        times = [state.started_at for state in states if state and state.started_at]
        return min(times, default=self.status.start_time)

    def ended_containers(self) -> Iterable[Terminated]:
        """Return how containers have ended, also those that were started again."""
        for status in self.status.container_statuses:
            for state in (status.state, status.last_state):
                if state.terminated is not None:
                    yield state.terminated


def job_value(namespace: str, label: str) -> str:
    """Return under which value of `JOB_INDEX` the pods of a job are."""
    return f"{namespace}/{label}"


def pods_by_job(obj: KubernetesObject) -> Iterable[str]:
    label = obj.metadata.labels.get(JOB_LABEL)
    return (job_value(obj.metadata.namespace, label),) if label else ()


def pods_by_usage(obj: KubernetesObject) -> Iterable[str]:
    return (USING,) if isinstance(obj, ClusterPod) and obj.spec.node_name and not obj.has_ended else ()


def everything(obj: KubernetesObject) -> Iterable[str]:
    del obj
    return (ALL,)
