"""Counts the pods that each place of a job lost in a row, whatever took them.

A policy delays replacements by these counts (`pods.missing`), so that a cause which keeps taking pods away is
not answered with pods without end. Kept in memory only: a new leader has seen the same losses in its own
caches, and an operator that restarts replaces a pod once more without delay.
"""

from collections import deque
from collections.abc import Mapping

from msgspec import Struct

from argosy.engine.clock import Clock
from argosy.workload.observed import ObservedPod, RecentLoss

IN_A_ROW_SECONDS = 300.0
"""Losses of a place further apart than this are not in a row."""

Place = tuple[str, int]


class _Entry(Struct, frozen=True):
    count: int
    at: float


class RecentLosses:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._jobs: dict[str, dict[Place, _Entry]] = {}
        self._order: deque[tuple[str, Place, _Entry]] = deque()

    def pod_changed(self, job: str, before: ObservedPod | None, after: ObservedPod | None) -> None:
        """Count the pod once, when it is first seen to fail, to terminate or to be gone."""
        if before is None or _is_lost(before) or not _is_lost(after):
            return
        self._forget_old()
        place, now = (before.role, before.index), self._clock.monotonic()
        known = self._jobs.setdefault(job, {})
        last = known.get(place)
        entry = known[place] = _Entry(last.count + 1 if last else 1, now)
        self._order.append((job, place, entry))

    def of(self, job: str) -> Mapping[Place, RecentLoss]:
        """Return the places that lost more than one pod in a row."""
        if job not in self._jobs:
            return {}
        self._forget_old()
        now = self._clock.monotonic()
        return {
            place: RecentLoss(entry.count, now - entry.at)
            for place, entry in self._jobs.get(job, {}).items()
            if entry.count > 1
        }

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - IN_A_ROW_SECONDS
        while self._order and self._order[0][2].at < oldest:
            job, place, entry = self._order.popleft()
            places = self._jobs.get(job, {})
            if places.get(place) is entry:
                del places[place]
                if not places:
                    del self._jobs[job]


def _is_lost(pod: ObservedPod | None) -> bool:
    return pod is None or pod.terminating or pod.phase == "Failed"
