"""`TrainingRun` (`argosy.dev/v1alpha1`): a distributed training job of any framework.

This is Argosy's own API and covers all features of the workload model. `kubectl explain` shows these
docstrings. Defaults that depend on the framework stay unset in the stored object; the documentation
of the framework lists them.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.checkpoint_spec import CheckpointSpec, regrouping_store_rule
from argosy.kinds.crd_options import CrdOptions, Duration, PodTemplate, PrinterColumn, Rule, Scale
from argosy.kinds.elastic_spec import ElasticSpec, replicas_rules
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.trainingrun_status import TrainingRunStatus

WORKER = "worker"
"""The role that `kubectl scale` changes and that the WORKERS column shows."""

RoleName = Annotated[str, Meta(min_length=1, max_length=40, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$")]

RoleLists = Annotated[
    list[Annotated[list[RoleName], Meta(min_length=1, max_length=16)]],
    Meta(max_length=16),
]


class RestartPolicy(StrEnum):
    NEVER = "Never"
    ON_FAILURE = "OnFailure"
    ALWAYS = "Always"
    EXIT_CODE = "ExitCode"


class RestartScope(StrEnum):
    POD = "Pod"
    ROLE = "Role"
    JOB = "Job"


class PodQuantifier(StrEnum):
    ANY = "AnyPod"
    ALL = "AllPods"


class CleanupPolicy(StrEnum):
    ALL = "All"
    RUNNING = "Running"
    NONE = "None"


class DependencyPhase(StrEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class RolePolicySpec(Struct, frozen=True, rename="camel"):
    """When the role as a whole has failed or succeeded."""

    failed: PodQuantifier | None = None
    """AnyPod: one failed pod that is not replaced fails the role. AllPods: the role fails when all pods have
    failed. Defaults to AnyPod."""
    succeeded: PodQuantifier | None = None
    """AnyPod: one succeeded pod is enough. AllPods: all pods must succeed. Defaults to AllPods."""
    node_down_as_failed: bool = False
    """A pod on an unreachable node counts as failed at once, not only when it is evicted."""


class DependencySpec(Struct, frozen=True, rename="camel"):
    """A role to wait for."""

    role: RoleName
    """Name of the role to wait for."""
    phase: DependencyPhase = DependencyPhase.RUNNING
    """Phase that the other role must have reached. A later phase also satisfies the dependency, except that
    Failed satisfies only Failed."""


class RoleSpec(Struct, frozen=True, rename="camel"):
    """A group of identical pods, numbered from 0."""

    rules: ClassVar[tuple[Rule, ...]] = replicas_rules("self.replicas")

    template: PodTemplate
    """Pod template, as in a Deployment. The operator sets hostname, subdomain and restartPolicy."""
    replicas: Annotated[int, Meta(ge=1, le=99_999)] = 1
    """Number of pods."""
    elastic: ElasticSpec | None = None
    """Allows the role to run with fewer pods than requested, and to be scaled while it runs."""
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    """Which terminated pods are replaced. Never: none. OnFailure: failed pods. Always: all, and the kubelet
    restarts containers. ExitCode: pods whose exit code is 128 or above (killed by a signal)."""
    policy: RolePolicySpec | None = None
    """When the role as a whole has failed or succeeded."""
    depends_on: Annotated[
        list[DependencySpec],
        Meta(
            max_length=16,
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["role"]},
        ),
    ] = field(default_factory=list)
    """Containers of this role start only after these roles have reached the given phases."""
    slots: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Training processes per pod. Defaults to the pod's number of GPUs, or 1."""


class JobPolicySpec(Struct, frozen=True, rename="camel"):
    """How the phases of the roles determine the phase of the run."""

    failed: RoleLists = field(default_factory=list)
    """The run fails when all roles of one of these lists have failed."""
    succeeded: RoleLists = field(default_factory=list)
    """The run succeeds when all roles of one of these lists have succeeded."""


