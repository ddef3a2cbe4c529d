"""Computes the time from one checkpoint to the next order: fixed, or adapted to how often pods are lost.

Saving more often costs time, saving less often loses more work in a failure. The loss is least at
sqrt(2 · cost of saving · mean time between failures), as Young and Daly found. A job that never lost a pod
uses the given interval, which is also the longest one.
"""

import hashlib
import math
from typing import Final

from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.record import Record

MIN_ADAPTIVE_SECONDS: Final = 60.0
MAX_JITTER_SECONDS: Final = 60.0
MAX_JITTER_SHARE: Final = 0.05


def adaptive_interval(interval: float, cost: float, mean_time_between_failures: float | None) -> float:
    """Return the seconds between checkpoints, given those to save one."""
    if mean_time_between_failures is None:
        return interval
    best = math.sqrt(2 * max(cost, 0.0) * max(mean_time_between_failures, 0.0))
    return min(interval, max(MIN_ADAPTIVE_SECONDS, best))


def estimate_mean_time_between_failures(running: float, failures: int) -> float | None:
    """Return the mean seconds between failures of a job that ran so long; None if it never failed."""
    return max(running, 0.0) / failures if failures > 0 else None


def jitter(identity: str, tick: int, interval: float) -> float:
    """Return by how many seconds a tick is late, so that the jobs of a cluster do not save all at once.

    It depends only on the arguments, so another leader computes the same.
    """
    most = max(min(interval * MAX_JITTER_SHARE, MAX_JITTER_SECONDS), 0.0)
    drawn = hashlib.sha256(f"{identity}/{tick}".encode()).digest()[:8]
    return most * int.from_bytes(drawn) / 2**64


def save_interval(policy: CheckpointPolicy, record: Record, running: float) -> float | None:
    """Return the seconds from one checkpoint to the next order, without jitter; None: none is ordered."""
    if policy.interval is None or not policy.adaptive or record.saved is None:
        return policy.interval
    mean = estimate_mean_time_between_failures(running, record.restarts + record.disruptions)
    return adaptive_interval(policy.interval, record.saved.seconds, mean)
