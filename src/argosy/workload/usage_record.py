"""Defines what a job remembers of the time that its replicas have spent, by activity."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field


class Activity(StrEnum):
    """What all replicas of a job do together."""

    WAITING = "Waiting"
    """For capacity, admission, or the end of other pods."""
    STARTING = "Starting"
    """Pods are created, scheduled and started."""
    RESTORING = "Restoring"
    """The same, in a job that continues from a checkpoint."""
    TRAINING = "Training"
    SAVING = "Saving"
    """The job was ordered to save a checkpoint, and has not acknowledged it yet."""
    LOST = "Lost"
    """Training since the last checkpoint that a restart has undone. No interval is in this activity: the
    time was counted as training before."""


class PricedNode(Struct, frozen=True):
    """A node with pods of a job."""

    hourly_price: float
    since: datetime | None = None
    """When the first of these pods was scheduled; None if that is not known."""


class Usage(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The replica-seconds of a job, up to the interval that has not ended yet."""

    activity: str = ""
    """What the job does now, one of `Activity`; empty while it has no pods and wants none."""
    replicas: int = 0
    hourly_price: float = 0.0
    """Sum of the known prices of the nodes that the job's pods are on."""
    since: datetime | None = None
    """Start of the interval that has not ended."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Replica-seconds by activity, of all intervals that have ended."""
    at_risk: float = 0.0
    """Replica-seconds of training since the last checkpoint, of a job with a checkpoint policy."""
    in_doubt: float = 0.0
    """Replica-seconds of training that a restart has undone unless the program saved when it got SIGTERM,
    which is not known yet."""
    cost: float = 0.0
    """What the intervals that have ended have cost, as far as prices are known."""
    lost_cost: float = 0.0
    """The part of it that was paid for lost training."""
