"""`AresJob` (`ares.io/v1`): the API of AresOperator, unchanged.

The schema checks types only. The dialect validates values, because AresOperator stores an invalid job and
reports `InvalidDefinition` in its status instead of rejecting it. Unknown fields are preserved for the same
reason. The CRD is generated from `AresJobSpec`, but a job is decoded with its spec as plain JSON, so that the
dialect can report unknown fields, too.

Fields that AresOperator does not have are optional. Of `elastic` and `checkpoint` the schema checks values
too: an autoscaler that asks for a size that is not allowed must not make a running job invalid.
"""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.checkpoint_spec import CheckpointSpec, regrouping_store_rule
from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS, CrdOptions, Duration, PrinterColumn, Rule, Scale
from argosy.kinds.elastic_spec import ElasticSpec, replicas_rules
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.notice_status import NoticeStatus
from argosy.kinds.resource import Resource
from argosy.kinds.restart_status import RestartStatus

GROUP = "ares.io"
FINALIZER = f"{GROUP}/ares-finalizer"
"""AresOperator puts this finalizer on jobs; Argosy removes it."""
GROUP_LABEL, JOB_LABEL = f"{GROUP}/group-name", f"{GROUP}/job-name"
ROLE_LABEL, INDEX_LABEL = f"{GROUP}/replica-type", f"{GROUP}/replica-index"
PROPAGATED_ANNOTATIONS = tuple(
    f"{GROUP}/{name}"
    for name in ("ares-queue", "preemptable", "job-priority", "monopolize-nodes", "level-queue-id")
)
"""Annotations of a job that are propagated to its labels, its pods and its PodGroup."""
SCALED_ROLE = "worker"
"""The role that `kubectl scale` changes."""

Template = Annotated[
    dict[str, object], Meta(extra_json_schema={"type": "object", PRESERVE_UNKNOWN_FIELDS: True})
]
Resources = Annotated[dict[str, int | str], Meta(max_length=64)]


class BaguaSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Options of Bagua."""

    preserve: ClassVar[bool] = True

    enable_elastic: bool | None = None
    """Elastic training with etcd, instead of a fixed number of workers with a master."""
    min_replicas: int | None = None
    """MIN_SIZE of elastic training; defaults to the number of workers."""
    max_replicas: int | None = None
    """MAX_SIZE of elastic training; defaults to the number of workers."""


class MpiSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Options of MPI."""

    preserve: ClassVar[bool] = True

    replicas_per_node: int | None = None
    """Slots per host in the host file; defaults to 1."""
    implementation: str | None = None
    """Format of the host file: ompi or mpich."""
    launcher_as_host: bool | None = None
    """The launcher's address is the first line of the host file; defaults to true."""
    ssh_keys: bool | None = None
    """Generate a key pair with which the job's pods connect to each other by ssh."""


class TensorflowSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Options of TensorFlow."""

    preserve: ClassVar[bool] = True

    enable_dynamic_worker: bool | None = None
    """Workers may join and leave: TF_CONFIG of a worker lists only itself and the parameter servers."""


class FrameworkSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Options of the frameworks."""

    preserve: ClassVar[bool] = True

    bagua: BaguaSpec | None = None
    mpi: MpiSpec | None = None
    tensorflow: TensorflowSpec | None = None


class RolePhasePolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """When the role has failed or succeeded."""

    preserve: ClassVar[bool] = True

    failed: str | None = None
    """AnyPod or AllPods."""
    succeeded: str | None = None
    """AnyPod or AllPods."""
    node_down_as_failed: bool | None = None
    """A pod on an unreachable node counts as failed."""


class DependenceSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The roles that must have reached a phase before containers of this role start."""

    preserve: ClassVar[bool] = True

    role_names: list[str] | None = None
    """Roles to wait for."""
    role_phase: str | None = None
    """Phase that these roles must have reached; defaults to Running."""
    mpi_host_file: str | None = None
    """Paths, separated by commas, at which a host file of these roles' pods is written."""


class RoleSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group of identical pods, numbered from 0."""

    preserve: ClassVar[bool] = True
    rules: ClassVar[tuple[Rule, ...]] = replicas_rules("(has(self.replicas) ? self.replicas : 1)")

    replicas: int | None = None
    """Number of pods; defaults to 1."""
    elastic: ElasticSpec | None = None
    """Allows the role to run with fewer pods than requested, and to be scaled while it runs."""
    template: Template | None = None
    """Pod template, as in a Deployment. The operator sets hostname, subdomain and restartPolicy."""
    restart_policy: str | None = None
    """Always, OnFailure, Never or ExitCode. Defaults to OnFailure with elastic or checkpoint, else to Never,
    with exceptions by framework."""
    role_phase_policy: RolePhasePolicySpec | None = None
    controller: str | None = None
    """Pod."""
    dependence: DependenceSpec | None = None


class JobPhasePolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the phases of the roles determine the phase of the job."""

    preserve: ClassVar[bool] = True

    failed: list[list[str]] | None = None
    """The job fails when all roles of one of these lists have failed."""
    succeeded: list[list[str]] | None = None
    """The job succeeds when all roles of one of these lists have succeeded."""


class SchedulingPolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Gang scheduling."""

    preserve: ClassVar[bool] = True

    min_available: int | None = None
    """Number of pods that must be scheduled together; setting it makes the job a gang."""
    queue: str | None = None
    min_resources: Resources | None = None
    priority_class: str | None = None


class RunPolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Limits of the job, and what is kept after it has finished."""

    preserve: ClassVar[bool] = True

    clean_pod_policy: str | None = None
    """Which pods are deleted when the job has finished: All, Running or None."""
    ttl_seconds_after_finished: int | None = None
    """The job is deleted this long after it has finished."""
    active_deadline_seconds: int | None = None
    """The job fails if it has not finished this long after its start."""
    backoff_limit: int | None = None
    """Maximum number of failures over all roles."""
    scheduling_policy: SchedulingPolicySpec | None = None
    suspend: bool | None = None
    """If true, all pods are deleted and the job is kept; setting it to false starts the job again."""
    restart_scope: str | None = None
    """What is restarted when a pod must be replaced: the Pod or the whole Job."""
    below_min_timeout: Duration | None = None
    """The job fails if an elastic role that was running has had fewer than min pods for this long; defaults
    to 10m."""


class AresJobSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The desired state of the job."""

    preserve: ClassVar[bool] = True

    framework_type: str | None = None
    """Name of the framework: bagua, custom, dask, mpi, pytorch, standalone or tensorflow."""
    framework: FrameworkSpec | None = None
    available_ports: list[int] | None = None
    """Ports that Bagua's pods share."""
    ttl_seconds_after_failed: int | None = None
    """Pods, services and the PodGroup are deleted this long after the job failed."""
    job_phase_policy: JobPhasePolicySpec | None = None
    role_specs: (
        Annotated[
            dict[str, Annotated[RoleSpec | None, Meta(extra_json_schema={"nullable": True})]],
            Meta(max_length=64),
        ]
        | None
    ) = None
    """The roles by name."""
    run_policy: RunPolicySpec | None = None
    checkpoint: CheckpointSpec | None = None
    """Where the program keeps checkpoints, and when it is ordered to save one."""


class AresCondition(Struct, frozen=True, rename="camel"):
    """A condition of the job."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Number of pods of a role by phase."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class RoleStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of a role."""

    phase: str = ""
    """Pending, Starting, Running, Succeeded or Failed."""
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    pending: int = 0
    unknown: int = 0
    terminating: int = 0
    replicas: int = 0
    """Number of pods created so far."""
    current_replicas: int = 0
    """Number of pods that the role has now, while an elastic role has fewer than desired."""
    restarts: int = 0
    """Number of pods replaced after failures, plus container restarts."""


class AresJobStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the job."""

    phase: str = ""
    """Pending, Starting, Running, Succeeded or Failed."""
    observed_generation: int = 0
    start_time: datetime | None = None
    running_time: datetime | None = None
    """When all roles were running for the first time."""
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    conditions: list[AresCondition] = field(default_factory=list)
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=dict)
    role_statuses: dict[str, RoleStatus] = field(default_factory=dict)
    replicas: int = 0
    """Number of existing pods of role worker, for kubectl scale."""
    selector: str = ""
    """Label selector of the pods of role worker, for kubectl scale."""
    message: str = ""
    """The state of the job as a sentence."""
    restart_history: list[RestartStatus] = field(default_factory=list)
    """The last twenty restarts, the newest last."""
    notices: list[NoticeStatus] = field(default_factory=list)
    """Announced ends of nodes and pods that concern the job, the oldest first."""
    checkpoint: CheckpointStatus | None = None
    """The last good checkpoint, if the job keeps any."""
    recoveries: list[RecoveryStatus] = field(default_factory=list)
    """The last ten losses of pods of a job with checkpoints, the newest last."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the job; other clients should not read it."""


class AresJob(Struct, frozen=True):
    """A job as the operator decodes it, with its spec as plain JSON."""

    resource: ClassVar[Resource] = Resource(GROUP, "v1", "AresJob", "aresjobs")

    metadata: ObjectMeta
    spec: dict[str, object] = field(default_factory=dict)
    status: AresJobStatus = AresJobStatus()


_STARTED = "has(oldSelf.status) && has(oldSelf.status.startTime)"
_ROLES = "has(self.spec.roleSpecs) && has(oldSelf.spec.roleSpecs)"


class AresJobCrd(Struct, frozen=True):
    """A distributed training job with one or more roles."""

    resource: ClassVar[Resource] = AresJob.resource
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        short_names=("aj",),
        columns=(
            PrinterColumn("Namespace", ".metadata.namespace"),
            PrinterColumn("Framework", ".spec.frameworkType"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
        scale=Scale(f".spec.roleSpecs.{SCALED_ROLE}.replicas", ".status.replicas", ".status.selector"),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"!({_STARTED}) || (has(self.spec.frameworkType) && has(oldSelf.spec.frameworkType)"
            " && self.spec.frameworkType == oldSelf.spec.frameworkType)",
            message="the framework cannot be changed after the job has started; create a new job",
            field_path=".spec.frameworkType",
        ),
        Rule(
            rule=f"!({_STARTED}) || ({_ROLES}"
            " && self.spec.roleSpecs.all(name, name in oldSelf.spec.roleSpecs)"
            " && oldSelf.spec.roleSpecs.all(name, name in self.spec.roleSpecs))",
            message="roles cannot be added or removed after the job has started; create a new job",
            field_path=".spec.roleSpecs",
        ),
        regrouping_store_rule("frameworkType", "roleSpecs"),
    )

    metadata: ObjectMeta
    spec: AresJobSpec
    status: Annotated[AresJobStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        AresJobStatus()
    )
