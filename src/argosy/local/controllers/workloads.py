"""The parts of ReplicaSets and Deployments that their controllers read and write."""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.local.controllers.api_types import LabelSelector, StatusCondition, Template


class ReplicaSetSpec(Struct, rename="camel"):
    replicas: int = 1
    min_ready_seconds: int = 0
    selector: LabelSelector = field(default_factory=LabelSelector)
    template: Template = field(default_factory=dict)


class ReplicaSetStatus(Struct, rename="camel"):
    replicas: int = 0
    fully_labeled_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    terminating_replicas: int | None = None
    observed_generation: int = 0
    conditions: list[StatusCondition] = field(default_factory=list)


class ReplicaSet(Struct):
    resource: ClassVar[Resource] = Resource("apps", "v1", "ReplicaSet", "replicasets")

    metadata: ObjectMeta
    spec: ReplicaSetSpec = field(default_factory=ReplicaSetSpec)
    status: ReplicaSetStatus = field(default_factory=ReplicaSetStatus)


class RollingUpdate(Struct, rename="camel"):
    """Numbers, or percentages of spec.replicas."""

    max_surge: int | str = 0
    max_unavailable: int | str = 0


class Strategy(Struct, rename="camel"):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class DeploymentSpec(Struct, rename="camel"):
    replicas: int = 1
    min_ready_seconds: int = 0
    paused: bool = False
    progress_deadline_seconds: int | None = None
    revision_history_limit: int | None = None
    selector: LabelSelector = field(default_factory=LabelSelector)
    strategy: Strategy = field(default_factory=Strategy)
    template: Template = field(default_factory=dict)


class DeploymentStatus(Struct, rename="camel"):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0
    available_replicas: int = 0
    unavailable_replicas: int = 0
    terminating_replicas: int | None = None
    collision_count: int | None = None
    conditions: list[StatusCondition] = field(default_factory=list)


class Deployment(Struct):
    resource: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments")

    metadata: ObjectMeta
    spec: DeploymentSpec = field(default_factory=DeploymentSpec)
    status: DeploymentStatus = field(default_factory=DeploymentStatus)
