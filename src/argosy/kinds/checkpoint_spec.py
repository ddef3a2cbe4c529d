"""`checkpoint` of a job's spec, the same in every API: where checkpoints go, and when they are ordered."""

from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from argosy.kinds.crd_options import Duration, Rule

_REPOSITORY = r"[a-zA-Z0-9][-a-zA-Z0-9.]*(:[0-9]{1,5})?(/[a-z0-9][-a-z0-9._]*)+"
_CLAIM, _BUCKET = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", r"[a-zA-Z0-9][-a-zA-Z0-9._]*"
STORE_PATTERN = rf"^(pvc://{_CLAIM}(/.*)?|file:///.+|(s3|gs|az)://{_BUCKET}(/.*)?|oci://{_REPOSITORY}/?)$"
REPOSITORY_PATTERN = rf"^{_REPOSITORY}$"
SECRET_PATTERN = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"  # noqa: S105 - of a name


STORE_OF_REGROUPING_ROLES = (
    "must be pvc:// or file:// with elastic workers of pytorch and bagua: they restart in their pods, which"
    " would not see in an object store or a registry what other pods have saved"
)


def regrouping_store_rule(framework: str, roles: str) -> Rule:
    """Return the rule about the store of elastic workers that restart in their pods, by the names of two
    fields. Objects with a status are exempt: one that was stored before the rule could not be changed. A role
    may be null."""
    checkpoint, worker = "self.spec.checkpoint", f"self.spec.{roles}['worker']"
    return Rule(
        rule=f"has(self.status) || !has({checkpoint}) || !has({checkpoint}.store)"
        f" || {checkpoint}.store.matches('^(pvc|file)://')"
        f" || !has(self.spec.{framework}) || !(self.spec.{framework} in ['pytorch', 'bagua'])"
        f" || !has(self.spec.{roles}) || !('worker' in self.spec.{roles})"
        f" || dyn({worker}) == null || !has({worker}.elastic)",
        message=STORE_OF_REGROUPING_ROLES,
        field_path=".spec.checkpoint.store",
    )


class IntervalMode(StrEnum):
    FIXED = "Fixed"
    ADAPTIVE = "Adaptive"


class CheckpointLevel(StrEnum):
    APP = "App"
    PROCESS = "Process"
    AUTO = "auto"


class DrainPolicy(StrEnum):
    SAVE = "Save"
    IGNORE = "Ignore"


class ProgramSignal(StrEnum):
    """Signals by which programs are asked to save. There is one: any other may reach a process that does not
    handle it, which it ends without a checkpoint."""

    SIGTERM = "SIGTERM"


class CheckpointImages(Struct, frozen=True, rename="camel"):
    """Where images with checkpoints of processes are pushed."""

    repository: Annotated[str, Meta(pattern=REPOSITORY_PATTERN, min_length=3, max_length=255)]
    """Registry and repository, such as registry.example.com/team/train. Tags are named after the run."""
    secret: Annotated[str, Meta(pattern=SECRET_PATTERN, max_length=253)] = ""
    """Secret of the run's namespace, of type kubernetes.io/dockerconfigjson, with the login of the registry.
    The node agent pushes with it, and the pods pull with it."""


class CheckpointSpec(Struct, frozen=True, rename="camel"):
    """Where the program keeps checkpoints, and when the operator orders it to save one."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            rule="!has(self.mode) || self.mode != 'Adaptive' || has(self.interval)",
            message="Adaptive requires interval: the longest time between two checkpoints",
            field_path=".mode",
        ),
        Rule(
            rule="!has(self.credentials) || size(self.credentials) == 0 || !has(self.store)"
            " || !self.store.matches('^(pvc|file)://')",
            message="not supported with a store of pvc:// or file://, which needs none",
            field_path=".credentials",
        ),
        Rule(
            rule="!has(self.store) || !self.store.matches('(^|/)[.][.](/|$)')",
            message="must not contain '..'",
            field_path=".store",
        ),
        Rule(
            rule="has(self.store) || (has(self.level) && self.level == 'Process')",
            message="required with the levels App and auto: where the program keeps its checkpoints",
            field_path=".store",
        ),
        Rule(
            rule="!has(self.store) || !has(self.level) || self.level != 'Process'",
            message="not supported with the level Process, whose checkpoints are images",
            field_path=".store",
        ),
        Rule(
            rule="has(self.images) == (has(self.level) && self.level != 'App')",
            message="required with the levels Process and auto, and not supported with App",
            field_path=".images",
        ),
        Rule(
            rule="!has(self.signal) || !has(self.level) || self.level == 'App'",
            message="not supported with the levels Process and auto, with which the node agent saves",
            field_path=".signal",
        ),
        Rule(
            rule="!has(self.signal) || !has(self.interval)",
            message="not supported with signal, after which the pod ends; the program can save at an interval"
            " of its own",
            field_path=".interval",
        ),
        Rule(
            rule="!has(self.signal) || !has(self.onDrain) || self.onDrain != 'Save'",
            message="not supported with signal: an eviction sends SIGTERM itself",
            field_path=".onDrain",
        ),
    )

    store: Annotated[str, Meta(pattern=STORE_PATTERN, min_length=1, max_length=512)] | None = None
    """Where checkpoints are kept: pvc://CLAIM/PATH, file:///PATH (a folder that all nodes have in common),
    s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or oci://REGISTRY/REPOSITORY. Each run has a
    folder of its own there, NAMESPACE/NAME-UID; in a registry, a repository."""
    credentials: Annotated[str, Meta(pattern=SECRET_PATTERN, max_length=253)] = ""
    """Secret of the run's namespace whose keys are the variables of the store's provider, such as
    AWS_ACCESS_KEY_ID; for a registry one of type kubernetes.io/dockerconfigjson, or with username and
    password. Only the operator's containers of the pods mount it."""
    interval: Duration | None = None
    """A checkpoint is ordered when the last one is this old. If unset, only before announced losses."""
    mode: IntervalMode = IntervalMode.FIXED
    """Fixed: the interval as it is. Adaptive: a shorter one, by the time that a checkpoint takes and by how
    often pods are lost."""
    level: CheckpointLevel = CheckpointLevel.APP
    """App: the program saves its own state. Process: the node agent writes the processes of the run's only
    pod to an image, from which its replacement is restored; the program need not know of it. auto: App once
    the program has acknowledged a checkpoint; before that Process, if the pod's node and another one can."""
    images: CheckpointImages | None = None
    """Where images are pushed, with the levels Process and auto."""
    keep_last: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Number of checkpoints to keep. Of images, the tags of older ones are used again."""
    suspend_grace: Duration = "2m"
    """How long a run that is suspended may take to save a checkpoint before its pods are deleted. The same
    holds for a new size that restarts the run or removes running pods."""
    signal: ProgramSignal | None = None
    """SIGTERM: the program knows nothing of orders, and saves when its pod ends. Before an announced loss its
    pods are deleted at once, with their grace period or the shorter time that is left, and are replaced
    elsewhere; a suspension does not wait for a checkpoint. If unset, the program is ordered to save."""
    on_drain: DrainPolicy = DrainPolicy.IGNORE
    """Save: evictions of the run's pods are held back until a checkpoint is saved, for at most ten minutes,
    and a cordoned node counts as one that is drained. Ignore: pods may be evicted at any time."""
