"""Computes how many disruptions a budget allows from its pods and their scale."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from argosy.kinds.meta import Condition, ObjectMeta
from argosy.local.controllers.api_types import BudgetSpec, BudgetStatus, Pod, PodDisruptionBudget, PodStatus
from argosy.local.controllers.disruption.decide import decide, sync_failed_status

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
EARLIER = NOW - timedelta(hours=1)


def pod(name: str, *, ready: bool = True, going: bool = False) -> Pod:
    conditions = [Condition("Ready", "True" if ready else "False")]
    meta = ObjectMeta(name=name, deletion_timestamp=NOW if going else None)
    return Pod(meta, status=PodStatus(phase="Running", conditions=conditions))


def budget(
    minimum: int | str | None = None, maximum: int | str | None = None, **disrupted: float
) -> PodDisruptionBudget:
    """A budget; `disrupted` are pods that were evicted so many seconds ago."""
    times = {name: NOW - timedelta(seconds=seconds) for name, seconds in disrupted.items()}
    return PodDisruptionBudget(
        ObjectMeta(name="b", namespace="ns", generation=7),
        BudgetSpec(minimum, maximum),
        BudgetStatus(disrupted_pods=times),
    )


THREE = [pod("a"), pod("b"), pod("c")]


@dataclass
class Case:
    budget: PodDisruptionBudget
    pods: list[Pod]
    want: tuple[int, int, int, int]
    """expected pods, desired and current healthy, disruptions allowed"""
    scale: int = 3
    want_disrupted: tuple[str, ...] = ()
    want_recheck: float | None = None
    want_overdue: tuple[str, ...] = ()


CASES = {
    "minAvailable number: compared with the existing pods": Case(budget(2), THREE, (3, 2, 3, 1), scale=99),
    "minAvailable above the healthy pods: no disruption": Case(budget(5), THREE, (3, 5, 3, 0)),
    "minAvailable percentage: of the scale, rounded up": Case(budget("50%"), THREE, (3, 2, 3, 1)),
    "maxUnavailable number: subtracted from the scale": Case(budget(None, 1), THREE, (3, 2, 3, 1)),
    "maxUnavailable percentage: rounded up": Case(budget(None, "34%"), THREE, (3, 1, 3, 2)),
    "maxUnavailable above the scale: all may be disrupted": Case(budget(None, 9), THREE, (3, 0, 3, 3)),
    "maxUnavailable 0%: no disruption": Case(budget(None, "0%"), THREE, (3, 3, 3, 0)),
    "neither minAvailable nor maxUnavailable: no disruption": Case(budget(), THREE, (0, 0, 3, 0)),
    "no pods: no disruption": Case(budget(0), [], (0, 0, 0, 0)),
    "pods without a controller: no disruption": Case(budget(None, 1), THREE, (0, 0, 3, 0), scale=0),
    "fewer pods than the scale: fewer disruptions": Case(budget(None, 1), THREE[:2], (3, 2, 2, 0)),
    "unready and terminating pods: not healthy": Case(
        budget(1), [pod("a"), pod("b", ready=False), pod("c", going=True)], (3, 1, 1, 0)
    ),
    "evicted pod: not healthy, checked again later": Case(
        budget(1, None, a=30), THREE, (3, 1, 2, 1), want_disrupted=("a",), want_recheck=90.0
    ),
    "evicted pod terminating: removed from disruptedPods": Case(
        budget(1, None, a=30), [pod("a", going=True), pod("b")], (2, 1, 1, 0)
    ),
    "evicted pod deleted: removed from disruptedPods": Case(
        budget(1, None, a=30), [pod("b"), pod("c")], (2, 1, 2, 1)
    ),
    "evicted pod still running after two minutes: healthy again": Case(
        budget(1, None, a=121), THREE, (3, 1, 3, 2), want_overdue=("a",)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_status_of_a_budget(case: Case) -> None:
    outcome = decide(case.budget, case.pods, case.scale, NOW)
    status = outcome.status
    counts = (
        status.expected_pods,
        status.desired_healthy,
        status.current_healthy,
        status.disruptions_allowed,
    )
    assert counts == case.want
    assert tuple(status.disrupted_pods) == case.want_disrupted
    assert outcome.requeue_after == case.want_recheck
    assert tuple(pod.metadata.name for pod in outcome.overdue) == case.want_overdue
    assert status.observed_generation == 7
    allowed = status.disruptions_allowed > 0
    reason = "SufficientPods" if allowed else "InsufficientPods"
    assert status.conditions == [Condition("DisruptionAllowed", str(allowed), reason, "", NOW, 7)]


def test_a_second_pass_changes_nothing() -> None:
    first = budget(2)
    first.status = decide(first, THREE, 3, EARLIER).status
    assert decide(first, THREE, 3, NOW).status == first.status


def test_a_budget_with_an_error_allows_no_disruption_and_has_its_message() -> None:
    before = budget(2)
    before.status = decide(before, THREE, 3, EARLIER).status
    status = sync_failed_status(before, "no scale", NOW)
    assert status.disruptions_allowed == 0
    assert status.conditions == [Condition("DisruptionAllowed", "False", "SyncFailed", "no scale", NOW, 7)]
    assert status.current_healthy == 3
