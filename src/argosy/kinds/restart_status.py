"""One entry of `status.restartHistory`, the same in every API."""

from datetime import datetime

from msgspec import Struct


class RestartStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One restart: which pod failed or was lost, why, and what was restarted."""

    time: datetime
    role: str
    index: int
    """Index of the pod within its role."""
    cause: str
    """NonZeroExit, Signal, OOMKilled, Failed, Completed, Evicted, Preempted, Disrupted, Deleted, NodeLost."""
    scope: str
    """What was restarted: the Container in its pod, the Pod, all pods of its Role, or the whole Job."""
    attempt: int = 0
    """The attempt of the job in which it happened."""
    exit_code: int | None = None
    signal: str = ""
    """The signal that ended the program, such as SIGKILL."""
    node: str = ""
    message: str = ""
    """The same as one sentence."""
