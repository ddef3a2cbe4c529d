"""Computes the status of a PodDisruptionBudget from its pods and the scale of their controllers. Pure.

A pod whose eviction was accepted no longer counts as healthy. If it still exists two minutes later, the
eviction did not happen, and it counts again.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.kinds.meta import Condition
from argosy.local.controllers.api_types import BudgetSpec, BudgetStatus, Pod, PodDisruptionBudget
from argosy.local.controllers.podutil import is_ready

DELETION_TIMEOUT = timedelta(minutes=2)
ALLOWED = "DisruptionAllowed"


class Outcome(Struct):
    status: BudgetStatus
    overdue: list[Pod] = field(default_factory=list)
    """Pods that should have been deleted long ago, and are there still."""
    requeue_after: float | None = None
    """Seconds until the next of the disrupted pods is overdue."""


def decide(budget: PodDisruptionBudget, pods: list[Pod], scale: int, now: datetime) -> Outcome:
    """Compute the status; `scale` is the total of replicas that the pods' controllers want."""
    disrupted, overdue = _disrupted_pods(budget.status, pods, now)
    healthy = sum(_is_healthy(pod, disrupted) for pod in pods)
    expected, desired = _expected_counts(budget.spec, len(pods), scale)
    # Without pods nothing is allowed: the first ones may come before they are counted.
    allowed = max(healthy - desired, 0) if expected > 0 else 0
    status = BudgetStatus(
        budget.metadata.generation, disrupted, allowed, healthy, desired, expected, budget.status.conditions
    )
    reason = "SufficientPods" if allowed else "InsufficientPods"
    left = [(since + DELETION_TIMEOUT - now).total_seconds() for since in disrupted.values()]
    return Outcome(_with_condition(status, reason, "", now), overdue, min(left, default=None))


def sync_failed_status(budget: PodDisruptionBudget, problem: str, now: datetime) -> BudgetStatus:
    """Return the status after an error: no pod may be evicted, and the condition has the reason."""
    status = replace(budget.status, disruptions_allowed=0)
    return _with_condition(status, "SyncFailed", problem, now)


def _disrupted_pods(
    status: BudgetStatus, pods: Iterable[Pod], now: datetime
) -> tuple[dict[str, datetime], list[Pod]]:
    """Return evicted pods whose deletion is still expected, and those for which it is overdue."""
    awaited: dict[str, datetime] = {}
    overdue: list[Pod] = []
    for pod in pods:
        since = status.disrupted_pods.get(pod.metadata.name)
        if since is None or pod.metadata.deletion_timestamp is not None:
            continue
        if since + DELETION_TIMEOUT < now:
            overdue.append(pod)
        else:
            awaited[pod.metadata.name] = since
    return awaited, overdue


def _is_healthy(pod: Pod, disrupted: dict[str, datetime]) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted and is_ready(pod)


def _expected_counts(spec: BudgetSpec, count: int, scale: int) -> tuple[int, int]:
    """Return how many pods are expected, and how many of them must be healthy."""
    if spec.max_unavailable is not None:
        return scale, max(scale - _scaled_value(spec.max_unavailable, scale), 0)
    if isinstance(spec.min_available, str):
        return scale, _scaled_value(spec.min_available, scale)
    if spec.min_available is not None:
        return count, spec.min_available
    return 0, 0


def _scaled_value(amount: int | str, whole: int) -> int:
    """Return a number, or a percentage of the total rounded up."""
    if isinstance(amount, int):
        return amount
    return math.ceil(int(amount.removesuffix("%")) * whole / 100)


def _with_condition(status: BudgetStatus, reason: str, message: str, now: datetime) -> BudgetStatus:
    value = "True" if reason == "SufficientPods" else "False"
    wanted = Condition(ALLOWED, value, reason, message, now, status.observed_generation or None)
    conditions = []
    for condition in status.conditions:
        if condition.type != ALLOWED:
            conditions.append(condition)
        elif condition.status == value:
            wanted = replace(wanted, last_transition_time=condition.last_transition_time)
    return replace(status, conditions=[*conditions, wanted])
