"""`AresJob` (`ares.io/v1`): the API of AresOperator, unchanged.

The schema knows types only. What values mean is judged by the dialect, so that an object its users always
could store is stored, and answered with `InvalidDefinition` instead of being refused. Unknown fields are
kept for the same reason. So the definition is written from `AresJobSpec`, while a job is read with its spec
as it came: what nobody knows must still be told about.
"""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS, CrdOptions, PrinterColumn, Rule
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.restart_status import RestartStatus

GROUP = "ares.io"
FINALIZER = f"{GROUP}/ares-finalizer"
"""Put on jobs by the original; taken away wherever it is seen."""
GROUP_LABEL, JOB_LABEL = f"{GROUP}/group-name", f"{GROUP}/job-name"
ROLE_LABEL, INDEX_LABEL = f"{GROUP}/replica-type", f"{GROUP}/replica-index"
PROPAGATED_ANNOTATIONS = tuple(
    f"{GROUP}/{name}"
    for name in ("ares-queue", "preemptable", "job-priority", "monopolize-nodes", "level-queue-id")
)
"""Annotations of a job that its labels, its pods and its group follow."""

Template = Annotated[
    dict[str, object], Meta(extra_json_schema={"type": "object", PRESERVE_UNKNOWN_FIELDS: True})
]
Resources = Annotated[dict[str, int | str], Meta(max_length=64)]


class BaguaSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How Bagua runs."""

    preserve: ClassVar[bool] = True

    enable_elastic: bool | None = None
    """Elastic training with an etcd, instead of a fixed number of workers with a master."""
    min_replicas: int | None = None
    """MIN_SIZE of elastic training; the number of workers if unset."""
    max_replicas: int | None = None
    """MAX_SIZE of elastic training; the number of workers if unset."""


class MpiSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The host file of MPI jobs."""

    preserve: ClassVar[bool] = True

    replicas_per_node: int | None = None
    """Slots of every host; 1 if unset."""
    implementation: str | None = None
    """Form of the host file: ompi or mpich."""
    launcher_as_host: bool | None = None
    """The launcher's address is the first line of the host file; true if unset."""
    ssh_keys: bool | None = None
    """Make a key pair for the job, by which its pods reach each other with ssh."""


class TensorflowSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What TensorFlow is told."""

    preserve: ClassVar[bool] = True

    enable_dynamic_worker: bool | None = None
    """Workers may come and go: each is told of itself and of the parameter servers only."""


class FrameworkSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Options of frameworks."""

    preserve: ClassVar[bool] = True

    bagua: BaguaSpec | None = None
    mpi: MpiSpec | None = None
    tensorflow: TensorflowSpec | None = None


class RolePhasePolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """When the role as a whole has failed or succeeded."""

    preserve: ClassVar[bool] = True

    failed: str | None = None
    """AnyPod or AllPods."""
    succeeded: str | None = None
    """AnyPod or AllPods."""
    node_down_as_failed: bool | None = None
    """A pod on a node that is down counts as failed."""


class DependenceSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What pods of the role wait for before their containers start."""

    preserve: ClassVar[bool] = True

    role_names: list[str] | None = None
    """Roles to wait for."""
    role_phase: str | None = None
    """Phase that they must have reached; Running if unset."""
    mpi_host_file: str | None = None
    """Where to write a host file of these roles' pods; several paths with commas between."""


class RoleSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A group of like pods, numbered from 0."""

    preserve: ClassVar[bool] = True

    replicas: int | None = None
    """How many pods; 1 if unset."""
    template: Template | None = None
    """The pods, as in a Deployment. Host name, subdomain and restartPolicy are set by the operator."""
    restart_policy: str | None = None
    """Always, OnFailure, Never or ExitCode."""
    role_phase_policy: RolePhasePolicySpec | None = None
    controller: str | None = None
    """Pod."""
    dependence: DependenceSpec | None = None


class JobPhasePolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How the outcomes of roles make the outcome of the job."""

    preserve: ClassVar[bool] = True

    failed: list[list[str]] | None = None
    """The job fails when all roles of one of these lists have failed."""
    succeeded: list[list[str]] | None = None
    """The job succeeds when all roles of one of these lists have succeeded."""


class SchedulingPolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Placement of all pods together."""

    preserve: ClassVar[bool] = True

    min_available: int | None = None
    """Pods that must be placed together; set: they are a gang."""
    queue: str | None = None
    min_resources: Resources | None = None
    priority_class: str | None = None


class RunPolicySpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Limits, and what is left after the end."""

    preserve: ClassVar[bool] = True

    clean_pod_policy: str | None = None
    """Which pods are deleted at the end: All, Running or None."""
    ttl_seconds_after_finished: int | None = None
    """The job itself is deleted so long after its end."""
    active_deadline_seconds: int | None = None
    """The job fails if it has not ended so long after its start."""
    backoff_limit: int | None = None
    """Failures allowed over all roles."""
    scheduling_policy: SchedulingPolicySpec | None = None
    suspend: bool | None = None
    """Take all pods away but keep the job; false again starts it again."""
    restart_scope: str | None = None
    """What starts anew when a pod must be replaced: that Pod or the whole Job."""


class AresJobSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What to run."""

    preserve: ClassVar[bool] = True

    framework_type: str | None = None
    """Which framework: bagua, custom, dask, mpi, pytorch, standalone or tensorflow."""
    framework: FrameworkSpec | None = None
    available_ports: list[int] | None = None
    """Ports that Bagua's pods share."""
    ttl_seconds_after_failed: int | None = None
    """Pods, services and the PodGroup are deleted so long after the job failed."""
    job_phase_policy: JobPhasePolicySpec | None = None
    role_specs: (
        Annotated[
            dict[str, Annotated[RoleSpec | None, Meta(extra_json_schema={"nullable": True})]],
            Meta(max_length=64),
        ]
        | None
    ) = None
    """The groups of pods, by name."""
    run_policy: RunPolicySpec | None = None


class AresCondition(Struct, frozen=True, rename="camel"):
    """Something that can be said of the job."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many pods of a role are where."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0


class RoleStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where one role is."""

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
    """Pods that have been made so far."""
    restarts: int = 0
    """Pods replaced after failures, and containers restarted in place."""


class AresJobStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the job is."""

    phase: str = ""
    """Pending, Starting, Running, Succeeded or Failed."""
    observed_generation: int = 0
    start_time: datetime | None = None
    running_time: datetime | None = None
    """When all roles ran for the first time."""
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    conditions: list[AresCondition] = field(default_factory=list)
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=dict)
    role_statuses: dict[str, RoleStatus] = field(default_factory=dict)
    message: str = ""
    """What a person should know of the job now, in a sentence."""
    restart_history: list[RestartStatus] = field(default_factory=list)
    """The last twenty restarts, the newest at the end."""
    argosy: dict[str, object] = field(default_factory=dict)
    """What the operator must remember; not for reading by others."""


class AresJob(Struct, frozen=True):
    """A job as it is read: its spec as it stands in the API."""

    resource: ClassVar[Resource] = Resource(GROUP, "v1", "AresJob", "aresjobs")

    metadata: ObjectMeta
    spec: dict[str, object] = field(default_factory=dict)
    status: AresJobStatus = AresJobStatus()


_STARTED = "has(oldSelf.status) && has(oldSelf.status.startTime)"
_ROLES = "has(self.spec.roleSpecs) && has(oldSelf.spec.roleSpecs)"


class AresJobCrd(Struct, frozen=True):
    """A distributed training job of several roles."""

    resource: ClassVar[Resource] = AresJob.resource
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        short_names=("aj",),
        columns=(
            PrinterColumn("Namespace", ".metadata.namespace"),
            PrinterColumn("Framework", ".spec.frameworkType"),
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"!({_STARTED}) || (has(self.spec.frameworkType) && has(oldSelf.spec.frameworkType)"
            " && self.spec.frameworkType == oldSelf.spec.frameworkType)",
            message="the framework of a job that has started cannot be changed; make a new job",
            field_path=".spec.frameworkType",
        ),
        Rule(
            rule=f"!({_STARTED}) || ({_ROLES}"
            " && self.spec.roleSpecs.all(name, name in oldSelf.spec.roleSpecs)"
            " && oldSelf.spec.roleSpecs.all(name, name in self.spec.roleSpecs))",
            message="roles of a job that has started can be neither added nor removed; make a new job",
            field_path=".spec.roleSpecs",
        ),
    )

    metadata: ObjectMeta
    spec: AresJobSpec
    status: Annotated[AresJobStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        AresJobStatus()
    )
