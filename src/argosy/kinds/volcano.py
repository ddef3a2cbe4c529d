"""A CRD for Volcano's PodGroup, for clusters without Volcano, such as the local control plane.

Where Volcano is installed, its own, larger CRD exists and this one is not applied.
"""

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import CrdOptions, PrinterColumn
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.pod_groups import VolcanoPodGroup
from argosy.kinds.resource import Resource


class PodGroupCondition(Struct, frozen=True, rename="camel"):
    """A condition of the group."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    transition_id: str = field(default="", name="transitionID")
    last_transition_time: datetime | None = None


class VolcanoPodGroupSpec(Struct, frozen=True, rename="camel"):
    """What the group needs to be scheduled."""

    min_member: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """Number of pods that must be scheduled together."""
    min_resources: dict[str, int | str] = field(default_factory=dict)
    """Resources that must be free before the group is admitted."""
    min_task_member: dict[str, int] = field(default_factory=dict)
    """Number of pods that must be scheduled together, by task."""
    priority_class_name: str = ""
    """Priority class of the group."""
    queue: str = "default"
    """Queue in which the group waits."""


class VolcanoPodGroupStatus(Struct, frozen=True, rename="camel"):
    """The observed state of the group."""

    phase: Literal["", "Pending", "Inqueue", "Running", "Unknown", "Completed"] = ""
    """Pending: not admitted yet. Inqueue: admitted. Running: scheduled. Unknown: some pods were lost."""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: Annotated[list[PodGroupCondition], Meta(max_length=64)] = field(default_factory=list)


class VolcanoPodGroupCrd(Struct, frozen=True):
    """A group of pods that are scheduled all together or not at all."""

    resource: ClassVar[Resource] = VolcanoPodGroup.resource
    crd_options: ClassVar[CrdOptions] = CrdOptions(
        short_names=("pg", "podgroup-v1beta1"),
        columns=(
            PrinterColumn("STATUS", ".status.phase"),
            PrinterColumn("minMember", ".spec.minMember", "integer"),
            PrinterColumn("RUNNINGS", ".status.running", "integer"),
            PrinterColumn("AGE", ".metadata.creationTimestamp", "date"),
            PrinterColumn("QUEUE", ".spec.queue", priority=1),
        ),
    )

    metadata: ObjectMeta
    spec: VolcanoPodGroupSpec
    status: VolcanoPodGroupStatus = VolcanoPodGroupStatus()
