"""The parts of Kubernetes' own kinds that Argosy reads.

Decoding drops every field not listed here, which keeps 20,000 cached pods small. So these objects must never
be written back; changes are sent as patches or as complete bodies. The structs of a pod are not tracked by
the garbage collector (`gc=False`), because trees of plain values have no cycles.
"""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.resource import Resource


class Terminated(Struct, rename="camel", gc=False):
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    container_id: str = field(default="", name="containerID")


class Waiting(Struct, gc=False):
    reason: str = ""
    message: str = ""


class Running(Struct, rename="camel", gc=False):
    started_at: datetime | None = None


class ContainerState(Struct, gc=False):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Struct, rename="camel", gc=False):
    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = field(default_factory=ContainerState)
    last_state: ContainerState = field(default_factory=ContainerState)


class PodSpec(Struct, rename="camel", gc=False):
    node_name: str = ""
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False


class PodStatus(Struct, rename="camel", gc=False):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = field(default="", name="podIP")
    host_ip: str = field(default="", name="hostIP")
    start_time: datetime | None = None
    conditions: list[Condition] = field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = field(default_factory=list)
    container_statuses: list[ContainerStatus] = field(default_factory=list)


class Pod(Struct, gc=False):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)


class Taint(Struct, gc=False):
    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct, rename="camel"):
    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)
    provider_id: str = field(default="", name="providerID")


class NodeStatus(Struct):
    allocatable: dict[str, str] = field(default_factory=dict)
    conditions: list[Condition] = field(default_factory=list)


class Node(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class JobStatus(Struct, rename="camel"):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: list[Condition] = field(default_factory=list)


class Job(Struct):
    """A batch/v1 Job."""

    resource: ClassVar[Resource] = Resource("batch", "v1", "Job", "jobs")

    metadata: ObjectMeta
    status: JobStatus = field(default_factory=JobStatus)


class Service(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Service", "services")

    metadata: ObjectMeta


class ServiceSpec(Struct):
    cluster_ip: str = field(default="", name="clusterIP")


class ServiceWithIP(Struct):
    """A Service with its cluster IP. `Service` has metadata only, to keep the cache small."""

    resource: ClassVar[Resource] = Service.resource

    metadata: ObjectMeta
    spec: ServiceSpec = field(default_factory=ServiceSpec)


class ConfigMap(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "ConfigMap", "configmaps")

    metadata: ObjectMeta
    data: dict[str, str] = field(default_factory=dict)


class ConfigMapMetadata(Struct):
    """A ConfigMap that is fetched without its content."""

    resource: ClassVar[Resource] = ConfigMap.resource

    metadata: ObjectMeta


class PodDisruptionBudgetMetadata(Struct):
    """A PodDisruptionBudget of which only the metadata is read."""

    resource: ClassVar[Resource] = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")

    metadata: ObjectMeta


class Secret(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Secret", "secrets")

    metadata: ObjectMeta
    data: dict[str, str] = field(default_factory=dict)


class SecretMetadata(Struct):
    """A Secret that is fetched without its content."""

    resource: ClassVar[Resource] = Secret.resource

    metadata: ObjectMeta


class ServiceAccount(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "ServiceAccount", "serviceaccounts")

    metadata: ObjectMeta


class Namespace(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)

    metadata: ObjectMeta


class ObjectReference(Struct, rename="camel", gc=False):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Event(Struct, rename="camel"):
    resource: ClassVar[Resource] = Resource("", "v1", "Event", "events")

    metadata: ObjectMeta
    involved_object: ObjectReference = field(default_factory=ObjectReference)
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    first_timestamp: datetime | None = None
    last_timestamp: datetime | None = None


class LeaseSpec(Struct, rename="camel"):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int = 0


class Lease(Struct):
    resource: ClassVar[Resource] = Resource("coordination.k8s.io", "v1", "Lease", "leases")

    metadata: ObjectMeta
    spec: LeaseSpec = field(default_factory=LeaseSpec)


class ScaleSpec(Struct, gc=False):
    replicas: int = 0


class Scale(Struct):
    """The `scale` subresource, which has the same form for every kind."""

    resource: ClassVar[Resource] = Resource("autoscaling", "v1", "Scale", "scales")

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ScaleSpec = field(default_factory=ScaleSpec)


class Role(Struct):
    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "Role", "roles")

    metadata: ObjectMeta


class RoleBinding(Struct):
    resource: ClassVar[Resource] = Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")

    metadata: ObjectMeta


class CustomResourceDefinition(Struct):
    resource: ClassVar[Resource] = Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        namespaced=False,
    )

    metadata: ObjectMeta
