"""One entry of `status.notices`, the same in every API."""

from datetime import datetime

from msgspec import Struct, field


class NoticeStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """An announced end of a node or a pod, and what the job does about it."""

    since: datetime
    """When the job noticed it."""
    deadline: datetime
    """When the node or pod ends: as announced, otherwise estimated."""
    cause: str
    """OutOfService, Preempted, Shutdown, Evicted, Maintenance, Drained, or Candidate for a hint."""
    response: str
    """SaveAndMove: a checkpoint is saved, and then its pods are replaced elsewhere. SignalAndMove: its pods
    get SIGTERM, to save, and are replaced elsewhere. ScaleIn: its pods are moved before the deadline.
    Restart: they are replaced when they are lost. None: nothing is done."""
    node: str = ""
    pod: str = ""
    """Name of the pod, if only that pod ends."""
    source: str = ""
    """Who announced it."""
    replicas: list[str] = field(default_factory=list)
    """The replicas whose pods were there, such as worker-3; at most eight."""
    message: str = ""
    """The same as one sentence."""
