"""Tracks the free capacity of the cluster, for gangs that the operator itself holds back until they fit.

This needs a watch of all pods of the cluster, which starts when a job first asks. Pods that a reconcile has
decided to create are reserved until the watch shows them, so that their capacity is not given away twice.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container
from typing import ClassVar

import msgspec
from msgspec import Struct, field

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node
from argosy.kinds.meta import OwnerReference
from argosy.kinds.resource import Resource
from argosy.kinds.resources import Resources, add, parse_resources, subtract
from argosy.workload.capacity import Capacity, FreeNode, PodBatch, PodRequirements, pod_requirements, requests
from argosy.workload.model import Workload
from argosy.workload.quarantine import read_quarantine

MAX_RESERVED_SECONDS = 30.0
"""How long capacity is reserved for pods that do not appear."""


class PodUsageMeta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    owner_references: list[OwnerReference] = field(default_factory=list)


class PodUsage(Struct, gc=False):
    """Any pod of the cluster, as far as it uses capacity."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: PodUsageMeta
    spec: PodRequirements = field(default_factory=PodRequirements)


class _Reservation(Struct):
    until: float
    needs: dict[str, PodRequirements]
    left: Counter[str]
    """How many pods of each role have not appeared yet."""


class CapacityTracker:
    def __init__(self, client: Client, clock: Clock, nodes: Cache[Node]) -> None:
        self._clock = clock
        self._nodes = nodes
        self.pods = Cache(
            client, PodUsage, fields="status.phase!=Succeeded,status.phase!=Failed", name="PlacedPod"
        )
        self.requested = asyncio.Event()
        """Set when a job first asks for a snapshot."""
        self._used: dict[str, Resources] = {}
        self._unplaced: dict[str, PodRequirements] = {}
        self._reservations: dict[str, _Reservation] = {}
        self._listeners: list[Callable[[], None]] = []
        self.pods.subscribe(self._pod_changed)
        nodes.subscribe(self._node_changed)

    def on_freed(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def snapshot(self, uid: str, avoided: Container[str] = ()) -> Capacity | None:
        """Return what is free for the job with this uid on nodes that are not avoided; None while not known.

        What was reserved for the job itself counts as free: it asks again because that plan was not executed.
        """
        self.requested.set()
        if not self.pods.synced:
            return None
        usable = (node for node in self._nodes if _is_ready(node) and node.metadata.name not in avoided)
        nodes = (self._free(node) for node in usable)
        return Capacity(tuple(nodes), tuple(self._pending(uid)))

    def reserve(self, workload: Workload, created: Counter[str]) -> None:
        """Reserve capacity for pods of this job that are being created, by role."""
        needs = {name: pod_requirements(workload.roles[name].template) for name in created}
        self._reservations[workload.uid] = _Reservation(
            self._clock.monotonic() + MAX_RESERVED_SECONDS, needs, created
        )

    def reserved_until(self) -> float | None:
        """Return when the next reservation ends, on the monotonic clock."""
        return min((reservation.until for reservation in self._reservations.values()), default=None)

    def _free(self, node: Node) -> FreeNode:
        free = parse_resources(dict(node.status.allocatable))
        subtract(free, self._used.get(node.metadata.name, {}))
        meta, spec = node.metadata, node.spec
        return FreeNode(meta.name, free, meta.labels, tuple(spec.taints), spec.unschedulable)

    def _pending(self, uid: str) -> list[PodBatch]:
        now = self._clock.monotonic()
        self._reservations = {
            owner: reservation
            for owner, reservation in self._reservations.items()
            if reservation.until > now and +reservation.left
        }
        alike: Counter[bytes] = Counter(msgspec.json.encode(needs) for needs in self._unplaced.values())
        others = [reservation for owner, reservation in self._reservations.items() if owner != uid]
        for reservation in others:
            for role, count in (+reservation.left).items():
                alike[msgspec.json.encode(reservation.needs[role])] += count
        return [
            PodBatch(msgspec.json.decode(needs, type=PodRequirements), count)
            for needs, count in alike.items()
        ]

    def _pod_changed(self, change: Change[PodUsage]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            return
        if old is not None:
            self._remove_usage(old)
        if new is not None:
            self._add_usage(new)
            if old is None:
                self._settle_reservation(new)
        else:
            self._notify()

    def _settle_reservation(self, pod: PodUsage) -> None:
        role = pod.metadata.labels.get(labels.ROLE, "")
        for owner in pod.metadata.owner_references:
            if owner.uid in self._reservations:
                self._reservations[owner.uid].left[role] -= 1

    def _add_usage(self, pod: PodUsage) -> None:
        if pod.spec.node_name:
            add(self._used.setdefault(pod.spec.node_name, {}), requests(pod.spec))
        else:
            self._unplaced[pod.metadata.uid] = pod.spec

    def _remove_usage(self, pod: PodUsage) -> None:
        self._unplaced.pop(pod.metadata.uid, None)
        if pod.spec.node_name:
            subtract(self._used.setdefault(pod.spec.node_name, {}), requests(pod.spec))

    def _node_changed(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None and not any(self._used.get(old.metadata.name, {}).values()):
                self._used.pop(old.metadata.name, None)
        elif old is None or _schedulable_state(old) != _schedulable_state(new):
            self._notify()

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()


def _is_ready(node: Node) -> bool:
    return any(
        condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions
    )


def _schedulable_state(node: Node) -> tuple[object, ...]:
    spec = node.spec
    quarantine = read_quarantine(node)
    return (
        _is_ready(node),
        node.status.allocatable,
        node.metadata.labels,
        spec.taints,
        spec.unschedulable,
        quarantine,
    )
