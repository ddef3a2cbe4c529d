"""`CheckpointBackup`, `CheckpointRestore` and `StatefulMigration` (`migration.dcnlab.com`).

The version v1 is stored; v1alpha1 has the same schema and is served as well. In clusters with the CRDs of
stateful-migration-operator, fields that those lack are dropped from statuses, so nothing relies on them.
"""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds import labels
from argosy.kinds.crd_options import CrdOptions, PrinterColumn
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.status_condition import SecretReference, StatusConditions

GROUP, VERSION = "migration.dcnlab.com", "v1"
OLD_VERSION = "v1alpha1"

BACKUP_FINALIZER = f"checkpointbackup.{GROUP}/finalizer"
MIGRATION_FINALIZER = f"migrationbackup.{GROUP}/finalizer"

MEMBER_CLUSTER = f"{labels.DOMAIN}/member-cluster"
"""Annotation of CheckpointBackups that Karmada copies to the cluster of this name."""

IMMEDIATELY = "immediately"
"""The schedule of a backup that is made once."""

CHECKPOINTING, CHECKPOINTED = "Checkpointing", "Checkpointed"
STORING_CHECKPOINT, CHECKPOINT_STORED = "StoringCheckpoint", "CheckpointStored"
IMAGE_BUILDING, IMAGE_BUILT = "ImageBuilding", "ImageBuilt"
IMAGE_PUSHING, IMAGE_PUSHED = "ImagePushing", "ImagePushed"
COMPLETED, COMPLETED_POD_DELETED = "Completed", "CompletedPodDeleted"
COMPLETED_WITH_ERROR, FAILED = "CompletedWithError", "Failed"
TERMINAL_PHASES = frozenset({COMPLETED, COMPLETED_POD_DELETED, COMPLETED_WITH_ERROR, FAILED})
"""The last phases of a CheckpointBackup. One with a cron schedule leaves Completed at its next tick."""
GOOD_PHASES = TERMINAL_PHASES - {FAILED}
"""Those in which there may be images to restore from."""


class PodReference(Struct, frozen=True, omit_defaults=True):
    """A pod."""

    always_written: ClassVar[tuple[str, ...]] = ("name",)

    name: str = ""
    namespace: str = ""
    """Defaults to the namespace of the object."""


