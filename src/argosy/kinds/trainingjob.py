"""`TrainingJob` (`kai.alibabacloud.com/v1alpha1`): the elastic training job of et-operator.

The CRD rejects enums, ranges and names that are wrong, which et-operator accepted. An object that was stored
before is still decoded: its spec is plain JSON, and the dialect reads it with the same defaults and reports
what is wrong with it. Therefore enums and ranges are part of the schema only, not of the types.
"""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.checkpoint_spec import CheckpointSpec
from argosy.kinds.checkpoint_status import CheckpointStatus, RecoveryStatus
from argosy.kinds.crd_options import CrdOptions, PodTemplate, PrinterColumn, Rule, Scale, digits
from argosy.kinds.dns_names import MAX_LABEL_CHARS
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.restart_status import RestartStatus

GROUP, VERSION = "kai.alibabacloud.com", "v1alpha1"

GROUP_LABEL, JOB_LABEL = "group-name", "training-job-name"
ROLE_LABEL, INDEX_LABEL = "training-job-role", "replica-index"
LAUNCHER, WORKER = "launcher", "worker"
"""The values of ROLE_LABEL."""
SCALE_OUT_LABEL = "scaleout-name"
"""Label of workers that a ScaleOut added; the value is its name."""

APP_LABEL = "app"
"""Label of the launcher's account and of the ConfigMap; the value is the name of the job."""

SUSPEND_ANNOTATION = "job-supervisor.kube-ai.io/job-suspended"
"""The job is suspended while the value is "true"."""
SSH_SECRET_ANNOTATION = "arena.kubeflow.org/ssh-secret"  # noqa: S105
"""Name of a Secret with ssh keys that is mounted instead of a generated one."""
SPOT_INSTANCE_ANNOTATION = "job-supervisor.kube-ai.io/spot-instance"
MAX_WAIT_TIME_ANNOTATION = "job-supervisor.kube-ai.io/max-wait-time"
"""Seconds, or a duration, after which a job whose workers do not all run is suspended."""
JOB_STATUS_ANNOTATION = "job-supervisor.kube-ai.io/job-status"
"""Written by the operator: "timeout" after MAX_WAIT_TIME_ANNOTATION has suspended the job."""

CLEAN_POD_POLICIES = ("All", "Running", "None", "")
REPLACEMENT_POLICIES = ("Always", "OnFailure", "Never", "ExitCode")
RESTART_POLICIES = ("Never", "OnFailure")
ATTACH_MODES = ("ssh", "kubexec")
MOUNT_PATH_PATTERN = r"^/[^:]*$"
MAX_PATH_CHARS = 1024
DEFAULT_BACKOFF_LIMIT = 6

CleanPodPolicy = Annotated[str, Meta(extra_json_schema={"enum": list(CLEAN_POD_POLICIES)})]
ReplacementPolicy = Annotated[str, Meta(extra_json_schema={"enum": list(REPLACEMENT_POLICIES)})]
JobRestartPolicy = Annotated[str, Meta(extra_json_schema={"enum": list(RESTART_POLICIES)})]
AttachMode = Annotated[str, Meta(extra_json_schema={"enum": list(ATTACH_MODES)})]
MountPath = Annotated[
    str, Meta(extra_json_schema={"pattern": MOUNT_PATH_PATTERN, "maxLength": MAX_PATH_CHARS})
]
Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Int32FromZero = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 0})]
Int32FromOne = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 1})]
Int64FromOne = Annotated[int, Meta(extra_json_schema={"format": "int64", "minimum": 1})]
ExactlyOne = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 1, "maximum": 1})]
Resources = Annotated[dict[str, int | str], Meta(extra_json_schema={"maxProperties": 64})]


class LauncherSpec(Struct, frozen=True, rename="camel"):
    """The pod that runs the driver of the training, such as horovodrun."""

    template: PodTemplate
    """Pod template, as in a Deployment. The first container is the launcher."""
    replicas: ExactlyOne = 1
    """There is always one launcher."""
    restart_policy: ReplacementPolicy | None = None
    """What is done if the pod was deleted. Always: it is created again. Otherwise the job has failed."""


