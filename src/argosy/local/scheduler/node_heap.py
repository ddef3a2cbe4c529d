"""The best node for a pod, quickly.

Within one pass pods are only added, so a node's score for a given shape of pod only falls. That makes a
heap per shape enough: the top entry is taken, looked at again if the node has changed since, and used. A
thousand equal pods cost a thousand heap operations instead of a thousand scans. Taking a gang's placements
back breaks the premise, so it throws the heaps away. Pods bound to others by affinity are placed by a full
scan.
"""

import heapq

from msgspec import Struct

from argosy.kinds.node_matching import untolerated
from argosy.local.scheduler.filters import describe, refusals
from argosy.local.scheduler.interpod_affinity import Surroundings, surroundings
from argosy.local.scheduler.node_affinity import node_preference
from argosy.local.scheduler.scheduler_cache import PodFacts, Room, World

PREFERENCE_WEIGHT = 2
TAINT_WEIGHT = 3


class Refusal(Struct, frozen=True):
    message: str


class Fitting:
    """Places pods into a world, one pass long. Anything not placed through it makes it stale."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._heaps: dict[bytes, list[tuple[float, str, int]]] = {}
        self._refusals: dict[bytes, Refusal] = {}

    def place(self, facts: PodFacts, *, pack: bool = False) -> str | Refusal:
        """Places the pod on its best node and names it, or says why there is none.

        The best is the emptiest; when packing, the fullest that still takes it.
        """
        around = surroundings(facts, self._world)
        if pack or around is not None:
            return self._scan(facts, around, pack)
        if facts.shape in self._refusals:
            return self._refusals[facts.shape]
        heap = self._heaps.get(facts.shape)
        if heap is None:
            heap = self._heaps[facts.shape] = self._ranked(facts)
        rooms = self._world.rooms
        while heap:
            _, name, version = heap[0]
            room = rooms[name]
            if room.version == version:
                self._world.place(facts, name)
                return name
            if refusals(facts, room, None):
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (-score(facts, room), name, room.version))
        refusal = self._refusals[facts.shape] = Refusal(describe(facts, self._world))
        return refusal

    def take_back(self, uids: list[str]) -> None:
        for uid in uids:
            self._world.remove(uid)
        if uids:
            self.start_over()

    def start_over(self) -> None:
        """Forget what was worked out: room has been freed."""
        self._heaps.clear()
        self._refusals.clear()

    def _ranked(self, facts: PodFacts) -> list[tuple[float, str, int]]:
        heap = [
            (-score(facts, room), name, room.version)
            for name, room in self._world.rooms.items()
            if not refusals(facts, room, None)
        ]
        heapq.heapify(heap)
        return heap

    def _scan(self, facts: PodFacts, around: Surroundings | None, pack: bool) -> str | Refusal:
        rooms = [room for room in self._world.rooms.values() if not refusals(facts, room, around)]
        if not rooms:
            return Refusal(describe(facts, self._world))
        more = around.scores(rooms) if around is not None else [0.0] * len(rooms)
        scores = [
            (-score(facts, room, pack=pack) - extra, room.name)
            for room, extra in zip(rooms, more, strict=True)
        ]
        best = min(scores)[1]
        self._world.place(facts, best)
        return best


def score(facts: PodFacts, room: Room, *, pack: bool = False) -> float:
    """How good a node is for the pod: the share it would leave free, and what the pod prefers or avoids.

    Falls with every pod placed, which `Fitting` relies on. When packing, the share counts against the node.
    """
    allocatable, usage = room.allocatable, room.usage
    shares = 0.0
    counted = 0
    for name, asked in facts.usage.items():
        have = allocatable.get(name, 0)
        if have > 0:
            shares += max(0.0, 1.0 - (usage.get(name, 0) + asked) / have)
            counted += 1
    total = 100.0 * shares / counted if counted else 0.0
    pods = allocatable.get("pods", 110)
    total += 1.0 - len(room.pods) / pods if pods > 0 else 0.0
    total = -total if pack else total
    if facts.pod.spec.affinity is not None:
        total += PREFERENCE_WEIGHT * node_preference(facts.pod, room.name, room.labels)
    if untolerated(room.node.spec.taints, facts.pod.spec.tolerations, "PreferNoSchedule"):
        total -= TAINT_WEIGHT * 100.0
    return total
