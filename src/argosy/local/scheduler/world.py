"""What is where: every node with what its pods take, kept up to date one change at a time.

A pod counts from the moment it is decided where it goes, not from when the API server confirms it, so that
two decisions never spend the same room. Placing is idempotent by uid: the confirmation of a placement
changes nothing.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from argosy.local.controllers.kinds import Node, Pod, PodAffinityTerm, SpreadConstraint
from argosy.local.controllers.shared import group_of
from argosy.local.scheduler.matching import HostPort, host_ports
from argosy.local.scheduler.resources import Amounts, add, amounts, pod_requests, pod_usage, subtract

VOLCANO_TASK_ANNOTATION = "volcano.sh/task-spec"


class PodFacts(Struct, frozen=True):
    """What the scheduler knows of a pod, worked out once per pod."""

    pod: Pod
    priority: int
    requests: Amounts
    usage: Amounts
    ports: tuple[HostPort, ...]
    affinity: tuple[PodAffinityTerm, ...]
    anti_affinity: tuple[PodAffinityTerm, ...]
    spread: tuple[SpreadConstraint, ...]
    shape: bytes
    """Pods of one shape fit the same nodes equally well, as long as no affinity between pods is involved."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def group(self) -> str:
        return group_of(self.pod)

    @property
    def task(self) -> str:
        return self.pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")

    @classmethod
    def of(cls, pod: Pod, priority: int = 0) -> "PodFacts":
        spec = pod.spec
        requests = pod_requests(pod)
        ports = tuple(host_ports(pod))
        affinity = spec.affinity
        pods = affinity.pod_affinity.required if affinity and affinity.pod_affinity else []
        anti = affinity.pod_anti_affinity.required if affinity and affinity.pod_anti_affinity else []
        nodes = affinity.node_affinity if affinity else None
        shape = msgspec.json.encode(
            (sorted(requests.items()), spec.node_selector, nodes, spec.tolerations, ports)
        )
        spread = tuple(
            each for each in spec.topology_spread_constraints if each.when_unsatisfiable == "DoNotSchedule"
        )
        return cls(pod, priority, requests, pod_usage(pod), ports, tuple(pods), tuple(anti), spread, shape)


class Room(Struct):
    """One node and what is taken of it."""

    node: Node
    allocatable: Amounts
    used: Amounts = field(default_factory=dict)
    usage: Amounts = field(default_factory=dict)
    pods: dict[str, PodFacts] = field(default_factory=dict)
    version: int = 0
    """Grows with every placement: what was worked out about an older version is stale."""

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.node.metadata.labels

    @property
    def ports(self) -> Iterator[HostPort]:
        return (port for facts in self.pods.values() for port in facts.ports)

    def take(self, facts: PodFacts) -> None:
        self.pods[facts.uid] = facts
        add(self.used, facts.requests)
        add(self.usage, facts.usage)
        self.version += 1

    def give_back(self, uid: str) -> None:
        facts = self.pods.pop(uid)
        subtract(self.used, facts.requests)
        subtract(self.usage, facts.usage)
        self.version += 1


class World:
    """All nodes, and all pods that have one."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.rooms: dict[str, Room] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        """Labels of the namespaces, for affinity terms that select them."""
        self.repelling = 0
        """How many placed pods have required anti-affinity: while any has, every placement can close other
        nodes.
        """
        self._where: dict[str, str] = {}
        self._homeless: dict[str, dict[str, PodFacts]] = {}
        for node in nodes:
            self.set_node(node)

    def set_node(self, node: Node) -> None:
        name = node.metadata.name
        allocatable = amounts(node.status.allocatable or node.status.capacity)
        room = self.rooms.get(name)
        if room is not None:
            room.node, room.allocatable, room.version = node, allocatable, room.version + 1
            return
        self.rooms[name] = room = Room(node, allocatable)
        for facts in self._homeless.pop(name, {}).values():
            room.take(facts)

    def remove_node(self, name: str) -> None:
        room = self.rooms.pop(name, None)
        if room is not None and room.pods:
            self._homeless[name] = room.pods

    def place(self, facts: PodFacts, node: str) -> None:
        if self._where.get(facts.uid) == node:
            return
        self.remove(facts.uid)
        self._where[facts.uid] = node
        self.repelling += bool(facts.anti_affinity)
        if node in self.rooms:
            self.rooms[node].take(facts)
        else:
            self._homeless.setdefault(node, {})[facts.uid] = facts

    def remove(self, uid: str) -> None:
        node = self._where.pop(uid, None)
        if node is None:
            return
        if node in self.rooms:
            self.repelling -= bool(self.rooms[node].pods[uid].anti_affinity)
            self.rooms[node].give_back(uid)
            return
        self.repelling -= bool(self._homeless[node].pop(uid).anti_affinity)
        if not self._homeless[node]:
            del self._homeless[node]

    def where(self, uid: str) -> str | None:
        return self._where.get(uid)

    def __len__(self) -> int:
        return len(self.rooms)
