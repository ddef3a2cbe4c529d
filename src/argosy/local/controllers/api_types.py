"""The parts of Kubernetes' kinds that the scheduler and the built-in controllers read.

These structs have more fields than those of `argosy.kinds.kubernetes`, of which the operator keeps thousands:
a scheduler needs requests, affinity and tolerations. All controllers share one cache per kind, so there is
one struct per kind. They are partial: never write one back.
"""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.kubernetes import ContainerStatus
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.node_matching import (
    Container,
    Expression,
    NodeAffinity,
    Quantities,
    Requirements,
    Toleration,
)
from argosy.kinds.resource import Resource

Template = dict[str, object]


class StatusCondition(Struct, rename="camel", omit_defaults=True):
    """A condition of a Node, Job, ReplicaSet, Deployment or PodGroup; each kind uses the fields it has."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    last_heartbeat_time: datetime | None = None
    last_probe_time: datetime | None = None
    last_update_time: datetime | None = None
    transition_id: str = field(default="", name="transitionID")


class LabelSelector(Struct, rename="camel"):
    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: list[Expression] = field(default_factory=list)


class PodAffinityTerm(Struct, rename="camel"):
    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: list[str] = field(default_factory=list)
    namespace_selector: LabelSelector | None = None


class WeightedPodAffinityTerm(Struct, rename="camel"):
    pod_affinity_term: PodAffinityTerm
    weight: int = 0


class PodAffinity(Struct):
    required: list[PodAffinityTerm] = field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct, rename="camel"):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Struct, rename="camel"):
    topology_key: str
    max_skew: int = 1
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] = field(default_factory=list)
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class SchedulingGate(Struct):
    name: str


class ClaimVolume(Struct, rename="camel"):
    claim_name: str


class Volume(Struct, rename="camel"):
    """A volume of a pod; only claims are read."""

    persistent_volume_claim: ClaimVolume | None = None


class PodSpec(Struct, rename="camel"):
    node_name: str = ""
    scheduler_name: str = "default-scheduler"
    hostname: str = ""
    subdomain: str = ""
    host_network: bool = False
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = "PreemptLowerPriority"
    node_selector: dict[str, str] = field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: list[Toleration] = field(default_factory=list)
    containers: list[Container] = field(default_factory=list)
    init_containers: list[Container] = field(default_factory=list)
    overhead: Quantities = field(default_factory=dict)
    resources: Requirements | None = None
    volumes: list[Volume] = field(default_factory=list)
    scheduling_gates: list[SchedulingGate] = field(default_factory=list)
    topology_spread_constraints: list[SpreadConstraint] = field(default_factory=list)


class PodStatus(Struct, rename="camel"):
    phase: str = "Pending"
    reason: str = ""
    nominated_node_name: str = ""
    pod_ip: str = field(default="", name="podIP")
    conditions: list[Condition] = field(default_factory=list)
    container_statuses: list[ContainerStatus] = field(default_factory=list)
    init_container_statuses: list[ContainerStatus] = field(default_factory=list)


class Pod(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def claim_names(self) -> set[str]:
        """Names of the PersistentVolumeClaims that the pod uses."""
        claims = (volume.persistent_volume_claim for volume in self.spec.volumes)
        return {claim.claim_name for claim in claims if claim}


class Taint(Struct, rename="camel"):
    key: str
    effect: str
    value: str = ""
    time_added: datetime | None = None


class NodeSpec(Struct, rename="camel"):
    unschedulable: bool = False
    taints: list[Taint] = field(default_factory=list)


class NodeStatus(Struct, rename="camel"):
    allocatable: Quantities = field(default_factory=dict)
    capacity: Quantities = field(default_factory=dict)
    conditions: list[StatusCondition] = field(default_factory=list)


class Node(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Node", "nodes", namespaced=False)

    metadata: ObjectMeta
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)


class PriorityClass(Struct, rename="camel"):
    resource: ClassVar[Resource] = Resource(
        "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False
    )

    metadata: ObjectMeta
    value: int = 0


class PodGroupSpec(Struct, rename="camel"):
    min_member: int = 0
    min_task_member: dict[str, int] = field(default_factory=dict)
    min_resources: Quantities = field(default_factory=dict)
    priority_class_name: str = ""


class PodGroupStatus(Struct):
    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: list[StatusCondition] = field(default_factory=list)


class PodGroup(Struct):
    resource: ClassVar[Resource] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")

    metadata: ObjectMeta
    spec: PodGroupSpec = field(default_factory=PodGroupSpec)
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class BudgetSpec(Struct, rename="camel"):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None

    @property
    def needs_scale(self) -> bool:
        """Return True if the budget depends on the scale of the pods' controllers."""
        return self.max_unavailable is not None or isinstance(self.min_available, str)


class BudgetStatus(Struct, rename="camel"):
    observed_generation: int = 0
    disrupted_pods: dict[str, datetime] = field(default_factory=dict)
    """Pods whose eviction was accepted and whose deletion has not been observed, and since when."""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[Condition] = field(default_factory=list)


class PodDisruptionBudget(Struct):
    resource: ClassVar[Resource] = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")

    metadata: ObjectMeta
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)


class ExitCodes(Struct, rename="camel"):
    operator: str
    values: list[int] = field(default_factory=list)
    container_name: str = ""


class ConditionPattern(Struct):
    type: str
    status: str = "True"


class FailureRule(Struct, rename="camel"):
    action: str
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: list[ConditionPattern] = field(default_factory=list)


class FailurePolicy(Struct):
    rules: list[FailureRule] = field(default_factory=list)


class JobSpec(Struct, rename="camel"):
    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = "NonIndexed"
    backoff_limit: int = 6
    pod_failure_policy: FailurePolicy | None = None
    pod_replacement_policy: str = "TerminatingOrFailed"
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    suspend: bool = False
    template: Template = field(default_factory=dict)


class Uncounted(Struct):
    """Terminated pods that are not in the counts yet, because they still have the tracking finalizer."""

    succeeded: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


class JobStatus(Struct, rename="camel"):
    active: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    completed_indexes: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    uncounted_terminated_pods: Uncounted = field(default_factory=Uncounted)
    conditions: list[StatusCondition] = field(default_factory=list)


class Job(Struct):
    resource: ClassVar[Resource] = Resource("batch", "v1", "Job", "jobs")

    metadata: ObjectMeta
    spec: JobSpec = field(default_factory=JobSpec)
    status: JobStatus = field(default_factory=JobStatus)


class NamespaceSpec(Struct):
    finalizers: list[str] = field(default_factory=list)


class NamespaceStatus(Struct):
    phase: str = "Active"
    conditions: list[Condition] = field(default_factory=list)


class Namespace(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Namespace", "namespaces", namespaced=False)

    metadata: ObjectMeta
    spec: NamespaceSpec = field(default_factory=NamespaceSpec)
    status: NamespaceStatus = field(default_factory=NamespaceStatus)


PolicyRule = dict[str, list[str]]


class AggregationRule(Struct, rename="camel"):
    cluster_role_selectors: list[LabelSelector] = field(default_factory=list)


class ClusterRole(Struct, rename="camel"):
    resource: ClassVar[Resource] = Resource(
        "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False
    )

    metadata: ObjectMeta
    rules: list[PolicyRule] | None = None
    aggregation_rule: AggregationRule | None = None
