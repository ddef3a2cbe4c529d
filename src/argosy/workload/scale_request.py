"""Defines requests to scale a role, as a job's reconcile sees the objects that ask for it."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct, field

from argosy.workload.index_set import EMPTY, IndexSet


class ScaleState(Struct, frozen=True):
    """What the replicas of an operation are chosen from."""

    members: IndexSet
    live: IndexSet
    """Members whose pods are Pending or Running and are not being deleted."""
    unavailable: IndexSet = EMPTY
    """Indexes that must not be added: a pod or a Service of that name exists, or the index was retired."""
    deletion_costs: Mapping[int, int] = field(default_factory=dict)
    """The annotation `controller.kubernetes.io/pod-deletion-cost` of live members, where it is not 0."""


class Script(Struct, frozen=True):
    """A script in the launcher that is run instead of a change of the host list."""

    path: str
    env: tuple[tuple[str, str], ...] = ()
    timeout: float = 60.0
    retries: int = 0


class ScaleRequest(Struct, frozen=True):
    """One object that asks for replicas to be added or removed."""

    id: str
    """The uid of the object."""
    kind: Literal["Out", "In"]
    name: str
    created: datetime
    select: Callable[[ScaleState], IndexSet | str]
    """Returns the indexes to add or to remove, or why that is not possible."""
    role: str = "worker"
    urgent: bool = False
    """Goes ahead of requests that are not urgent."""
    shown: IndexSet = EMPTY
    """The chosen indexes that the status of the object shows."""
    timeout: float | None = None
    """Seconds until new pods must run, or until replicas must be drained."""
    script: Script | None = None

    @property
    def order(self) -> tuple[bool, datetime, bool, str]:
        """Sort key: urgent requests first, then the oldest; of equally old ones those that add."""
        return not self.urgent, self.created, self.kind == "In", self.name