class GangSpec(Struct, frozen=True, rename="camel"):
    """Schedule the pods all together or not at all, with the operator's gang scheduler."""

    min_available: Annotated[int, Meta(ge=1, le=99_999)] | None = None
    """Number of pods that must be scheduled together. Defaults to all pods; elastic roles count with min."""
    queue: Annotated[str, Meta(max_length=63)] = ""
    """Queue of the gang scheduler."""
    priority_class: Annotated[str, Meta(max_length=253)] = ""
    """Priority class of the pod group."""
    timeout: Duration | None = None
    """The run fails if it has not been scheduled after this time."""


class EscalationSpec(Struct, frozen=True, rename="camel"):
    """After how many failures in a row a restart covers more than the failed pod. Disruptions by the cluster
    do not count as failures. Only for frameworks that tolerate the loss of a pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.role) || has(self.pod)",
            message="role requires pod: without it a restart never covers the role",
        ),
    )

    container: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Restarts of containers by the kubelet before the pod is replaced. If unset, the kubelet restarts only
    containers of roles with restart Always, without a limit."""
    pod: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Replacements of a pod before all pods of its role are restarted. If unset, they never are."""
    role: Annotated[int, Meta(ge=0, le=1000)] | None = None
    """Restarts of a role before the whole run is restarted. If unset, it never is."""


class LimitsSpec(Struct, frozen=True, rename="camel"):
    """Limits of restarts and times. Durations have the form 90s, 10m, 2h or 1h30m."""

    restarts: Annotated[int, Meta(ge=0, le=10_000)] = 3
    """Maximum number of restarts after failures, over all roles. The next failure fails the run. Disruptions
    by the cluster (evictions, deleted pods, lost nodes) do not count, except the eviction of a pod that
    exceeded its own storage limits."""
    escalation: EscalationSpec | None = None
    """When a restart covers more than the failed pod."""
    active_deadline: Duration | None = None
    """The run fails if it has not finished this long after its start. Suspending the run resets the timer."""
    start_timeout: Duration | None = None
    """The run fails if not all roles are running this long after its start or after a restart."""
    below_min_timeout: Duration = "10m"
    """The run fails if an elastic role that was running has had fewer than min pods for this long."""
    force_delete_after: Duration | None = None
    """A terminating pod on an unreachable node is force-deleted and replaced this long after its grace
    period. If unset, it is replaced only when the node is ready again, is deleted, or has the taint
    node.kubernetes.io/out-of-service. Risk: an unreachable node may still run the old pod, so two pods of one
    rank may write the same checkpoint. Set it only if the training tolerates that."""
    ttl_after_succeeded: Duration | None = None
    """The run and its objects are deleted this long after it succeeded. If unset, they are kept."""
    ttl_after_failed: Duration | None = None
    """The run and its objects are deleted this long after it failed. If unset, they are kept."""


FIXED_SIZE_FRAMEWORKS = ("deepspeed", "horovod", "mpi")
"""Frameworks of programs that end when a process is lost: a new size restarts all of them."""
_ROLES_EXIST = "all(list, list.all(name, name in self.roles))"


class TrainingRunSpec(Struct, frozen=True, rename="camel"):
    """The desired state of the run."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="self.roles.all(name, name.size() <= 40 && name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$'))",
            message="names of roles must have lower-case letters, digits and '-', begin with a letter and"
            " have at most 40 characters",
            field_path=".roles",
        ),
        Rule(
            rule="!has(self.jobPolicy) || !has(self.jobPolicy.failed) || self.jobPolicy.failed."
            + _ROLES_EXIST,
            message="jobPolicy.failed: unknown role",
            field_path=".jobPolicy",
        ),
        Rule(
            rule="!has(self.jobPolicy) || !has(self.jobPolicy.succeeded) || self.jobPolicy.succeeded."
            + _ROLES_EXIST,
            message="jobPolicy.succeeded: unknown role",
            field_path=".jobPolicy",
        ),
        Rule(
            rule="!has(self.restartScope) || !has(self.limits) || !has(self.limits.escalation)",
            message="not supported together with limits.escalation; remove one of them",
            field_path=".restartScope",
        ),
        Rule(
            rule="self.roles.all(name, !has(self.roles[name].dependsOn)"
            " || self.roles[name].dependsOn.all(dep, dep.role in self.roles && dep.role != name))",
            message="dependsOn: unknown role, or the role itself",
            field_path=".roles",
        ),
    )

    framework: Annotated[str, Meta(min_length=1, max_length=63)]
    """Name of the framework, such as pytorch; `argosy frameworks` lists them."""
    roles: Annotated[dict[str, RoleSpec], Meta(min_length=1, max_length=32)]
    """The roles by name."""
    options: dict[str, object] = field(default_factory=dict)
    """Options of the framework."""
    job_policy: JobPolicySpec | None = None
    """How the phases of the roles determine the phase of the run. Defaults to the framework's policy."""
    restart_scope: RestartScope | None = None
    """What is restarted when a pod must be replaced: the Pod, its Role or the whole Job. The default depends
    on the framework."""
    gang: GangSpec | None = None
    """Schedule the pods all together or not at all."""
    limits: LimitsSpec = LimitsSpec()
    """Limits of restarts and times."""
    cleanup: CleanupPolicy = CleanupPolicy.RUNNING
    """Which pods are deleted when the run has finished: All, those still Running, or None."""
    suspend: bool = False
    """If true, all pods are deleted and the run is kept; setting it to false starts the run again."""
    checkpoint: CheckpointSpec | None = None
    """Where the program keeps checkpoints, and when the operator orders it to save one."""


