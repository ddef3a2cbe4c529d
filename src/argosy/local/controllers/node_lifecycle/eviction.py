"""Computes when a pod must be evicted from a node with NoExecute taints. Pure.

Without a matching toleration the pod is evicted at once; with tolerationSeconds, after the shortest of them,
counted from when the taint was added; with tolerations without seconds, never.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from argosy.kinds.node_matching import tolerates
from argosy.local.controllers.api_types import Pod, Taint
from argosy.local.controllers.node_lifecycle.health import NOT_READY, UNREACHABLE


def eviction_time(pod: Pod, taints: Iterable[Taint], now: datetime, longest: float | None) -> datetime | None:
    """Return when to evict the pod, None if never; `longest` caps tolerations of lost nodes, in seconds."""
    times: list[datetime] = []
    for taint in taints:
        if taint.effect != "NoExecute":
            continue
        matching = next((item for item in pod.spec.tolerations if tolerates(item, taint)), None)
        if matching is None:
            return now
        if matching.toleration_seconds is None:
            continue
        seconds = float(max(matching.toleration_seconds, 0))
        if longest is not None and taint.key in (NOT_READY, UNREACHABLE):
            seconds = min(seconds, longest)
        times.append((taint.time_added or now) + timedelta(seconds=seconds))
    return min(times, default=None)