class ResourceReference(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A workload."""

    always_written: ClassVar[tuple[str, ...]] = ("api_version", "kind", "name")

    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    """Defaults to the namespace of the object."""


class RegistryTarget(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where images are pushed."""

    always_written: ClassVar[tuple[str, ...]] = ("url", "repository")

    url: str = ""
    """Host of the registry."""
    repository: str = ""
    secret_ref: SecretReference | None = None
    """Secret with the keys username and password, or .dockerconfigjson."""


class ContainerImage(Struct, frozen=True, omit_defaults=True):
    """A container and an image."""

    always_written: ClassVar[tuple[str, ...]] = ("name", "image")

    name: str = ""
    image: str = ""


class CheckpointBackupSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which pod is checkpointed when."""

    always_written: ClassVar[tuple[str, ...]] = ("schedule", "pod_ref", "resource_ref")

    schedule: str = ""
    """`immediately`, or a cron schedule of five fields."""
    stop_pod: bool | None = None
    """Delete the pod after the checkpoint. Defaults to false."""
    build_image: bool | None = None
    """Build images of the checkpoint; false: only keep its archives. Defaults to true."""
    pod_ref: PodReference = PodReference()
    resource_ref: ResourceReference = ResourceReference()
    """The workload that owns the pod."""
    registry: RegistryTarget | None = None
    """Where images are pushed. If unset, they are kept on the node."""
    containers: list[ContainerImage] = field(default_factory=list)
    """The images of the containers' checkpoints, without the registry's host. If empty, all containers are
    checkpointed."""


class CheckpointFile(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The archive of a container's checkpoint on the node."""

    always_written: ClassVar[tuple[str, ...]] = ("container_name", "file_path")

    container_name: str = ""
    file_path: str = ""
    storage_path: str = ""
    """Its path in the claim for checkpoints."""
    checkpoint_time: datetime | None = None


class BuiltImage(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The image of a container's checkpoint."""

    always_written: ClassVar[tuple[str, ...]] = ("container_name", "image_name")

    container_name: str = ""
    image_name: str = ""
    """Without the registry's host."""
    build_time: datetime | None = None
    pushed: bool = field(default_factory=lambda: False)


class CompletedCheckpoint(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The images of a checkpoint that was completed before the one that is under way."""

    completion_time: datetime | None = None
    last_checkpoint_time: datetime | None = None
    source_pod_uid: str = field(default="", name="sourcePodUID")
    built_images: list[BuiltImage] = field(default_factory=list)
    digests: dict[str, str] = field(default_factory=dict)


class CheckpointBackupStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the checkpoint."""

    phase: str = ""
    """Empty until an agent has begun; the last phases are Completed, CompletedPodDeleted, CompletedWithError
    and Failed."""
    message: str = ""
    observed_generation: int = 0
    conditions: StatusConditions = field(default_factory=list)
    last_checkpoint_time: datetime | None = None
    checkpoint_files: list[CheckpointFile] = field(default_factory=list)
    built_images: list[BuiltImage] = field(default_factory=list)
    completion_time: datetime | None = None
    node_name: str = ""
    source_pod_uid: str = field(default="", name="sourcePodUID")
    digests: dict[str, str] = field(default_factory=dict)
    """Digests of the images by container."""
    checkpointed_pod_template: dict[str, object] = field(default_factory=dict)
    """Template of the pod that was checkpointed."""
    size: int = 0
    """Bytes of all archives."""
    last_completed: CompletedCheckpoint | None = None
    """The last complete checkpoint, while the next one is made and if that fails."""


class CheckpointBackup(Struct, frozen=True):
    """A checkpoint of the containers of a pod, once or by a schedule."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "CheckpointBackup", "checkpointbackups")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        also_served=(OLD_VERSION,),
        columns=(
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Pod", ".spec.podRef.name"),
            PrinterColumn("Schedule", ".spec.schedule"),
            PrinterColumn("Last", ".status.lastCheckpointTime", "date"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )

    metadata: ObjectMeta
    spec: CheckpointBackupSpec = CheckpointBackupSpec()
    status: CheckpointBackupStatus = CheckpointBackupStatus()

    @property
    def is_template(self) -> bool:
        """Return True if its pod is in another cluster. The copy that Karmada makes there has no owner."""
        return MEMBER_CLUSTER in self.metadata.annotations and self.metadata.controller is not None


class BackupReference(Struct, frozen=True, omit_defaults=True):
    """A CheckpointBackup in the same namespace."""

    always_written: ClassVar[tuple[str, ...]] = ("name",)

    name: str = ""


class CheckpointRestoreSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which checkpoint becomes which pod."""

    always_written: ClassVar[tuple[str, ...]] = ("backup_ref", "pod_name")

    backup_ref: BackupReference = BackupReference()
    pod_name: str = ""
    """Name of the pod that is created."""
    containers: list[ContainerImage] = field(default_factory=list)
    """Images to use instead of those that the backup has built."""


class CheckpointRestoreStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the pod."""

    phase: str = ""
    """Pending, Restoring, Restored or Failed."""
    message: str = ""
    conditions: StatusConditions = field(default_factory=list)
    pod_uid: str = field(default="", name="podUID")
    completion_time: datetime | None = None


class CheckpointRestore(Struct, frozen=True):
    """A pod that is created from a checkpoint."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "CheckpointRestore", "checkpointrestores")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        also_served=(OLD_VERSION,),
        columns=(
            PrinterColumn("Phase", ".status.phase"),
            PrinterColumn("Backup", ".spec.backupRef.name"),
            PrinterColumn("Pod", ".spec.podName"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )

    metadata: ObjectMeta
    spec: CheckpointRestoreSpec = CheckpointRestoreSpec()
    status: CheckpointRestoreStatus = CheckpointRestoreStatus()


class StatefulMigrationSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which workload is checkpointed in which clusters."""

    always_written: ClassVar[tuple[str, ...]] = ("resource_ref", "source_clusters", "registry", "schedule")

    resource_ref: ResourceReference = ResourceReference()
    source_clusters: list[str] = field(default_factory=list)
    """Names of the clusters in which the workload runs."""
    registry: RegistryTarget = RegistryTarget()
    schedule: str = ""
    """`immediately`, or a cron schedule of five fields."""


class StatefulMigrationStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the checkpoints."""

    conditions: StatusConditions = field(default_factory=list)
    backup_count: int = 0
    served_clusters: list[str] = field(default_factory=list)
    """The source clusters for which there are backups: this one, and with Karmada its members."""
    observed_generation: int = 0


class StatefulMigration(Struct, frozen=True):
    """Checkpoints of all pods of a workload, to start it elsewhere."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "StatefulMigration", "statefulmigrations")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        also_served=(OLD_VERSION,),
        columns=(
            PrinterColumn("Kind", ".spec.resourceRef.kind"),
            PrinterColumn("Resource", ".spec.resourceRef.name"),
            PrinterColumn("Schedule", ".spec.schedule"),
            PrinterColumn("Backups", ".status.backupCount", "integer"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
    )

    metadata: ObjectMeta
    spec: StatefulMigrationSpec = StatefulMigrationSpec()
    status: StatefulMigrationStatus = StatefulMigrationStatus()
