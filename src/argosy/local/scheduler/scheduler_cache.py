"""What is where: every node with what its pods take, kept up to date one change at a time.

A pod counts from the moment it is decided where it goes, not from when the API server confirms it, so that
two decisions never spend the same room. Placing is idempotent by uid: the confirmation of a placement
changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from argosy.kinds.resources import Resources, add, parse_resources, pod_requests, pod_usage, subtract
from argosy.local.controllers.informers import group_of
from argosy.local.controllers.kinds import Node, Pod
from argosy.local.scheduler.affinity_terms import Term, Wishes, wishes
from argosy.local.scheduler.node_affinity import HostPort, host_ports
from argosy.local.scheduler.topology_counts import Census, Counted, Holder

VOLCANO_TASK_ANNOTATION = "volcano.sh/task-spec"


class PodFacts(Struct, frozen=True):
    """What the scheduler knows of a pod, worked out once per pod."""

    pod: Pod
    priority: int
    requests: Resources
    usage: Resources
    ports: tuple[HostPort, ...]
    wishes: Wishes
    shape: bytes
    """Pods of one shape fit the same nodes equally well, as long as nothing is said about other pods."""

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
        requests = pod_requests(pod.spec)
        ports = tuple(host_ports(pod))
        nodes = spec.affinity.node_affinity if spec.affinity else None
        shape = msgspec.json.encode(
            (sorted(requests.items()), spec.node_selector, nodes, spec.tolerations, ports)
        )
        return cls(pod, priority, requests, pod_usage(pod.spec), ports, wishes(pod), shape)


class Room(Struct):
    """One node and what is taken of it."""

    node: Node
    allocatable: Resources
    used: Resources = field(default_factory=dict)
    usage: Resources = field(default_factory=dict)
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

    def give_back(self, uid: str) -> PodFacts:
        facts = self.pods.pop(uid)
        subtract(self.used, facts.requests)
        subtract(self.usage, facts.usage)
        self.version += 1
        return facts


class World:
    """All nodes, and all pods that have one."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.rooms: dict[str, Room] = {}
        self.census = Census()
        self.priorities: Counter[int] = Counter()
        """How many placed pods have which priority."""
        self.leaving: set[str] = set()
        """Placed pods that are being deleted: their room is taken still, and will be free."""
        self._where: dict[str, str] = {}
        self._groups: dict[tuple[str, str], set[str]] = {}
        self._homeless: dict[str, dict[str, PodFacts]] = {}
        for node in nodes:
            self.set_node(node)

    def set_node(self, node: Node) -> None:
        name = node.metadata.name
        allocatable = parse_resources(node.status.allocatable or node.status.capacity)
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
        self.priorities[facts.priority] += 1
        if facts.group:
            self._groups.setdefault((facts.namespace, facts.group), set()).add(facts.uid)
        self.census.add(self._counted(facts), facts.wishes, node)
        if node in self.rooms:
            self.rooms[node].take(facts)
        else:
            self._homeless.setdefault(node, {})[facts.uid] = facts

    def remove(self, uid: str) -> None:
        node = self._where.pop(uid, None)
        if node is None:
            return
        if node in self.rooms:
            facts = self.rooms[node].give_back(uid)
        else:
            facts = self._homeless[node].pop(uid)
            if not self._homeless[node]:
                del self._homeless[node]
        if facts.group:
            self._leave_group((facts.namespace, facts.group), uid)
        self.priorities[facts.priority] -= 1
        if not self.priorities[facts.priority]:
            del self.priorities[facts.priority]
        self.census.subtract(self._counted(facts), facts.wishes, node)

    def selected(self, term: Term) -> Counter[str]:
        """How many placed pods that the term selects are on which node."""
        return self.census.selected(term, ((self._counted(facts), node) for facts, node in self.placed()))

    def holders(self, facts: PodFacts) -> list[Holder]:
        """What placed pods say about a pod like this."""
        return self.census.holders(facts.namespace, facts.pod.metadata.labels)

    def placed(self) -> Iterator[tuple[PodFacts, str]]:
        """All pods that have a node, and its name."""
        for name, room in self.rooms.items():
            for facts in room.pods.values():
                yield facts, name
        for name, pods in self._homeless.items():
            for facts in pods.values():
                yield facts, name

    def group(self, namespace: str, name: str) -> list[tuple[PodFacts, str]]:
        """The pods of a group that have a node, and its name."""
        uids = sorted(self._groups.get((namespace, name), ()))
        return [(self._pods_on(node)[uid], node) for uid in uids if (node := self._where[uid])]

    def _pods_on(self, node: str) -> dict[str, PodFacts]:
        return self.rooms[node].pods if node in self.rooms else self._homeless[node]

    def _leave_group(self, key: tuple[str, str], uid: str) -> None:
        self._groups[key].discard(uid)
        if not self._groups[key]:
            del self._groups[key]

    def _counted(self, facts: PodFacts) -> Counted:
        return Counted(facts.namespace, facts.pod.metadata.labels, facts.uid not in self.leaving)

    def where(self, uid: str) -> str | None:
        return self._where.get(uid)

    def __len__(self) -> int:
        return len(self.rooms)
