"""Defines requests to scale a role, as a job's reconcile sees the objects that ask for it, and which
replicas are added or removed if a request does not name them."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct, field

from argosy.workload.index_set import EMPTY, IndexSet, next_indexes
from argosy.workload.operation import Operation


class ScaleState(Struct, frozen=True):
    """What the replicas of an operation are chosen from."""

    members: IndexSet
    live: IndexSet
    """Members whose pods are Pending or Running and are not being deleted."""
    unavailable: IndexSet = EMPTY
    """Indexes that must not be added: a pod or a Service of that name exists, or the index was retired."""
    deletion_costs: Mapping[int, int] = field(default_factory=dict)
    """The annotation `controller.kubernetes.io/pod-deletion-cost` of live members, where it is not 0."""


def next_to_add(state: ScaleState, count: int) -> IndexSet:
    """Return `count` new indexes after the highest member, without those that are not available."""
    return next_indexes(state.members, state.unavailable, count)


def last_to_go(state: ScaleState, count: int) -> IndexSet:
    """Return the `count` members to remove: those that are not live, then the cheapest, then the highest."""
    by_cost = sorted(
        state.members,
        key=lambda index: (index in state.live, state.deletion_costs.get(index, 0), -index),
    )
    return IndexSet.of(by_cost[:count])


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
    deadline: datetime | None = None
    """When replicas are deleted, drained or not; used instead of `timeout`."""
    min_hosts_until: datetime | None = None
    """Until when it is waited for others to be listed, so that the minimum of hosts is kept."""
    script: Script | None = None

    @property
    def order(self) -> tuple[bool, datetime, bool, str]:
        """Sort key: urgent requests first, then the oldest; of equally old ones those that add."""
        return not self.urgent, self.created, self.kind == "In", self.name


def hidden_indexes(operation: Operation | None, requests: Iterable[ScaleRequest]) -> IndexSet:
    """Return the replicas that an operation adds, as long as the object which asks for them shows others.

    They get no pods: everybody can see which replicas are added before anything happens.
    """
    if operation is None or operation.kind != "Out":
        return EMPTY
    request = next((item for item in requests if item.id == operation.id), None)
    chosen = operation.index_set
    return chosen if request is not None and request.shown != chosen else EMPTY
