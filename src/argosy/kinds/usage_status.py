"""`status.usage`: how the time of a job's replicas was spent, the same in every API that shows it."""

from datetime import datetime

from msgspec import Struct

ACTIVITIES = ("Training", "Lost", "Saving", "Restoring", "Starting", "Waiting")


class UsageStatus(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The time of all replicas in seconds (an hour of four replicas is 14,400), by what they did, up to
    `since`."""

    training: float = 0.0
    lost: float = 0.0
    """Training since the last checkpoint that a restart has undone, as far as checkpoints are known: of a
    TrainingRun with spec.checkpoint, and of a SpotInstanceJob by its images or by what its program
    acknowledges; 0 without them."""
    saving: float = 0.0
    """Between an order to save a checkpoint and its acknowledgement."""
    restoring: float = 0.0
    """Starting pods again, in a run that continues from a checkpoint."""
    starting: float = 0.0
    """Starting pods."""
    waiting: float = 0.0
    """Waiting for capacity, for admission, or for the end of other pods."""
    activity: str = ""
    """What the run does since `since`: Training, Saving, Restoring, Starting or Waiting; empty while it is
    suspended or finished."""
    replicas: int = 0
    """Number of replicas since then."""
    activities: dict[str, int] = {}
    """What the replicas do since then, with the number of each, if they do different things."""
    since: datetime | None = None
    cost: str = ""
    """What the nodes of the run have cost until `since`, as far as their prices are known."""
    lost_cost: str = ""
    """The part of it that was paid for lost training."""
