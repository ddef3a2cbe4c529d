"""Pods that have gone, as they were last seen: who took them, and from where, cannot be asked any more.

Kept until another pod has the place, for a minute at most: a replica that only stands by never has a use for
it. What is lost with a restart of the operator is a line for people, and nothing else.
"""

from collections import deque

from msgspec.structs import replace

from argosy.engine.clock import Clock
from argosy.workload.observed import ObservedPod

KEEP_SECONDS = 60.0
"""Seconds that a pod is remembered whose place stays empty."""

Place = tuple[str, int]


class RecentlyDeleted:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, dict[Place, ObservedPod]] = {}
        """By the owner key of the job, then by place."""
        self._order: deque[tuple[float, str, ObservedPod]] = deque()

    def add(self, job: str, pod: ObservedPod) -> None:
        now = self._clock.monotonic()
        while self._order and self._order[0][0] < now - KEEP_SECONDS:
            _, owner, old = self._order.popleft()
            if self._pods.get(owner, {}).get((old.role, old.index)) is old:
                self._drop(owner, old)
        kept = replace(pod, terminating=True)
        self._pods.setdefault(job, {})[pod.role, pod.index] = kept
        self._order.append((now, job, kept))

    def discard(self, job: str, pod: ObservedPod) -> None:
        if job in self._pods:
            self._drop(job, pod)

    def for_job(self, job: str) -> tuple[ObservedPod, ...]:
        return tuple(self._pods[job].values()) if job in self._pods else ()

    def _drop(self, job: str, pod: ObservedPod) -> None:
        places = self._pods[job]
        places.pop((pod.role, pod.index), None)
        if not places:
            del self._pods[job]
