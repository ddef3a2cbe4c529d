"""Defines what is remembered of a SpotInstanceJob between reconciles, stored as `status.argosy`.

A replica is replaced by its next incarnation. Everything that is created for an incarnation is named here
before it is created, so that nothing is created twice, even if the operator is killed in between.
"""

from datetime import datetime
from typing import Literal

import msgspec
from msgspec import Struct, field

from argosy.capacity.zone_rates import ZoneRate
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.usage_record import Usage

StartMode = Literal["Fresh", "CheckpointImage", "AppResume"]
SourceStep = Literal["Rescue", "Backups", "Registry", "Found"]

FRESH: StartMode = "Fresh"
CHECKPOINT_IMAGE: StartMode = "CheckpointImage"
APP_RESUME: StartMode = "AppResume"


class Incarnation(Struct, frozen=True, omit_defaults=True):
    """One run of a replica: a Job, and the node that it is bound to."""

    number: int
    stamp: int = 0
    """Unix time in seconds that makes the names of its Job and its VM unique in the job."""
    node: str = ""
    """Empty until there is a place."""
    instance: str = ""
    """The ProvisionedInstance; empty on a node of the cluster."""
    instance_uid: str = ""
    """uid of the ProvisionedInstance, once it was observed."""
    job: str = ""
    """Name of the Job; empty until it may be created."""
    uid: str = ""
    """uid of the Job, once it was observed."""
    mode: StartMode = FRESH
    images: dict[str, str] = field(default_factory=dict)
    """Images of a checkpoint, by container."""
    source: str = ""
    """The CheckpointBackup, or the tags, that the images come from."""
    resumed_step: int | None = None
    """The step from which its pod has started, as that reports it at level App."""


class Source(Struct, frozen=True, omit_defaults=True):
    """The state of the search for a checkpoint to restart from."""

    step: SourceStep = "Backups"
    rescue: str = ""
    """Name of the CheckpointBackup of a surviving replica."""
    rescue_by: datetime | None = None
    rejected: tuple[str, ...] = ()
    """Backups whose images the registry does not have as they were recorded."""
    found: str = ""
    """The checkpoint: name of a backup, or the stamp of its tags; empty if there is none."""
    images: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    loss_reason: str = ""
    """Reason of the condition ProgressLost, if there is no checkpoint."""
    message: str = ""


class Recovery(Struct, frozen=True, omit_defaults=True):
    """The replacement of a lost or failed incarnation."""

    id: str
    cause: str
    sources: tuple[str, ...]
    notice_time: datetime
    deadline: datetime | None = None
    source: Source = Source()
    failure: bool = False
    """The replica failed by an error of its own."""
    not_before: datetime | None = None
    action: str = ""
    last_save: str = ""
    """Name of the CheckpointBackup of the dying pod, or number of the order that it was given."""
    save_by: datetime | None = None
    """When a pod that was given an order gets SIGTERM, if it has not answered."""


class Replica(Struct, frozen=True, omit_defaults=True):
    """The memory of one replica."""

    index: int
    current: Incarnation
    old: tuple[Incarnation, ...] = ()
    """Lost incarnations of which something is left: a Job, pods, or a VM."""
    recovery: Recovery | None = None
    restarts: int = 0
    preemptions: int = 0
    quick_exits: tuple[str, ...] = ()
    """Pods of restored containers that ended within seconds."""
    app_only: bool = False
    """Its node cannot restore images."""
    failure_message: str = ""
    """Why the replica is not restarted any more; empty if it may be."""
    silent_since: datetime | None = None
    interval_pod_uid: str = ""
    """uid of the pod whose checkpoint intervals are counted."""
    intervals_passed: int = 0
    """Number of checkpoint intervals of that pod that have passed."""
    last_interval_at: datetime | None = None
    """When the last of them was noticed, and a checkpoint was ordered."""
    image: str = ""
    """Image of its newest checkpoint: that of the first container."""
    answered_epoch: int = 0
    """Number of the last order to save that one of its pods has answered."""
    saved: SavedCheckpoint | None = None
    """The last checkpoint of its own that one of its pods has acknowledged."""
    usage: Usage = Usage()
    """What its time was spent on."""
    saved_seconds: float = 0.0
    """Seconds of training that checkpoints have."""
    trained_until: datetime | None = None
    """When its last interval of training ended."""


class Backup(Struct, frozen=True, omit_defaults=True):
    """A CheckpointBackup that was ordered and whose result is not recorded yet."""

    name: str
    index: int
    pod: str
    pod_uid: str
    job: str
    stamp: int
    created: datetime
    rescue: bool = False
    finished: datetime | None = None
    """When it was observed to be complete; from then on its images are verified."""
    problem: str = ""
    """Why the registry did not answer when it was last asked for them."""


class Checkpoint(Struct, frozen=True, omit_defaults=True):
    """The newest verified checkpoint."""

    backup: str
    index: int
    time: datetime
    image: str
    digest: str = ""
    seconds: float = 0.0


class SpotJobRecord(Struct, frozen=True, omit_defaults=True):
    """The memory of one SpotInstanceJob."""

    version: int = 1
    replicas: tuple[Replica, ...] = ()
    backups: tuple[Backup, ...] = ()
    last_stamp: int = 0
    checked: str = ""
    """Hash of the Job template that the API server has accepted."""
    check_problem: str = ""
    started: datetime | None = None
    """When the job was first accepted."""
    checkpoint: Checkpoint | None = None
    checkpoint_problem: tuple[str, str] | None = None
    """Reason and message of the newest checkpoint, if it failed."""
    progress_lost: tuple[str, str] | None = None
    """Reason and message, from a restart without a checkpoint until the next one is completed."""
    template_hash: str = ""
    """Hash of the templates from which the newest incarnations were made."""
    gpus: int = 0
    """GPUs of the node of each replica."""
    ended: Literal["", "Succeeded", "Failed"] = ""
    ended_at: datetime | None = None
    winner: int | None = None
    primary: int | None = None
    """The replica that may act outside of the cluster."""
    removed_preemptions: int = 0
    """Preemptions of replicas that a scale-down has removed."""
    removed_usage: Usage = Usage()
    """What the time of those replicas was spent on."""
    order: SaveOrder | None = None
    """The order to save in force, at level App."""
    ordered_at: datetime | None = None
    """When the last order was made."""
    last_epoch: int = 0
    """Number of the last order."""
    hints: tuple[str, ...] = ()
    """Nodes that may be lost and whose replica was checkpointed for that."""
    zone_rates: tuple[ZoneRate, ...] = ()
    """Where its VMs were preempted, for the choice of the next zone."""

    @property
    def saved(self) -> SavedCheckpoint | None:
        """The acknowledged checkpoint of the training's own with the most steps, of any replica."""
        saved = [replica.saved for replica in self.replicas if replica.saved is not None]
        return max(saved, key=lambda checkpoint: checkpoint.step, default=None)

    @property
    def has_saved(self) -> bool:
        """Whether any replica, also one that was removed, has ever acknowledged such a checkpoint."""
        return self.saved is not None or (self.checkpoint is not None and not self.checkpoint.backup)


def encode(record: SpotJobRecord) -> dict[str, object]:
    """Return the record as plain JSON values."""
    return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, object])
