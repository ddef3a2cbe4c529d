"""`MachinePool` (`argosy.dev/v1alpha1`): machines that are kept at a number, for whichever jobs run on them.

The CRD rejects what is wrong. Objects are decoded all the same, so that a pool that was stored by other rules
can still be deleted; `dialects.machines` reports what is wrong with it.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import CrdOptions, PrinterColumn, Scale
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.quantity import DURATION_PATTERN
from argosy.kinds.resource import Resource
from argosy.kinds.spot import Int32FromZero, Strategy
from argosy.kinds.spot_machines import RequiredName, TemplateKind
from argosy.kinds.status_condition import StatusConditions

MAX_REPLICAS = 1000
"""The most machines of one pool."""
FINALIZER = "argosy.dev/machine-pool"

Replicas = Annotated[int, Meta(extra_json_schema={"format": "int32", "minimum": 0, "maximum": MAX_REPLICAS})]
Duration = Annotated[str, Meta(extra_json_schema={"pattern": DURATION_PATTERN, "maxLength": 32})]
OptionalName = Annotated[str, Meta(extra_json_schema={"maxLength": 63})]


class MachineTemplateReference(Struct, frozen=True, omit_defaults=True):
    """The template of the machines, in the namespace of the pool."""

    always_written: ClassVar[tuple[str, ...]] = ("kind", "name")

    kind: TemplateKind = ""
    name: RequiredName = ""


class CredentialsReference(Struct, frozen=True, omit_defaults=True):
    """A Secret."""

    always_written: ClassVar[tuple[str, ...]] = ("name",)

    name: Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 253})] = ""
    namespace: OptionalName = ""
    """Defaults to the namespace of the pool. A Secret of another one must be shared with it."""


class MachinePoolSpec(Struct, frozen=True, rename="camel", omit_defaults=True):
    """How many machines there shall be, and which."""

    always_written: ClassVar[tuple[str, ...]] = ("template", "gcp_credentials_secret_ref")

    template: MachineTemplateReference = MachineTemplateReference()
    """A change of it holds for machines that are requested from then on."""
    gcp_credentials_secret_ref: CredentialsReference = CredentialsReference()
    """Secret whose key credentials.json is the JSON of a GCP service account."""
    replicas: Replicas = 1
    """Number of machines without a notice. One whose end is announced, or that is lost, is replaced at
    once."""
    strategy: Strategy = "FAILOVER"
    """Which zones are asked first. FAILOVER: the zone of the lost machine, then its region.
    EAGER_NEXT_REGION: other regions first. CHEAPEST: by price and by how often machines were preempted there.
    """
    on_demand_fallback_after: Int32FromZero = 0
    """After so many failed attempts to get a spot machine, an on-demand one is bought; 0: never."""
    drain_grace: Duration = "2m"
    """How long the pods on a machine that is not needed any more have to save and to leave it. More than a
    day counts as a day."""


class MachinePoolStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the pool."""

    replicas: int = field(default_factory=lambda: 0)
    """Number of machines that were requested and have no notice."""
    ready: int = field(default_factory=lambda: 0)
    """How many of them are ready nodes."""
    provisioning: int = field(default_factory=lambda: 0)
    """How many of them are not."""
    noticed: int = field(default_factory=lambda: 0)
    """Number of machines, besides these, whose end is announced or that are lost, and that are still
    there."""
    draining: int = field(default_factory=lambda: 0)
    """Number of machines, besides these, that are not needed any more and are still there."""
    cost_per_hour: str = ""
    """Price of all machines that are there, in the currency of the catalog of prices; empty if it is not
    known."""
    selector: str = ""
    """Label selector of the pool's ProvisionedInstances, for autoscalers."""
    conditions: StatusConditions = field(default_factory=list)
    observed_generation: int = 0
    """The generation of the pool that this status describes."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the pool; other clients should not read it."""


class MachinePool(Struct, frozen=True):
    """Machines that join the cluster, kept at a number."""

    resource: ClassVar[Resource] = Resource("argosy.dev", "v1alpha1", "MachinePool", "machinepools")
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        short_names=("mp",),
        columns=(
            PrinterColumn("Desired", ".spec.replicas", "integer"),
            PrinterColumn("Ready", ".status.ready", "integer"),
            PrinterColumn("Provisioning", ".status.provisioning", "integer"),
            PrinterColumn("Noticed", ".status.noticed", "integer"),
            PrinterColumn("Price/h", ".status.costPerHour"),
            PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
        ),
        scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    )

    metadata: ObjectMeta
    spec: MachinePoolSpec = MachinePoolSpec()
    status: Annotated[MachinePoolStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        MachinePoolStatus()
    )
