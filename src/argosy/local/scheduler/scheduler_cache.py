"""Caches every node with the requests of its pods, updated one change at a time.

A pod counts from the moment it is placed, not from when the API server confirms it, so that two decisions
never use the same resources. Placing is idempotent by uid: the confirmation of a placement changes nothing.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct, field

from argosy.kinds.resources import Resources, add, parse_resources, pod_requests, pod_usage, subtract
from argosy.local.controllers.api_types import Node, Pod
from argosy.local.controllers.informers import pod_group_name
from argosy.local.scheduler.affinity_terms import PodTerms, Term, pod_terms
from argosy.local.scheduler.node_affinity import HostPort, host_ports
from argosy.local.scheduler.topology_counts import CountedPod, ExistingTerm, TopologyCounts

VOLCANO_TASK_ANNOTATION = "volcano.sh/task-spec"


class PodInfo(Struct, frozen=True):
    """A pod with what the scheduler derives from it once."""

    pod: Pod
    priority: int
    requests: Resources
    nonzero_requests: Resources
    ports: tuple[HostPort, ...]
    terms: PodTerms
    shape: bytes
    """Pods of one shape fit the same nodes equally well, unless they have terms about other pods."""

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def group(self) -> str:
        return pod_group_name(self.pod)

    @property
    def task(self) -> str:
        return self.pod.metadata.annotations.get(VOLCANO_TASK_ANNOTATION, "")

    @classmethod
    def of(cls, pod: Pod, priority: int = 0) -> "PodInfo":
        spec = pod.spec
        requests = pod_requests(pod.spec)
        ports = tuple(host_ports(pod))
        nodes = spec.affinity.node_affinity if spec.affinity else None
        shape = msgspec.json.encode(
            (sorted(requests.items()), spec.node_selector, nodes, spec.tolerations, ports)
        )
        return cls(pod, priority, requests, pod_usage(pod.spec), ports, pod_terms(pod), shape)


class NodeInfo(Struct):
    """A node and the requests of its pods."""

    node: Node
    allocatable: Resources
    requested: Resources = field(default_factory=dict)
    nonzero_requested: Resources = field(default_factory=dict)
    pods: dict[str, PodInfo] = field(default_factory=dict)
    version: int = 0
    """Increased with every change: results computed for an older version are stale."""

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> dict[str, str]:
        return self.node.metadata.labels

    @property
    def ports(self) -> Iterator[HostPort]:
        return (port for info in self.pods.values() for port in info.ports)

    def add_pod(self, info: PodInfo) -> None:
        self.pods[info.uid] = info
        add(self.requested, info.requests)
        add(self.nonzero_requested, info.nonzero_requests)
        self.version += 1

    def remove_pod(self, uid: str) -> PodInfo:
        info = self.pods.pop(uid)
        subtract(self.requested, info.requests)
        subtract(self.nonzero_requested, info.nonzero_requests)
        self.version += 1
        return info


class SchedulerCache:
    """All nodes, and all pods that are placed on one."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        self.nodes: dict[str, NodeInfo] = {}
        self.topology = TopologyCounts()
        self.priorities: Counter[int] = Counter()
        """How many placed pods have which priority."""
        self.terminating: set[str] = set()
        """Uids of placed pods that are being deleted: they still use resources, which will be released."""
        self._node_of: dict[str, str] = {}
        self._groups: dict[tuple[str, str], set[str]] = {}
        self._pods_without_node: dict[str, dict[str, PodInfo]] = {}
        for node in nodes:
            self.set_node(node)

    def set_node(self, node: Node) -> None:
        name = node.metadata.name
        allocatable = parse_resources(node.status.allocatable or node.status.capacity)
        info = self.nodes.get(name)
        if info is not None:
            info.node, info.allocatable, info.version = node, allocatable, info.version + 1
            return
        self.nodes[name] = info = NodeInfo(node, allocatable)
        for pod in self._pods_without_node.pop(name, {}).values():
            info.add_pod(pod)

    def remove_node(self, name: str) -> None:
        info = self.nodes.pop(name, None)
        if info is not None and info.pods:
            self._pods_without_node[name] = info.pods

    def place(self, info: PodInfo, node: str) -> None:
        if self._node_of.get(info.uid) == node:
            return
        self.remove(info.uid)
        self._node_of[info.uid] = node
        self.priorities[info.priority] += 1
        if info.group:
            self._groups.setdefault((info.namespace, info.group), set()).add(info.uid)
        self.topology.add(self._counted_pod(info), info.terms, node)
        if node in self.nodes:
            self.nodes[node].add_pod(info)
        else:
            self._pods_without_node.setdefault(node, {})[info.uid] = info

    def remove(self, uid: str) -> None:
        node = self._node_of.pop(uid, None)
        if node is None:
            return
        if node in self.nodes:
            info = self.nodes[node].remove_pod(uid)
        else:
            info = self._pods_without_node[node].pop(uid)
            if not self._pods_without_node[node]:
                del self._pods_without_node[node]
        if info.group:
            self._leave_group((info.namespace, info.group), uid)
        self.priorities[info.priority] -= 1
        if not self.priorities[info.priority]:
            del self.priorities[info.priority]
        self.topology.subtract(self._counted_pod(info), info.terms, node)

    def count_selected(self, term: Term) -> Counter[str]:
        """Count by node the placed pods that the term selects."""
        return self.topology.count_selected(
            term, ((self._counted_pod(info), node) for info, node in self.placed_pods())
        )

    def matching_terms(self, info: PodInfo) -> list[ExistingTerm]:
        """Return the terms of placed pods that select this pod."""
        return self.topology.matching_terms(info.namespace, info.pod.metadata.labels)

    def placed_pods(self) -> Iterator[tuple[PodInfo, str]]:
        """Return all placed pods with the names of their nodes."""
        for name, node in self.nodes.items():
            for info in node.pods.values():
                yield info, name
        for name, pods in self._pods_without_node.items():
            for info in pods.values():
                yield info, name

    def group_pods(self, namespace: str, name: str) -> list[tuple[PodInfo, str]]:
        """Return the placed pods of a group with the names of their nodes."""
        uids = sorted(self._groups.get((namespace, name), ()))
        return [(self._pods_on(node)[uid], node) for uid in uids if (node := self._node_of[uid])]

    def _pods_on(self, node: str) -> dict[str, PodInfo]:
        return self.nodes[node].pods if node in self.nodes else self._pods_without_node[node]

    def _leave_group(self, key: tuple[str, str], uid: str) -> None:
        self._groups[key].discard(uid)
        if not self._groups[key]:
            del self._groups[key]

    def _counted_pod(self, info: PodInfo) -> CountedPod:
        return CountedPod(info.namespace, info.pod.metadata.labels, info.uid not in self.terminating)

    def node_of(self, uid: str) -> str | None:
        return self._node_of.get(uid)

    def __len__(self) -> int:
        return len(self.nodes)
