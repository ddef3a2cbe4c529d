"""The kinds of VMs for SpotInstanceJobs: `SpotInstanceVM` and `InstanceTemplate` describe them, a
`ProvisionedInstance` is one.

Both templates have the same meaning; SpotInstanceVM is the older form. As in `spot`, required fields have
defaults for decoding.
"""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import CrdOptions, PrinterColumn, Rule
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.resource import Resource
from argosy.kinds.spot import GROUP, VERSION, Int32FromOne, Int32FromZero, ObjectName, Strategy
from argosy.kinds.status_condition import AtomicSecretReference, SecretReference, StatusConditions

TEMPLATE_KINDS = ("InstanceTemplate", "SpotInstanceVM")

DEFAULT_DISK_SIZE_GB, DEFAULT_DISK_TYPE = 100, "pd-standard"

RequiredText = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
RequiredName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 63})]
Region = Annotated[str, Meta(extra_json_schema={"maxLength": 63, "pattern": "^[a-z0-9-]*$"})]
TemplateKind = Annotated[str, Meta(extra_json_schema={"enum": list(TEMPLATE_KINDS)})]


class Gpu(Struct, frozen=True):
    """The GPUs of a VM."""

    always_written: ClassVar[tuple[str, ...]] = ("type", "count")

    type: RequiredText = ""
    """Accelerator type of GCE, such as nvidia-tesla-t4."""
    count: Int32FromOne = 0
    """Number of GPUs of each VM."""


