"""Defines notices: announced ends of nodes and pods, as they are observed and as a job has answered them.

Everything that announces a loss becomes a `Notice`, whoever announces it. A job answers each notice once: the
answer and the change that follows from it are one change of the Record, so that an operator that is killed or
loses its Lease at any point continues with the same answer.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from argosy.workload.announcements import NoticeCause
from argosy.workload.index_set import IndexSet

MAX_NOTICES = 32
"""Notices in a Record. While there are so many, others are not answered; their pods are replaced when they
are lost."""


class NoticeResponse(StrEnum):
    """What a job does about a notice."""

    SCALE_IN = "ScaleIn"
    """The replicas leave their roles now, and others are created in their place."""
    SAVE_AND_MOVE = "SaveAndMove"
    """A checkpoint is ordered; once it is saved the pods are replaced elsewhere, by the restart policy."""
    SIGNAL_AND_MOVE = "SignalAndMove"
    """The pods are deleted, so that their programs get SIGTERM and save, and are replaced elsewhere."""
    RESTART = "Restart"
    """Nothing before the pods are lost; then they are replaced by the restart policy."""
    NONE = "None"
    """Nothing: the notice is a hint."""


class SaveStep(StrEnum):
    """How far the checkpoint is that is saved before pods are lost."""

    SAVING = "Saving"
    """It is ordered; nothing else is done until it is saved or too late."""
    RELEASED = "Released"
    """It is saved, and evictions are allowed; the pods are replaced when they are evicted."""
    SAVED = "Saved"
    """It is saved, and the pods have been replaced."""
    STAYED = "Stayed"
    """The end did not come in time, or was withdrawn: pods that were asked to stop are replaced."""
    MISSED = "Missed"
    """It was not saved in time."""
    SIGNALLED = "Signalled"
    """The pods were deleted; their programs save it when they get SIGTERM, if they can."""


class Notice(Struct, frozen=True):
    """An announced end of a node or a pod."""

    id: str
    """What ends: `node/UID` or `pod/UID`."""
    cause: NoticeCause
    source: str
    """Who announced it."""
    node: str
    pod: str = ""
    """Name of the pod; empty if the whole node ends."""
    deadline: datetime | None = None
    """None: not announced."""
    replicas: Mapping[str, IndexSet] = field(default_factory=dict)
    """Replicas by role whose pods will be lost."""


class OpenNotice(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """A notice that a job has answered. Cause and response are plain strings, so that those of a later
    version are kept."""

    id: str
    cause: str
    """One of `NoticeCause`."""
    source: str
    node: str
    since: datetime
    deadline: datetime
    response: str
    """One of `NoticeResponse`."""
    pod: str = ""
    replicas: Mapping[str, str] = field(default_factory=dict)
    """The replicas whose pods were there, by role, as encoded `IndexSet`s."""
    epoch: int = 0
    """The order to save a checkpoint that it waits for; 0: none."""
    step: str = ""
    """One of `SaveStep`; empty if no checkpoint was ordered."""
    released_at: datetime | None = None
    """Since when evictions are allowed."""
    certain_since: datetime | None = None
    """When a hint has become certain; None if it was none."""
    observed: bool = True
    """False once the notice is gone: withdrawn, or the node or pod has ended. It is then kept until its
    deadline, so that an outdated cache does not lead to a second answer."""
