"""Counts the pods that each replica of a job lost in a row, for whatever cause.

Replacements back off by these counts (`workload.pods`), so that a cause which keeps deleting pods does not
lead to an endless number of pods. Kept in memory only: a new leader has seen the same losses in its own
caches, and an operator that restarts replaces a pod once more without delay.
"""

from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from argosy.engine.clock import Clock
from argosy.workload.observed import ObservedPod, RecentLoss

IN_A_ROW_SECONDS = 300.0
"""Losses of a replica further apart than this are not in a row."""

ReplicaKey = tuple[str, int]


class _Entry(Struct, frozen=True):
    count: int
    at: float


class RecentLosses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, dict[ReplicaKey, _Entry]] = {}
        self._order: deque[tuple[str, ReplicaKey, _Entry]] = deque()

    def pod_changed(self, job: str, before: ObservedPod | None, after: ObservedPod | None) -> None:
        """Count the pod once, when it first fails, terminates or is gone."""
        if before is None or _is_lost(before) or not _is_lost(after):
            return
        self._forget_old()
        replica, now = (before.role, before.index), self._clock.monotonic()
        entries = self._jobs.setdefault(job, {})
        last = entries.get(replica)
        entry = entries[replica] = _Entry(last.count + 1 if last else 1, now)
        self._order.append((job, replica, entry))

    def for_job(self, job: str) -> Mapping[ReplicaKey, RecentLoss]:
        """Return the replicas that lost more than one pod in a row."""
        if job not in self._jobs:
            return {}
        self._forget_old()
        now = self._clock.monotonic()
        return {
            replica: RecentLoss(entry.count, now - entry.at)
            for replica, entry in self._jobs.get(job, {}).items()
            if entry.count > 1
        }

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - IN_A_ROW_SECONDS
        while self._order and self._order[0][2].at < oldest:
            job, replica, entry = self._order.popleft()
            entries = self._jobs.get(job, {})
            if entries.get(replica) is entry:
                del entries[replica]
                if not entries:
                    del self._jobs[job]


def _is_lost(pod: ObservedPod | None) -> bool:
    return pod is None or pod.terminating or pod.phase == "Failed"
