"""Finds the best node for a pod with one heap per pod shape.

Within a pass pods are only added, so a node's score for a given shape only falls. A heap per shape is
therefore enough: the top entry is scored again if the node has changed, and used. A thousand equal pods cost
a thousand heap operations instead of a thousand scans. Undoing a gang's placements invalidates the heaps, so
they are discarded. Pods with affinity to other pods are placed by a full scan.
"""

import heapq

from msgspec import Struct

from argosy.kinds.node_matching import untolerated
from argosy.local.scheduler.filters import unfit_reasons, unschedulable_message
from argosy.local.scheduler.interpod_affinity import TopologyConstraints, topology_constraints
from argosy.local.scheduler.node_affinity import node_affinity_score
from argosy.local.scheduler.scheduler_cache import NodeInfo, PodInfo, SchedulerCache

PREFERENCE_WEIGHT = 2
TAINT_WEIGHT = 3


class Unschedulable(Struct, frozen=True):
    message: str


class PodPlacer:
    """Places pods in the cache during one pass. Pods placed in any other way invalidate it."""

    def __init__(self, cache: SchedulerCache) -> None:
        self._world = cache
        self._heaps: dict[bytes, list[tuple[float, str, int]]] = {}
        self._unschedulable: dict[bytes, Unschedulable] = {}

    def place(self, info: PodInfo, *, pack: bool = False) -> str | Unschedulable:
        """Place the pod on the best node and return its name, or why no node fits.

        The best node is the emptiest; when packing, the fullest that still fits.
        """
        constraints = topology_constraints(info, self._world)
        if pack or constraints is not None:
            return self._scan(info, constraints, pack)
        if info.shape in self._unschedulable:
            return self._unschedulable[info.shape]
        heap = self._heaps.get(info.shape)
        if heap is None:
            heap = self._heaps[info.shape] = self._ranked_nodes(info)
        nodes = self._world.nodes
        while heap:
            _, name, version = heap[0]
            node = nodes[name]
            if node.version == version:
                self._world.place(info, name)
                return name
            if unfit_reasons(info, node, None):
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (-score(info, node), name, node.version))
        unschedulable = Unschedulable(unschedulable_message(info, self._world))
        self._unschedulable[info.shape] = unschedulable
        return unschedulable

    def undo(self, uids: list[str]) -> None:
        for uid in uids:
            self._world.remove(uid)
        if uids:
            self.reset()

    def reset(self) -> None:
        """Discard heaps and failures: resources have been released."""
        self._heaps.clear()
        self._unschedulable.clear()

    def _ranked_nodes(self, info: PodInfo) -> list[tuple[float, str, int]]:
        heap = [
            (-score(info, node), name, node.version)
            for name, node in self._world.nodes.items()
            if not unfit_reasons(info, node, None)
        ]
        heapq.heapify(heap)
        return heap

    def _scan(
        self, info: PodInfo, constraints: TopologyConstraints | None, pack: bool
    ) -> str | Unschedulable:
        nodes = [node for node in self._world.nodes.values() if not unfit_reasons(info, node, constraints)]
        if not nodes:
            return Unschedulable(unschedulable_message(info, self._world))
        more = constraints.scores(nodes) if constraints is not None else [0.0] * len(nodes)
        scores = [
            (-score(info, node, pack=pack) - extra, node.name)
            for node, extra in zip(nodes, more, strict=True)
        ]
        best = min(scores)[1]
        self._world.place(info, best)
        return best


def score(info: PodInfo, node: NodeInfo, *, pack: bool = False) -> float:
    """Score a node for a pod by the share it would leave free and by the pod's preferences.

    Falls with every pod placed, which `PodPlacer` relies on. When packing, the share counts against the node.
    """
    allocatable, usage = node.allocatable, node.nonzero_requested
    shares = 0.0
    counted = 0
    for name, request in info.nonzero_requests.items():
        have = allocatable.get(name, 0)
        if have > 0:
            shares += max(0.0, 1.0 - (usage.get(name, 0) + request) / have)
            counted += 1
    total = 100.0 * shares / counted if counted else 0.0
    pods = allocatable.get("pods", 110)
    total += 1.0 - len(node.pods) / pods if pods > 0 else 0.0
    total = -total if pack else total
    if info.pod.spec.affinity is not None:
        total += PREFERENCE_WEIGHT * node_affinity_score(info.pod, node.name, node.labels)
    if untolerated(node.node.spec.taints, info.pod.spec.tolerations, "PreferNoSchedule"):
        total -= TAINT_WEIGHT * 100.0
    return total