def _range_rule(rule: str, field_name: str, bound: str, text: str) -> Rule:
    """Return a rule whose message has both numbers, if they are short enough to be written in CEL."""
    value, limit = f"self.{field_name}", f"self.{bound}"
    both = f"{digits(value)} + ': must be {text} {bound} ' + {digits(limit)}"
    return Rule(
        rule=rule,
        message=f"must be {text} {bound}",
        message_expression=f"{value} < 100000 && {limit} < 100000 ? {both} : ''",
        field_path=f".{field_name}",
    )


class WorkerSpec(Struct, frozen=True, rename="camel"):
    """The pods in which the driver starts the training processes."""

    rules: ClassVar[tuple[Rule, ...]] = (
        _range_rule(
            "!has(self.minReplicas) || self.replicas >= self.minReplicas",
            "replicas",
            "minReplicas",
            "at least",
        ),
        _range_rule(
            "!has(self.maxReplicas) || self.replicas <= self.maxReplicas",
            "replicas",
            "maxReplicas",
            "at most",
        ),
        _range_rule(
            "!has(self.minReplicas) || !has(self.maxReplicas) || self.maxReplicas >= self.minReplicas",
            "maxReplicas",
            "minReplicas",
            "at least",
        ),
    )

    template: PodTemplate
    """Pod template, as in a Deployment. The first container is the worker."""
    replicas: Int32FromOne = 1
    """Number of workers at the start. A change scales the running job."""
    min_replicas: Int32FromOne | None = None
    """Workers are not scaled in below this number; a job with fewer running workers for too long fails.
    Defaults to 1."""
    max_replicas: Int32FromOne | None = None
    """Workers are not scaled out above this number. If unset, there is no limit."""
    restart_policy: ReplacementPolicy = "Never"
    """Which lost workers are replaced, under a new name. Always: all. OnFailure: failed ones. ExitCode: those
    that failed with an exit code from 128 to 255, or without one. Never: none."""


class EtReplicaSpecs(Struct, frozen=True):
    """The pods of the job."""

    preserve: ClassVar[bool] = True

    launcher: LauncherSpec
    worker: WorkerSpec


class SchedulingPolicySpec(Struct, frozen=True, rename="camel"):
    """Gang scheduling of launcher and workers."""

    min_available: Int32FromZero | None = None
    """Number of pods that must be scheduled together. Defaults to all pods."""
    queue: str = ""
    """Queue of the gang scheduler."""
    min_resources: Resources | None = None
    priority_class: str = ""
    """Priority class of the pod group."""
    schedule_timeout_seconds: Int32FromZero | None = None
    """The job fails if it has not been scheduled after this time."""


class TrainingJobSpec(Struct, frozen=True, rename="camel"):
    """The desired state of the job."""

    et_replica_specs: EtReplicaSpecs
    clean_pod_policy: CleanPodPolicy = "Running"
    """Which worker pods are deleted when the job has finished: All, those still Running, or None (also as an
    empty string)."""
    launcher_attach_mode: AttachMode = "ssh"
    """How the launcher starts processes in workers: ssh, or kubexec (kubectl exec)."""
    slots_per_worker: Int32FromOne | None = None
    """Training processes per worker. Defaults to the limit nvidia.com/gpu of the worker container, or 1."""
    restart_policy: JobRestartPolicy = "Never"
    """OnFailure: the whole job is restarted if its launcher fails."""
    backoff_limit: Int32FromZero = DEFAULT_BACKOFF_LIMIT
    """Maximum number of restarts of the whole job."""
    suspend: bool = False
    """If true, all pods are deleted and the job is kept; setting it to false starts the job again."""
    ttl_seconds_after_finished: Int32FromZero | None = None
    """The job is deleted this long after it has finished. If unset, it is kept."""
    active_deadline_seconds: Int64FromOne | None = None
    """The job fails if it has not finished this long after its start."""
    scheduling_policy: SchedulingPolicySpec | None = None
    """Schedule the pods all together or not at all."""
    ssh_auth_mount_path: MountPath = "/root/.ssh"
    """Folder in all containers that gets the ssh keys; another one is needed if images do not run as
    root."""
    checkpoint: CheckpointSpec | None = None
    """Where the program keeps checkpoints, and when it is ordered to save one. Launcher and workers have the
    folder."""


