"""How a restart is told in the status of a job, the same in every API."""

from datetime import datetime

from msgspec import Struct


class RestartStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One restart: what was lost, to which cause, and what was started anew for it."""

    time: datetime
    role: str
    index: int
    """Of the pod within its role."""
    cause: str
    """Exit, Signal, OutOfMemory, Failed, Completed, Evicted, Preempted, Disrupted, Deleted or NodeDown."""
    rung: str
    """What was started anew: the Container in its place, the Pod, all of its Role or the whole Job."""
    attempt: int = 0
    """The attempt of the job in which it happened."""
    exit_code: int | None = None
    signal: str = ""
    """The signal that ended the program, such as SIGKILL."""
    node: str = ""
    message: str = ""
    """The same in a sentence."""
