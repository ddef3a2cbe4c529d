"""`SpotInstanceJob` (`training.training.dcnlab.com/v1alpha1`): copies of a training Job on spot VMs.

The kinds for the VMs are in `spot_machines`. The CRD rejects what is wrong, with one message for each fault.
Objects that were stored before are decoded all the same: required fields have defaults, and enums and ranges
are part of the schema only. `dialects.spot` reports what is wrong with them.
"""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS, CrdOptions, PrinterColumn, Rule
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.status_condition import AtomicSecretReference, SecretReference, StatusConditions
from argosy.kinds.usage_status import UsageStatus

GROUP, VERSION = "training.training.dcnlab.com", "v1alpha1"

DOMAIN = "training.dcnlab.com"
JOB_LABEL = f"{DOMAIN}/spot-instance-job"
"""On Jobs, pods, ProvisionedInstances and CheckpointBackups: name of the SpotInstanceJob."""
REPLICA_LABEL = f"{DOMAIN}/job-replica"
"""On the same objects: the replica's index."""
REPLICA_JOB_LABEL = f"{DOMAIN}/job"
"""On CheckpointBackups: name of the batch/v1 Job."""
INSTANCE_LABEL = f"{DOMAIN}/provisioned-instance"
"""On pods on a bought VM, and on its Node: name of the VM."""
CHECKPOINT_UPDATED = f"{DOMAIN}/checkpoint-updated"
RESTORED_FROM = f"{DOMAIN}/restored-from"
INCARNATION = f"{DOMAIN}/incarnation"
"""Annotations of Jobs that were restored, or replaced."""
ROLE_ANNOTATION = f"{DOMAIN}/role"
"""On pods: `primary` for the one replica that may act outside of the cluster, `standby` for the others."""
TERMINATION_DEADLINE, TERMINATION_SOURCE = f"{DOMAIN}/termination-deadline", f"{DOMAIN}/termination-source"
"""Annotations of a Node whose end is announced, with the meaning of `labels.TERMINATION_DEADLINE`."""
RESTORE_CAPABILITY = f"{DOMAIN}/restore-capability"
"""Label on a node: what can be restored there, `none` if nothing can."""
RESTORING = ("image", "pod")
"""Its values on nodes that restore checkpoints of containers."""
CHECKPOINT_USERS = f"{DOMAIN}/checkpoint-users"
"""Label on a node: `root` if only processes of root can be dumped there."""
"""Label of a Node: `image`, `pod` or `none`."""
FORCE_DELETE = f"{DOMAIN}/force-delete"
"""Annotation of a ProvisionedInstance: "true" gives up a VM that cannot be deleted without credentials."""
FINALIZER = f"{DOMAIN}/finalizer"
INSTANCE_FINALIZER = f"{DOMAIN}/provisionedinstance-finalizer"
VM_FINALIZER = f"{DOMAIN}/vm-finalizer"
"""Never added; removed from old SpotInstanceVMs that are being deleted."""

DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"
"""Go durations without a sign."""
MAX_DURATION_CHARS = 64
MAX_REPOSITORY_CHARS = 512
STORAGE_TYPES = ("gcs", "s3", "pvc", "file")
NAMED_STORAGE_TYPES = ("gcs", "s3", "pvc")
"""Storages that have a name: without one, the namespace of the job would be taken for it."""
BUCKET_TYPES = ("gcs", "s3")
"""Storages to which the pods' sidecars send the checkpoints of a training."""
BUCKET_PATTERN = "[a-zA-Z0-9][-a-zA-Z0-9._]*"
MAX_SECRET_CHARS = 253
SECRET_PATTERN = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"  # noqa: S105 - of a name
BUCKET_NAME_PROBLEM = "must be the name of a bucket, without a scheme"
BUCKET_PATH_PROBLEM = "must not contain '.', '..' or an empty name between two slashes"
CREDENTIALS_PROBLEM = (
    "supported only with level App and type gcs or s3, with which the operator sends checkpoints"
)
LEVELS = ("auto", "App", "Process", "Pod")
INTERVAL_MODES = ("Fixed", "Adaptive")
STRATEGIES = ("FAILOVER", "EAGER_NEXT_REGION", "CHEAPEST")

