"""`ScaleIn` and `ScaleOut` (`kai.alibabacloud.com/v1alpha1`): changes of the workers of a TrainingJob.

Both are called scalers. A scaler is executed once and is then kept as a record. The CRDs check little,
because et-operator stores an invalid scaler and reports ScaleFailed in its status, for which its users wait.
"""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct, field

from argosy.kinds.crd_options import CrdOptions, PrinterColumn
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.trainingjob import (
    ALWAYS_WRITTEN,
    GROUP,
    VERSION,
    Int32,
    Int32FromOne,
    Int32FromZero,
    JobCondition,
    ReplicaStatus,
    no_conditions,
    no_replica_statuses,
    no_restarts,
)

DEFAULT_TIMEOUT_SECONDS = 60
"""For the pods of a ScaleOut to run, and for one run of a script."""
DEFAULT_DRAIN_TIMEOUT_SECONDS = 600
"""For the training processes in the workers of a ScaleIn to end, if its timeout is not set."""


class ScalerSelector(Struct, frozen=True):
    """The TrainingJob to scale."""

    name: str = ""
    """Name of a TrainingJob in the same namespace."""


class EnvVar(Struct, frozen=True):
    """An environment variable of the script."""

    name: str = ""
    value: str = ""


class ToDelete(Struct, frozen=True, rename="camel"):
    """The workers to remove: a number of them, or their names."""

    count: int = 0
    """Number of workers to remove, those with the highest indexes first."""
    pod_names: list[str] = field(default_factory=list)
    """Names of the workers to remove."""


class ToAdd(Struct, frozen=True):
    """The workers to add."""

    count: Int32 | None = None
    """Number of workers to add."""


class ScaleInSpec(Struct, frozen=True, rename="camel"):
    """Which workers of which job are removed, and how."""

    selector: ScalerSelector = ScalerSelector()
    to_delete: ToDelete | None = None
    script: str = ""
    """Path of a shell script in the launcher container that is run instead of changing the host list."""
    env: list[EnvVar] = field(default_factory=list)
    """Environment of the script."""
    timeout: Int32FromOne | None = None
    """Seconds until workers are removed although training processes still run in them, 600 if unset; and
    until a run of the script is ended, 60 if unset."""
    backoff_limit: Int32FromZero = 0
    """How often a failed script, or a failed change of the host list, is tried again."""


class ScaleOutSpec(Struct, frozen=True, rename="camel"):
    """How many workers are added to which job, and how."""

    selector: ScalerSelector = ScalerSelector()
    to_add: ToAdd | None = None
    script: str = ""
    """Path of a shell script in the launcher container that is run instead of changing the host list."""
    env: list[EnvVar] = field(default_factory=list)
    """Environment of the script."""
    timeout: Int32FromOne | None = None
    """Seconds until the new workers must run, and until a run of the script is ended; 60 if unset."""
    backoff_limit: Int32FromZero = 0
    """How often a failed script, or a failed change of the host list, is tried again."""


class ScaleInStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the ScaleIn."""

    always_written: ClassVar[tuple[str, ...]] = ALWAYS_WRITTEN

    phase: str = ""
    """Empty before the ScaleIn is executed; then Scaling, ScaleSucceeded or ScaleFailed."""
    conditions: list[JobCondition] = field(default_factory=no_conditions)
    """A condition that becomes True moves to the end of the list."""
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=no_replica_statuses)
    """Number of the selected pods by phase, as Worker."""
    restart_count: Int32 = field(default_factory=no_restarts)
    """Always 0."""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    """When the status was last written."""
    observed_generation: int = 0
    """The generation of the ScaleIn that this status describes."""
    to_delete_pods: list[str] = field(default_factory=list)
    """Names of the workers that are removed; written before anything is done."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the ScaleIn; other clients should not read it."""


class ScaleOutStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The observed state of the ScaleOut."""

    always_written: ClassVar[tuple[str, ...]] = ALWAYS_WRITTEN

    phase: str = ""
    """Empty before the ScaleOut is executed; then Scaling, ScaleSucceeded or ScaleFailed."""
    conditions: list[JobCondition] = field(default_factory=no_conditions)
    """A condition that becomes True moves to the end of the list."""
    replica_statuses: dict[str, ReplicaStatus] = field(default_factory=no_replica_statuses)
    """Number of the added pods by phase, as Worker."""
    restart_count: Int32 = field(default_factory=no_restarts)
    """Always 0."""
    start_time: datetime | None = None
    completion_time: datetime | None = None
    last_reconcile_time: datetime | None = None
    """When the status was last written."""
    observed_generation: int = 0
    """The generation of the ScaleOut that this status describes."""
    add_pods: list[str] = field(default_factory=list)
    """Names of the workers that are added; written before anything is done."""
    argosy: dict[str, object] = field(default_factory=dict)
    """The operator's internal record of the ScaleOut; other clients should not read it."""


class ScaleIn(Struct, frozen=True):
    """A ScaleIn as the operator decodes it, with its spec as plain JSON."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "ScaleIn", "scaleins")

    metadata: ObjectMeta
    spec: dict[str, object] = field(default_factory=dict)
    status: ScaleInStatus = ScaleInStatus()


class ScaleOut(Struct, frozen=True):
    """A ScaleOut as the operator decodes it, with its spec as plain JSON."""

    resource: ClassVar[Resource] = Resource(GROUP, VERSION, "ScaleOut", "scaleouts")

    metadata: ObjectMeta
    spec: dict[str, object] = field(default_factory=dict)
    status: ScaleOutStatus = ScaleOutStatus()


_CRD_OPTIONS = CrdOptions(
    columns=(
        # The type of the last condition, as in et-operator: it shows more steps than the phase.
        PrinterColumn("Phase", ".status.conditions[-1:].type"),
        PrinterColumn("Age", ".metadata.creationTimestamp", "date"),
    )
)


class ScaleInCrd(Struct, frozen=True):
    """Removes workers from a TrainingJob while it runs."""

    resource: ClassVar[Resource] = ScaleIn.resource
    crd_options: ClassVar[CrdOptions] = _CRD_OPTIONS

    metadata: ObjectMeta
    spec: ScaleInSpec
    status: Annotated[ScaleInStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        ScaleInStatus()
    )


class ScaleOutCrd(Struct, frozen=True):
    """Adds workers to a TrainingJob while it runs."""

    resource: ClassVar[Resource] = ScaleOut.resource
    crd_options: ClassVar[CrdOptions] = _CRD_OPTIONS

    metadata: ObjectMeta
    spec: ScaleOutSpec
    status: Annotated[ScaleOutStatus, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})] = (
        ScaleOutStatus()
    )
