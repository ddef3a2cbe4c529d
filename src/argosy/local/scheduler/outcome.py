"""The result of a scheduling pass: placements, unschedulable pods with reasons, and preemption victims."""

from msgspec import Struct, field

from argosy.local.scheduler.scheduler_cache import PodInfo

GroupKey = tuple[str, str]
"""Namespace and name of a PodGroup."""
Placement = tuple[PodInfo, str]
"""A pod and the node that it has, or is to have."""


class GangOutcome(Struct, frozen=True):
    placed: bool
    message: str = ""


class Victim(Struct, frozen=True):
    """A pod that is preempted by one of higher priority."""

    victim: PodInfo
    preemptor: PodInfo
    node: str
    """The node that the preemptor is to have."""


class Decision(Struct):
    bind: list[Placement] = field(default_factory=list)
    unschedulable: list[tuple[PodInfo, str]] = field(default_factory=list)
    """With the message that says why."""
    gangs: dict[GroupKey, GangOutcome] = field(default_factory=dict)
    victims: list[Victim] = field(default_factory=list)
    nominated: dict[str, str] = field(default_factory=dict)
    """The node for which an unschedulable pod waits, by uid of the pod: victims still run there."""