Int32 = Annotated[int, Meta(extra_json_schema={"format": "int32"})]
Int32FromZero = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 0})]
Int32FromOne = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 1})]
ExitCode = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 1, "maximum": 255})]
Level = Annotated[str, Meta(extra_json_schema={"enum": list(LEVELS)})]
IntervalMode = Annotated[str, Meta(extra_json_schema={"enum": list(INTERVAL_MODES)})]
Strategy = Annotated[str, Meta(extra_json_schema={"enum": list(STRATEGIES)})]
ShortText = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_DURATION_CHARS})]
RepositoryText = Annotated[str, Meta(extra_json_schema={"maxLength": MAX_REPOSITORY_CHARS})]
JobTemplate = Annotated[object, Meta(extra_json_schema={PRESERVE_UNKNOWN_FIELDS: True})]


SecretName = Annotated[
    str,
    Meta(extra_json_schema={"pattern": f"^{SECRET_PATTERN}$", "minLength": 1, "maxLength": MAX_SECRET_CHARS}),
]


class ObjectName(Struct, frozen=True, omit_defaults=True):
    """An object in the same namespace."""

    name: str = ""


class StoreCredentials(Struct, frozen=True, omit_defaults=True):
    """A Secret of the namespace of the job."""

    always_written: ClassVar[tuple[str, ...]] = ("name",)

    name: SecretName = ""


def _any_case(words: tuple[str, ...]) -> str:
    """Return a regular expression for these words in any case. Not all engines know `(?i)`."""
    spelled = ("".join(f"[{c}{c.upper()}]" if c.isalpha() else c for c in word) for word in words)
    return f"^({'|'.join(spelled)})$"


class CheckpointStorage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where the training itself keeps its checkpoints."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.type) && self.type != '') || ((!has(self.bucket) || self.bucket == '')"
            " && (!has(self.pathPrefix) || self.pathPrefix == ''))",
            message="required if bucket or pathPrefix is set",
            field_path=".type",
        ),
        Rule(
            rule=f"!has(self.type) || self.type == '' || self.type.matches('{_any_case(STORAGE_TYPES)}')",
            message=f"unknown storage type; must be one of {', '.join(STORAGE_TYPES)}",
            field_path=".type",
        ),
        Rule(
            rule=f"!has(self.type) || !self.type.matches('{_any_case(NAMED_STORAGE_TYPES)}')"
            " || (has(self.bucket) && self.bucket.matches('[^/]'))",
            message=f"required if type is {', '.join(NAMED_STORAGE_TYPES)}",
            field_path=".bucket",
        ),
    )

    type: ShortText = ""
    """gcs, s3, pvc or file."""
    bucket: str = ""
    """Name of the bucket, of the claim, or of the folder. Required unless the type is file."""
    path_prefix: str = ""
    """Path in it below which the folder of the job is made."""
    credentials: StoreCredentials | None = None
    """Extension of Argosy, for gcs and s3 at level App: a Secret whose keys are variables of the provider,
    such as AWS_ACCESS_KEY_ID, and AWS_ENDPOINT_URL for other S3 servers than that of AWS. Only the operator's
    containers of the pods mount it. Without it they use the identity of the pod."""


