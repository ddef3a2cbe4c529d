"""`status.checkpoint` and entries of `status.recoveries`, the same in every API."""

from datetime import datetime

from msgspec import Struct


class CheckpointStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The last good checkpoint."""

    last_step: int | None = None
    """The step of training that it was saved at; unset if there is no checkpoint yet."""
    last_time: datetime | None = None
    """When it was complete."""
    digest: str = ""
    """Identifies its content."""
    uri: str = ""
    """The folder of the run's checkpoints in the store."""
    level: str = ""
    """Process, if it is an image with the run's processes, which has no step; empty: saved by the program."""
    images: dict[str, str] = {}
    """The images of such a checkpoint, by container."""
    size: int = 0
    """Bytes."""
    steps_lost: int | None = None
    """Steps of training that losses of pods have undone so far; unset if training reports no steps."""
    message: str = ""
    """Whether one is being saved now, and why."""


class RecoveryStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A loss of pods, announced or not, and what became of it."""

    cause: str
    """Why pods were lost: the cause of a notice or of a restart."""
    action: str
    """SaveAndMove, SignalAndMove, ScaleIn or Restart, as in notices; Suspend; for a new size Resize if it
    restarted all pods, or ScaleIn if some have left."""
    time: datetime
    """When it was noticed."""
    source: str = ""
    """Who announced it."""
    deadline: datetime | None = None
    """When the pods are lost, if that was announced."""
    saved_step: int | None = None
    """Step of the last good checkpoint when the pods were replaced."""
    restored_from: int | None = None
    """Step of the checkpoint that their replacements have started from."""
    reached_step: int | None = None
    """The last step that training had reported before the loss."""
    steps_lost: int | None = None
    """Steps that were undone: from that of the checkpoint to the last one reported. Unset if not known."""
    outcome: str = ""
    """Recovered: from a checkpoint that was saved after the notice. ProgressLost: from an older one, or from
    the beginning. Signalled: the program got SIGTERM, and nothing shows whether it has saved. Superseded:
    pods were replaced for another reason. Failed: the run has failed. Empty: under way."""
    message: str = ""
    """The same as one sentence."""
