"""Keeps pods that were deleted as they were last observed, to report why they were lost.

A pod is kept until the replica has another one, and for a minute at most. A restart of the operator loses
them: then the restart history lacks an entry, and nothing else changes.
"""

from collections import deque

from msgspec.structs import replace

from argosy.engine.clock import Clock
from argosy.workload.observed import ObservedPod

KEEP_SECONDS = 60.0
"""How long a deleted pod is kept if it is not replaced."""

ReplicaKey = tuple[str, int]


class RecentlyDeleted:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pods: dict[str, dict[ReplicaKey, ObservedPod]] = {}
        """By the owner key of the job, then by replica."""
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
        pods = self._pods[job]
        pods.pop((pod.role, pod.index), None)
        if not pods:
            del self._pods[job]