class JobCondition(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A condition of a TrainingJob, ScaleIn or ScaleOut."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_update_time: datetime | None = None
    last_transition_time: datetime | None = None


class ReplicaStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Number of pods by phase."""

    active: Int32 = 0
    succeeded: Int32 = 0
    failed: Int32 = 0


ALWAYS_WRITTEN = ("conditions", "replica_statuses", "restart_count")
"""Fields that et-operator's status schema requires. Statuses that its older CRD stored lack restartCount."""

# msgspec omits a field if it has its default value, or is an empty list or dict made by `list` or `dict`. It
# does not omit what another factory has made.


def no_conditions() -> list[JobCondition]:
    return []


def no_replica_statuses() -> dict[str, ReplicaStatus]:
    return {}


def no_restarts() -> int:
    return 0


class TrainingJobStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the job."""

    always_written: ClassVar[tuple[str, ...]] = ALWAYS_WRITTEN

    phase: str = ""
    """Created, Running, Scaling, Succeeded, Failed or Suspended."""
    conditions: list[JobCondition] = field(default_factory=no_conditions)
    """A condition that becomes True moves to the end of the list."""
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=no_replica_statuses)
    """Number of pods by phase, of Launcher and of Worker."""
    restart_count: Int32 = field(default_factory=no_restarts)
    """Number of restarts of the whole job."""
    start_time: datetime | None = None
    """When the job was started, or resumed."""
    completion_time: datetime | None = None
    """When the launcher ended; not set if it was evicted."""
    last_reconcile_time: datetime | None = None
    """When the status was last written."""
    observed_generation: int = 0
    """The generation of the job that this status describes."""
    current_scaler: str = ""
    """The ScaleIn or ScaleOut that is being executed, such as ScaleIn:default/name."""
    target_workers: list[str] = field(default_factory=list)
    """Names of the desired worker pods, by index."""
    current_workers: list[str] = field(default_factory=list)
    """Names of those that run."""
    failed_workers: list[str] = field(default_factory=list)
    """Names of workers that failed since the last restart; they are not used again before the next one."""
    replicas: Int32 = 0
    """Number of currentWorkers, for kubectl scale."""
    selector: str = ""
    """Label selector of the worker pods, for kubectl scale."""
    restart_history: list[RestartStatus] = field(default_factory=list)
    """The last twenty restarts, the newest last."""
    checkpoint: CheckpointStatus | None = None
    """The last good checkpoint, if the job keeps any."""
    recoveries: list[RecoveryStatus] = field(default_factory=list)
    """The last ten losses of pods of a job with checkpoints, the newest last."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the job; other clients should not read it."""


class TrainingJob(Struct, frozen=True):
    """A job as the operator decodes it, with its spec as plain JSON."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "TrainingJob", "trainingjobs")

    metadata: ObjectMeta
    spec: dict[str, object] = field(default_factory=dict)
    status: TrainingJobStatus = TrainingJobStatus()


_WORKER_PATH = ".spec.etReplicaSpecs.worker"
_INDEX_CHARS = " : ".join(
    [*(f"self{_WORKER_PATH}.replicas > {10**chars} ? {chars + 1}" for chars in (4, 3, 2, 1)), "1"]
)


class TrainingJobCrd(Struct, frozen=True):
    """An elastic training job: workers that may come and go while it runs, and a launcher that starts the
    training processes in them."""

    resource: ClassVar[Resource] = TrainingJob.resource
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        columns=(
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
            PrinterColumn("Desired", f"{_WORKER_PATH}.replicas", "integer", priority=1),
            PrinterColumn("Current", ".status.replicas", "integer", priority=1),
            PrinterColumn("Min", f"{_WORKER_PATH}.minReplicas", "integer", priority=1),
            PrinterColumn("Max", f"{_WORKER_PATH}.maxReplicas", "integer", priority=1),
            PrinterColumn("Scaler", ".status.currentScaler", priority=1),
        ),
        scale=Scale(f"{_WORKER_PATH}.replicas", ".status.replicas", ".status.selector"),
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        # Jobs with a status are exempt: a job that was stored before there was this rule gets a status that
        # says that its name is invalid.
        Rule(
            rule="has(self.status) || (self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
            f" && self.metadata.name.size() + '-worker-'.size() + ({_INDEX_CHARS}) <= {MAX_LABEL_CHARS})",
            message="the name of its last worker, NAME-worker-N, may only have lower-case letters,"
            f" digits and '-', with a letter first, and at most {MAX_LABEL_CHARS} characters",
            field_path=".metadata",
        ),
    )

    metadata: ObjectMeta
    spec: TrainingJobSpec
    status: Annotated[TrainingJobStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        TrainingJobStatus()
    )