class Retention(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many finished CheckpointBackups are kept."""

    keep_last: Int32FromOne = 5
    """Number of finished backups that are kept of each replica."""
    delete_images: bool = False
    """Delete the images of deleted backups too."""


_DURATION = DURATION_PATTERN.replace("\\", "\\\\")
_PATH = r"[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_LOCAL_PATH = r"[a-z0-9]+([_-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
_HOST = r"(localhost|[a-zA-Z0-9-]+([.][a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+:[0-9]+)"
_REPOSITORY = f"^({_HOST}/{_PATH}|{_LOCAL_PATH})$"
_UNUSABLE_PATH = "(^|/)[.][.]?(/|$)|[^/]//+[^/]"


def _bucket_rules() -> tuple[Rule, ...]:
    """Return what a storage needs to which the operator sends checkpoints: one in a bucket, at level App."""
    storage = "self.checkpointStorage"
    bucket, prefix = f"{storage}.bucket", f"{storage}.pathPrefix"
    is_used = (
        f"has({storage}) && has({storage}.type) && {storage}.type.matches('{_any_case(BUCKET_TYPES)}')"
        " && has(self.level) && self.level == 'App'"
    )
    is_name = f"{bucket}.matches('^/*{BUCKET_PATTERN}(/|$)')"
    return (
        Rule(
            rule=f"!has({storage}) || !has({storage}.credentials) || ({is_used})",
            message=CREDENTIALS_PROBLEM,
            field_path=".checkpointStorage.credentials",
        ),
        Rule(
            rule=f"!({is_used}) || !has({bucket}) || !{bucket}.matches('[^/]') || {is_name}",
            message=BUCKET_NAME_PROBLEM,
            field_path=".checkpointStorage.bucket",
        ),
        Rule(
            rule=f"!({is_used}) || !has({bucket}) || !{is_name} || !{bucket}.matches('{_UNUSABLE_PATH}')",
            message=BUCKET_PATH_PROBLEM,
            field_path=".checkpointStorage.bucket",
        ),
        Rule(
            rule=f"!({is_used}) || !has({prefix}) || !{prefix}.matches('{_UNUSABLE_PATH}')",
            message=BUCKET_PATH_PROBLEM,
            field_path=".checkpointStorage.pathPrefix",
        ),
    )


class CheckpointConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How often checkpoints are made, and where they are kept."""

    always_written: ClassVar[tuple[str, ...]] = ("checkpoint_image_repo", "checkpoint_interval")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule=f"self.checkpointInterval.matches('{_DURATION}')"
            " && self.checkpointInterval.matches('[1-9]')",
            message="invalid duration; must be more than zero, such as 30m or 1h30m",
            message_expression="'invalid duration \"' + self.checkpointInterval"
            " + '\"; must be more than zero, such as 30m or 1h30m'",
            field_path=".checkpointInterval",
        ),
        Rule(
            rule=f"self.checkpointImageRepo.matches('{_REPOSITORY}')"
            " && self.checkpointImageRepo != 'localhost'",
            message="invalid repository; must be REGISTRY/REPOSITORY without scheme, tag and digest",
            message_expression="'invalid repository \"' + self.checkpointImageRepo"
            " + '\"; must be REGISTRY/REPOSITORY without scheme, tag and digest'",
            field_path=".checkpointImageRepo",
        ),
        *_bucket_rules(),
    )

    checkpoint_image_repo: RepositoryText = ""
    """Repository of the checkpoint images, such as gcr.io/my-project/checkpoints."""
    checkpoint_interval: ShortText = ""
    """Time between two checkpoints of a replica, such as 30m."""
    checkpoint_repo_credential_ref: AtomicSecretReference | None = None
    """Secret with the credentials of the registry."""
    checkpoint_storage: CheckpointStorage | None = None
    """Where the training itself keeps its checkpoints."""
    level: Level = "auto"
    """App: the training writes checkpoints itself. Process: its containers are checkpointed and restored as
    images. Pod: as a PodCheckpoint. auto: by what the node of the new replica can restore."""
    interval_mode: IntervalMode = "Fixed"
    """Adaptive: shorter than the interval where preemptions are frequent and checkpoints are cheap."""
    retention: Retention = Retention()


class Recovery(Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is done about lost and failed replicas."""

    strategy: Strategy = "FAILOVER"
    """FAILOVER: the zone of the lost VM first, then its region. EAGER_NEXT_REGION: other regions first.
    CHEAPEST: by price and by how often VMs were preempted there."""
    max_restarts: Int32FromZero = 3
    """How often a replica is restarted after errors of its own."""
    recover_on_exit_codes: list[ExitCode] = field(default_factory=list)
    """If set, only replicas that failed with one of these exit codes are restarted."""
    on_demand_fallback_after: Int32FromZero = 0
    """After so many failed attempts to get a spot VM, an on-demand VM is bought; 0: never."""


class SpotInstanceJobSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The desired state of the job."""

    always_written: ClassVar[tuple[str, ...]] = (
        "job_template",
        "checkpoint_config",
        "gcp_credentials_secret_ref",
    )
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="(has(self.spotInstanceVMRef) && has(self.spotInstanceVMRef.name)"
            " && self.spotInstanceVMRef.name != '') != (has(self.instanceTemplateRef)"
            " && has(self.instanceTemplateRef.name) && self.instanceTemplateRef.name != '')",
            message="exactly one of spotInstanceVMRef and instanceTemplateRef must be set",
        ),
        Rule(
            rule="self.gcpCredentialsSecretRef.name != ''",
            message="must not be empty",
            field_path=".gcpCredentialsSecretRef.name",
        ),
    )

    replicas: Int32FromOne = 2
    """Number of redundant copies of the same training."""
    job_template: JobTemplate = None
    """Template of the batch/v1 Job of every replica."""
    checkpoint_config: CheckpointConfig = CheckpointConfig()
    spot_instance_vm_ref: ObjectName | None = field(default=None, name="spotInstanceVMRef")
    """The SpotInstanceVM from which VMs are made."""
    instance_template_ref: ObjectName | None = None
    """The InstanceTemplate from which VMs are made."""
    gcp_credentials_secret_ref: AtomicSecretReference = SecretReference()
    """Secret whose key credentials.json is the JSON of a GCP service account."""
    recovery: Recovery = Recovery()


class ReplicaStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of a replica."""

    name: str
    """Name of its batch/v1 Job."""
    node_name: str = ""
    phase: str = ""
    """Pending, Provisioning, Starting, Running, Recovering, Succeeded or Failed."""
    last_checkpoint_image: str = ""
    index: int = field(default_factory=lambda: 0)
    incarnation: int = field(default_factory=lambda: 0)
    """How often the replica was replaced."""
    instance_name: str = ""
    """The VM that was bought for it."""
    zone: str = ""
    price_per_hour: str = ""
    """Price of that VM, in dollars."""
    role: str = ""
    """primary or standby."""
    restarts: int = 0
    """Number of replacements after errors of its own."""
    preemptions: int = 0
    start_mode: str = ""
    """Fresh, CheckpointImage or AppResume."""


class RecoveryStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One recovery of a replica."""

    id: str
    index: int = field(default_factory=lambda: 0)
    incarnation: int = field(default_factory=lambda: 0)
    """Number of the incarnation that takes the place of the lost one."""
    cause: str = ""
    """Preempted, Maintenance, UserStopped, HostError, NotFound, Failed or Unknown."""
    sources: list[str] = field(default_factory=list)
    """Who reported the loss."""
    notice_time: datetime | None = None
    deadline: datetime | None = None
    action: str = ""
    """What was done about the dying pod: None, Checkpoint or Signal (SIGTERM), and then whether that was in
    time: CheckpointMade, CheckpointMissed, SignalAnswered or SignalMissed."""
    restored_from: str = ""
    digest: str = ""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    outcome: str = ""
    """Recovered: from a checkpoint that is known to be good. ProgressLost: from the beginning, or from a
    checkpoint of the training's own that is older than the newest known one or than the loss. Unknown: the
    training resumes by itself, and nothing shows what it has saved. Superseded: by the next loss, a
    scale-down or the end of the job. Failed: the replica is not restarted any more."""


class SpotInstanceJobStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the job."""

    active_replicas: Int32 = field(default_factory=lambda: 0)
    """Number of replicas whose Job has an active pod."""
    last_checkpoint_time: datetime | None = None
    """When the newest verified checkpoint was completed."""
    last_checkpoint_image: str = ""
    last_checkpoint_step: int | None = None
    """Its step of training, if the training has saved it."""
    job_statuses: list[ReplicaStatus] = field(default_factory=list)
    """The replicas by index."""
    conditions: StatusConditions = field(default_factory=list)
    phase: str = ""
    """Pending, Provisioning, Running, Recovering, Succeeded, Failed or Deleting."""
    observed_generation: int = 0
    """The generation of the job that this status describes."""
    preemption_count: int = field(default_factory=lambda: 0)
    zones: str = ""
    cost_per_hour: str = ""
    """Price of all VMs of the job, in dollars per hour."""
    saved_per_hour: str = ""
    """How much less than on-demand VMs that is."""
    recoveries: list[RecoveryStatus] = field(default_factory=list)
    """The last ten recoveries, the newest last."""
    usage: UsageStatus = UsageStatus()
    """What the replicas have spent their time on, and what that cost."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the job; other clients should not read it."""


class SpotInstanceJob(Struct, frozen=True):
    """Redundant copies of a training Job, on free nodes of the cluster or on spot VMs."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "SpotInstanceJob", "spotinstancejobs")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        columns=(
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Replicas", ".spec.replicas", "integer"),
            PrinterColumn("Active", ".status.activeReplicas", "integer"),
            PrinterColumn("Zones", ".status.zones"),
            PrinterColumn("Price/h", ".status.costPerHour"),
            PrinterColumn("Last-Checkpoint", ".status.lastCheckpointTime", "date"),
            PrinterColumn("Preemptions", ".status.preemptionCount", "integer"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        )
    )

    metadata: ObjectMeta
    spec: SpotInstanceJobSpec = SpotInstanceJobSpec()
    status: Annotated[SpotInstanceJobStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        SpotInstanceJobStatus()
    )
