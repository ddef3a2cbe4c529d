"""Detects bursts of jobs, during which status writes are deferred.

A status write costs the API server more than two pod creations. When many jobs arrive at once, or lose a pod
at once, all of them wait for the API server. Statuses that could be rebuilt from pod labels are then written
later, often together with the next change (docs/decisions/007). A burst is one of a namespace: a tenant who
submits many jobs delays the statuses of no other tenant.
"""

from collections import deque

BURST_JOBS = 8
"""Jobs that make a burst: reconciled concurrently, or within the window, or about to be reconciled."""

BURST_WINDOW_SECONDS = 0.1

BURST_HOLD_SECONDS = 1.0
"""How long a burst lasts after it was last detected."""

MAX_IDLE_NAMESPACES = 256
"""Namespaces that are remembered although none of their jobs is being reconciled."""


class BurstDetector:
    """Counts the reconciles of one kind of job in one namespace. Times are on the monotonic clock."""

    def __init__(self) -> None:
        self.active = 0
        self._recent: deque[tuple[float, str]] = deque(maxlen=BURST_JOBS)
        """The jobs observed last, and when."""
        self._burst_until = float("-inf")

    def __enter__(self) -> None:
        self.active += 1

    def __exit__(self, *_: object) -> None:
        self.active -= 1

    def observe_job(self, uid: str, now: float) -> None:
        """Count a job that is being reconciled, or is about to be."""
        self._recent.append((now, uid))
        jobs = {uid for at, uid in self._recent if now - at < BURST_WINDOW_SECONDS}
        if max(self.active, len(jobs)) >= BURST_JOBS:
            self._burst_until = now + BURST_HOLD_SECONDS

    def in_burst(self, now: float) -> bool:
        return now < self._burst_until


class BurstDetectors:
    """One detector per namespace."""

    def __init__(self) -> None:
        self._detectors: dict[str, BurstDetector] = {}

    def for_namespace(self, namespace: str) -> BurstDetector:
        detector = self._detectors.get(namespace)
        if detector is None:
            if len(self._detectors) >= MAX_IDLE_NAMESPACES:
                self._detectors = {
                    name: existing for name, existing in self._detectors.items() if existing.active
                }
            detector = self._detectors[namespace] = BurstDetector()
        return detector