class Gcp(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Where and as what VMs are made."""

    always_written: ClassVar[tuple[str, ...]] = ("project", "zone", "machine_type")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.region) || self.region == '' || self.zone.matches('^' + self.region + '-[^-]+$')",
            message="must be the region of the zone",
            field_path=".region",
        ),
    )

    project: RequiredName = ""
    zone: RequiredName = ""
    """The zone of first choice."""
    machine_type: RequiredName = ""
    """Machine type of GCE, such as n1-standard-4."""
    region: Region = ""
    """The region of the zone, and its default."""
    disk_size_gb: Int32FromOne = field(default=DEFAULT_DISK_SIZE_GB, name="diskSizeGB")
    """Size of the boot disk."""
    disk_type: str = DEFAULT_DISK_TYPE
    """Type of the boot disk."""
    network_tags: list[str] = field(default_factory=list)
    service_account: str = ""
    """Email address of the service account of the VMs."""
    fallback_zones: list[str] | None = None
    """Zones besides the first, also of other regions. Defaults to the zones of the region that the catalog
    of prices lists for the machine type and the GPU; an empty list means none."""
    external_ip: bool = field(default=True, name="externalIP")
    """Whether VMs get an address on the internet."""


class KubeadmJoinConfig(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How VMs join the cluster; the Secret's keys take precedence."""

    token_secret_ref: ObjectName | None = None
    """The Secret with the join data; defaults to kubeadm-join-token."""
    ca_cert_hash: str = ""
    """Replaces a missing key ca-cert-hash of that Secret."""
    control_plane_endpoint: str = ""
    """Replaces a missing key control-plane-endpoint of that Secret."""


class SpotInstanceVMSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The VMs that are made from this template."""

    always_written: ClassVar[tuple[str, ...]] = ("vm_image", "gcp")

    vm_image: RequiredText = ""
    """Source image of the boot disk, projects/P/global/images/I. It needs kubeadm and a container runtime."""
    gpu: Gpu | None = None
    """The GPUs of each VM. If unset, it has none."""
    gcp: Gcp = Gcp()
    startup_script: str = ""
    """Script that a VM runs at its start, before it joins the cluster."""
    kubeadm_join_config: KubeadmJoinConfig | None = None


class InstanceTemplateSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The VMs that are made from this template."""

    always_written: ClassVar[tuple[str, ...]] = ("vm_image", "gcp")

    vm_image: RequiredText = ""
    """Source image of the boot disk, projects/P/global/images/I. It needs kubeadm and a container runtime."""
    gpu: Gpu | None = None
    """The GPUs of each VM. If unset, it has none."""
    gcp: Gcp = Gcp()
    startup_script: str = ""
    """Script that a VM runs at its start, before it joins the cluster."""
    preemptible: bool = True
    """Buy spot VMs; false: on-demand VMs."""


class InstanceSummary(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A VM that was made from this template."""

    name: str
    instance_id: str = field(default="", name="instanceID")
    internal_ip: str = field(default="", name="internalIP")
    external_ip: str = field(default="", name="externalIP")
    state: str = ""
    joined_cluster: bool = field(default_factory=lambda: False)
    node_name: str = ""
    creation_time: datetime | None = None


class SpotInstanceVMStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the template."""

    conditions: StatusConditions = field(default_factory=list)
    provisioned_instances: list[InstanceSummary] = field(default_factory=list)
    """The VMs that were made from it and are still there, by name."""


class InstanceTemplateStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the template."""

    conditions: StatusConditions = field(default_factory=list)


_TEMPLATE_COLUMNS = CrdOptions(
    columns=(
        PrinterColumn("Machine", ".spec.gcp.machineType"),
        PrinterColumn("GPU", ".spec.gpu.type"),
        PrinterColumn("Count", ".spec.gpu.count", "integer"),
        PrinterColumn("Zone", ".spec.gcp.zone"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
    )
)


class SpotInstanceVM(Struct, frozen=True):
    """A template of spot VMs."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "SpotInstanceVM", "spotinstancevms")
    crd_options: ClassVar[CrdOptions] = _TEMPLATE_COLUMNS

    metadata: ObjectMeta
    spec: SpotInstanceVMSpec = SpotInstanceVMSpec()
    status: SpotInstanceVMStatus = SpotInstanceVMStatus()


class InstanceTemplate(Struct, frozen=True):
    """A template of VMs."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "InstanceTemplate", "instancetemplates")
    crd_options: ClassVar[CrdOptions] = _TEMPLATE_COLUMNS

    metadata: ObjectMeta
    spec: InstanceTemplateSpec = InstanceTemplateSpec()
    status: InstanceTemplateStatus = InstanceTemplateStatus()


class JobReference(OwnerReference, frozen=True, rename="camel", omit_defaults=True):
    """The SpotInstanceJob for which the VM is bought."""

    always_written: ClassVar[tuple[str, ...]] = ("api_version", "kind", "name", "uid")


class ProvisionedInstanceSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which VM is bought."""

    always_written: ClassVar[tuple[str, ...]] = ("instance_template_name", "gcp_credentials_secret_ref")

    instance_template_name: str = ""
    instance_template_namespace: str = ""
    """Defaults to the namespace of the object."""
    instance_template_kind: TemplateKind = "InstanceTemplate"
    spot_instance_job_ref: JobReference | None = None
    gcp_credentials_secret_ref: AtomicSecretReference = SecretReference()
    """Secret whose key credentials.json is the JSON of a GCP service account."""
    strategy: Strategy = "FAILOVER"
    """Which zones are asked first, if the VM is bought for no job: as `recovery.strategy` of a
    SpotInstanceJob."""
    on_demand_fallback_after: Int32FromZero = 0
    """After so many failed attempts to get a spot VM, an on-demand VM is bought, if it is bought for no job;
    0: never."""


class ProvisionedInstanceStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the VM."""

    instance_id: str = field(default="", name="instanceID")
    instance_name: str = ""
    internal_ip: str = field(default="", name="internalIP")
    external_ip: str = field(default="", name="externalIP")
    creation_time: datetime | None = None
    state: str = ""
    """PENDING until the VM is requested, then its status in GCE; TERMINATED also if it does not exist any
    more."""
    node_name: str = ""
    joined_cluster: bool = field(default_factory=lambda: False)
    preemption_notice: bool = field(default_factory=lambda: False)
    """True from the first announcement of its end on, unless the Node announces it no longer."""
    conditions: StatusConditions = field(default_factory=list)
    project: str = ""
    zone: str = ""
    provisioning_model: str = ""
    """SPOT or STANDARD."""
    price_per_hour: str = ""
    """In the currency of the catalog of prices; empty if it is not known."""
    on_demand_price_per_hour: str = ""
    """What the same VM costs on demand."""
    notice_time: datetime | None = None
    notice_source: str = ""
    deadline: datetime | None = None
    """Until when the VM exists, as announced."""
    cause: str = ""
    """Preempted, Maintenance, UserStopped, HostError, NotFound or Unknown."""
    attempts: int = 0
    """How often a VM was requested."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the VM; other clients should not read it."""


class ProvisionedInstance(Struct, frozen=True):
    """One VM that joins the cluster."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "ProvisionedInstance", "provisionedinstances")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        columns=(
            PrinterColumn("State", ".status.state"),
            PrinterColumn("Node", ".status.nodeName"),
            PrinterColumn("Joined", ".status.joinedCluster", "boolean"),
            PrinterColumn("Zone", ".status.zone"),
            PrinterColumn("Price/h", ".status.pricePerHour"),
            PrinterColumn("Preempted", ".status.preemptionNotice", "boolean"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        )
    )

    metadata: ObjectMeta
    spec: ProvisionedInstanceSpec = ProvisionedInstanceSpec()
    status: Annotated[
        ProvisionedInstanceStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})
    ] = ProvisionedInstanceStatus()
