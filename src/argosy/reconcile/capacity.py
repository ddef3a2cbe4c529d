"""What is free in the cluster, for gangs that the operator itself holds back until they fit.

All pods of the cluster are watched for this, and only from when a job first asks. Pods that a pass has
decided to make count before they can be seen, so that the next pass does not give their room away again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
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
from argosy.workload.capacity import Alike, FreeNode, Needs, Room, needs_of, requests
from argosy.workload.model import Workload

EXPECTED = 30.0
"""Seconds after which pods that were to be made, and are not seen, are not expected any more."""


class PlacedMeta(Struct, rename="camel", gc=False):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    owner_references: list[OwnerReference] = field(default_factory=list)


class PodUsage(Struct, gc=False):
    """Anybody's pod, as far as it takes room."""

    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: PlacedMeta
    spec: Needs = field(default_factory=Needs)


class _Expected(Struct):
    until: float
    needs: dict[str, Needs]
    left: Counter[str]
    """How many pods of each role have not been seen yet."""


class CapacityTracker:
    def __init__(self, client: Client, clock: Clock, nodes: Cache[Node]) -> None:
        self._clock = clock
        self._nodes = nodes
        self.pods = Cache(
            client, PodUsage, fields="status.phase!=Succeeded,status.phase!=Failed", name="PlacedPod"
        )
        self.requested = asyncio.Event()
        """Set when a job first asks."""
        self._used: dict[str, Resources] = {}
        self._unplaced: dict[str, Needs] = {}
        self._expected: dict[str, _Expected] = {}
        self._listeners: list[Callable[[], None]] = []
        self.pods.subscribe(self._pod)
        nodes.subscribe(self._node)

    def when_freed(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def snapshot(self) -> Room | None:
        """None while it is not known."""
        self.requested.set()
        if not self.pods.synced:
            return None
        nodes = (self._free(node) for node in self._nodes if _ready(node))
        return Room(tuple(nodes), tuple(self._ahead()))

    def reserve(self, workload: Workload, made: Counter[str]) -> None:
        """So many pods of each role of this job are being made."""
        needs = {name: needs_of(workload.roles[name].template) for name in made}
        self._expected[workload.uid] = _Expected(self._clock.monotonic() + EXPECTED, needs, made)

    def expected_until(self) -> float | None:
        """When the next pods are not expected any more, on the monotonic clock."""
        return min((one.until for one in self._expected.values()), default=None)

    def _free(self, node: Node) -> FreeNode:
        free = parse_resources(dict(node.status.allocatable))
        subtract(free, self._used.get(node.metadata.name, {}))
        meta, spec = node.metadata, node.spec
        return FreeNode(meta.name, free, meta.labels, tuple(spec.taints), spec.unschedulable)

    def _ahead(self) -> list[Alike]:
        now = self._clock.monotonic()
        self._expected = {uid: one for uid, one in self._expected.items() if one.until > now and +one.left}
        alike: Counter[bytes] = Counter(msgspec.json.encode(needs) for needs in self._unplaced.values())
        for one in self._expected.values():
            for role, count in (+one.left).items():
                alike[msgspec.json.encode(one.needs[role])] += count
        return [Alike(msgspec.json.decode(needs, type=Needs), count) for needs, count in alike.items()]

    def _pod(self, change: Change[PodUsage]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec:
            return
        if old is not None:
            self._take_off(old)
        if new is not None:
            self._put_on(new)
            if old is None:
                self._arrived(new)
        else:
            self._tell()

    def _arrived(self, pod: PodUsage) -> None:
        role = pod.metadata.labels.get(labels.ROLE, "")
        for owner in pod.metadata.owner_references:
            if owner.uid in self._expected:
                self._expected[owner.uid].left[role] -= 1

    def _put_on(self, pod: PodUsage) -> None:
        if pod.spec.node_name:
            add(self._used.setdefault(pod.spec.node_name, {}), requests(pod.spec))
        else:
            self._unplaced[pod.metadata.uid] = pod.spec

    def _take_off(self, pod: PodUsage) -> None:
        self._unplaced.pop(pod.metadata.uid, None)
        if pod.spec.node_name:
            subtract(self._used.setdefault(pod.spec.node_name, {}), requests(pod.spec))

    def _node(self, change: Change[Node]) -> None:
        old, new = change.old, change.new
        if new is None:
            if old is not None and not any(self._used.get(old.metadata.name, {}).values()):
                self._used.pop(old.metadata.name, None)
        elif old is None or _offers(old) != _offers(new):
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


def _ready(node: Node) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def _offers(node: Node) -> tuple[object, ...]:
    spec = node.spec
    return (_ready(node), node.status.allocatable, node.metadata.labels, spec.taints, spec.unschedulable)