class TrainingRun(Struct, frozen=True):
    """A distributed training job: its roles of pods, how they restart, and when the run has succeeded or
    failed."""

    resource: ClassVar[Resource] = Resource("argosy.dev", "v1alpha1", "TrainingRun", "trainingruns")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        short_names=("tr",),
        categories=("all", "argosy"),
        columns=(
            PrinterColumn("Framework", ".spec.framework"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Workers", ".status.workers"),
            PrinterColumn("Attempt", ".status.attempt", "integer"),
            PrinterColumn("Reason", ".status.reason"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
            PrinterColumn("Message", ".status.message", priority=1),
        ),
        scale=Scale(".spec.roles.worker.replicas", ".status.replicas", ".status.selector"),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(oldSelf.status) || !has(oldSelf.status.startTime)"
            " || self.spec.framework == oldSelf.spec.framework",
            message="the framework cannot be changed after the run has started; create a new run",
            field_path=".spec.framework",
        ),
        Rule(
            rule="!has(oldSelf.status) || !has(oldSelf.status.startTime)"
            " || (self.spec.roles.all(name, name in oldSelf.spec.roles)"
            " && oldSelf.spec.roles.all(name, name in self.spec.roles))",
            message="roles cannot be added or removed after the run has started; create a new run",
            field_path=".spec.roles",
        ),
        Rule(
            rule=f"!(self.spec.framework in {list(FIXED_SIZE_FRAMEWORKS)})"
            " || !has(oldSelf.status) || !has(oldSelf.status.startTime)"
            " || (has(self.spec.suspend) && self.spec.suspend)"
            " || (has(oldSelf.spec.suspend) && oldSelf.spec.suspend)"
            " || self.spec.roles.all(name, has(self.spec.roles[name].elastic)"
            " || !(name in oldSelf.spec.roles)"
            " || self.spec.roles[name].replicas == oldSelf.spec.roles[name].replicas)",
            message="replicas cannot be changed while the run has pods: its process group has a fixed size,"
            " and progress since the last checkpoint would be lost; set elastic to restart the run with the"
            " new number, or suspend it first",
            field_path=".spec.roles",
        ),
        regrouping_store_rule("framework", "roles"),
    )

    metadata: ObjectMeta
    spec: TrainingRunSpec
    status: Annotated[
        TrainingRunStatus,
        # The operator is the only writer and always writes the whole status. Tracking the owner of each
        # field would add a third to the object's size and a quarter to the cost of a write.
        Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"}),
    ] = TrainingRunStatus()
