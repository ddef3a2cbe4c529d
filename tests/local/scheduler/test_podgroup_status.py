"""Tests for the status of PodGroups."""

from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec import Struct

from argosy.local.controllers.api_types import Pod, StatusCondition
from argosy.local.scheduler.outcome import GangOutcome
from argosy.local.scheduler.podgroup_status import group_status
from tests.support.scheduler_objects import START, pod, pod_group

BLOCKED = GangOutcome(placed=False, message="no room")
PLACED = GangOutcome(placed=True)


class Case(Struct):
    want_phase: str
    pods: Sequence[Pod] = ()
    outcome: GangOutcome | None = None
    queued: bool = True
    want_condition: str = ""


RUNNING = [pod("a", node="n1", phase="Running"), pod("b", node="n1", phase="Running")]

CASES = {
    "new group larger than the cluster: Pending": Case(
        "Pending", queued=False, outcome=BLOCKED, want_condition="Unschedulable"
    ),
    "new group: Inqueue": Case("Inqueue"),
    "does not fit now: Unschedulable": Case("Inqueue", outcome=BLOCKED, want_condition="Unschedulable"),
    "placed in this pass: Scheduled": Case("Inqueue", outcome=PLACED, want_condition="Scheduled"),
    "all bound: Running": Case(
        "Running", pods=[pod("a", node="n1"), pod("b", node="n1")], want_condition="Scheduled"
    ),
    "all running: Running": Case("Running", pods=RUNNING, want_condition="Scheduled"),
    "fewer running than the minimum: Unknown": Case(
        "Unknown", pods=[RUNNING[0], pod("b")], outcome=BLOCKED, want_condition="Unschedulable"
    ),
    "all finished: Completed": Case(
        "Completed",
        pods=[pod("a", node="n1", phase="Succeeded"), pod("b", node="n1", phase="Failed")],
        want_condition="Scheduled",
    ),
    "one finished, one running: Running": Case(
        "Running", pods=[pod("a", node="n1", phase="Succeeded"), RUNNING[1]], want_condition="Scheduled"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_phase_and_condition(case: Case) -> None:
    group = pod_group("g", 2)
    status = group_status(group, case.pods, case.outcome, queued=case.queued, now=START, transition="t1")
    assert status.phase == case.want_phase
    assert [condition.type for condition in status.conditions] == (
        [case.want_condition] if case.want_condition else []
    )


def test_an_unchanged_condition_is_not_written_again() -> None:
    group = pod_group("g", 2)
    group.status = group_status(group, [], BLOCKED, queued=True, now=START, transition="t1")
    later = group_status(group, [], BLOCKED, queued=True, now=START + timedelta(seconds=9), transition="t2")
    assert later == group.status


def test_scheduled_replaces_unschedulable() -> None:
    group = pod_group("g", 2)
    group.status.conditions = [
        StatusCondition(
            "Scheduled", "True", "tasks in gang are ready to be scheduled", "", START, transition_id="t0"
        ),
        StatusCondition("Unschedulable", "True", "NotEnoughResources", "no room", START, transition_id="t1"),
    ]
    status = group_status(group, [], PLACED, queued=True, now=START, transition="t2")
    assert [condition.type for condition in status.conditions] == ["Unschedulable", "Scheduled"]
    assert status.conditions[-1].transition_id == "t2"
