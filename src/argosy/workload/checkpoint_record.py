"""Defines what a job remembers of its checkpoints: the order in force, the last good one, and recoveries."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct, field

MAX_RECOVERIES = 10

PROCESS = "Process"
"""The level of checkpoints that are images of processes. The program's own checkpoints have none."""


class SaveOrder(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """An order to save a checkpoint, which the pods of the job read from the operator's endpoint."""

    epoch: int
    """Grows with each order of a job."""
    id: str
    """What it is for: `interval`, `deadline`, `suspend/GENERATION`, `resize/GENERATION`, `scale/` with the id
    of a scale operation, or the id of a notice."""
    reason: str
    """Why: a `NoticeCause`, or Interval, DeadlineExceeded, Suspended or Resized."""
    since: datetime
    by: datetime
    """When it must be done; afterwards it is late, and nothing waits for it any more."""
    stop: Mapping[str, str] = field(default_factory=dict)
    """The replicas whose pods end when it is done, by role, as encoded `IndexSet`s. Others may be added, and
    those are left out whose pods were created after it."""
    late: bool = False
    level: str = ""
    """Process: a CheckpointBackup is made of the pod; the program is not asked. Empty: the program saves."""
    pod: str = ""
    """Name and uid of the pod whose processes are saved."""
    pod_uid: str = ""
    slot: int = 0
    """Which of the run's tags the image gets."""


class SavedCheckpoint(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A complete checkpoint in the store, as a pod has acknowledged it."""

    step: int
    digest: str
    at: datetime
    """When it was complete, by the clock of its node; if that is ahead, when it was recorded."""
    size: int = 0
    """Bytes."""
    world: int = 1
    """Number of ranks that have written it."""
    seconds: float = 0.0
    """How long that took."""
    epoch: int = 0
    """The order that it answers; 0: none."""
    level: str = ""
    """Process: an image of the processes, which has no step."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Its images, by container."""


class PlannedScaleIn(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Replicas of running roles that leave them once a checkpoint is saved. They are chosen once."""

    epoch: int
    """The order that saves it."""
    since: datetime
    replicas: Mapping[str, str]
    """By role, as encoded `IndexSet`s."""


class Recovery(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """What a job did about the loss of pods, announced or not. Words are plain strings, so that those of a
    later version are kept."""

    id: str
    """The id of the notice, or what else identifies the loss."""
    cause: str
    source: str
    since: datetime
    action: str
    """What is, or was, done: a `NoticeResponse`, Suspend or Resize. ScaleIn is also that of a new size for
    which replicas leave a role that runs on."""
    deadline: datetime | None = None
    was_saved: bool = False
    """A checkpoint was saved between the notice and the loss."""
    was_signalled: bool = False
    """The programs got SIGTERM and should have saved; whether they did shows in what they leave."""
    replaced_at: datetime | None = None
    """When it was recorded that the pods are replaced; they have not been before."""
    saved_step: int | None = None
    """Step of the last good checkpoint at that time."""
    saved_level: str = ""
    """Process, if that checkpoint is an image of the processes."""
    restored_step: int | None = None
    """Step of the checkpoint that the new pods have started from, as they report it."""
    reached_step: int | None = None
    """The last step that training had reported before the pods were replaced; None: it reported none."""
    steps_lost: int | None = None
    """How many steps were computed again: those after the checkpoint that the new pods have started from."""
    outcome: str = ""
    """One of `RecoveryOutcome`; empty while it is under way."""
    ended_at: datetime | None = None
