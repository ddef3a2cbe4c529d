"""Tests for the taints and conditions of nodes that stop reporting."""

from datetime import timedelta

import msgspec
import pytest

from argosy.kinds.node_matching import Toleration
from argosy.local.controllers.api_types import Node, Taint
from argosy.local.controllers.node_lifecycle.health import (
    desired_taints,
    eviction_time,
    observe,
    unknown_conditions,
)
from argosy.local.controllers.node_lifecycle.running_time import RunningTime
from tests.support.scheduler_objects import START, pod


def node(ready: str | None = "True", unschedulable: bool = False, taints: list[Taint] | None = None) -> Node:
    conditions = [{"type": "Ready", "status": ready}] if ready else []
    return msgspec.convert(
        {
            "metadata": {"name": "n"},
            "spec": {"unschedulable": unschedulable, "taints": msgspec.to_builtins(taints or [])},
            "status": {"conditions": conditions},
        },
        Node,
    )


FOREIGN = Taint("gpu", "NoSchedule", "yes")
UNREACHABLE = Taint("node.kubernetes.io/unreachable", "NoExecute", "", START)

TAINTS = {
    "Ready: no taints": (node(), []),
    "Ready again: unreachable taint removed": (node(taints=[FOREIGN, UNREACHABLE]), ["gpu:NoSchedule"]),
    "not Ready: not-ready taints": (
        node("False"),
        ["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"],
    ),
    "Ready unknown: unreachable taints": (
        node("Unknown"),
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"],
    ),
    "no Ready condition: unreachable taints": (
        node(None),
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"],
    ),
    "cordoned: unschedulable taint": (
        node(unschedulable=True),
        ["node.kubernetes.io/unschedulable:NoSchedule"],
    ),
}


@pytest.mark.parametrize("case", TAINTS.values(), ids=TAINTS)
def test_taints_follow_conditions(case: tuple[Node, list[str]]) -> None:
    current, want = case
    assert [f"{taint.key}:{taint.effect}" for taint in desired_taints(current, START)] == want


def test_an_existing_taint_keeps_its_time() -> None:
    tainted = node("Unknown", taints=[UNREACHABLE])
    assert UNREACHABLE in desired_taints(tainted, START + timedelta(hours=1))


def test_silence_counts_from_the_last_observed_change() -> None:
    first = observe(None, START, None, 10.0)
    assert observe(first, START, None, 20.0).observed_at == 10.0
    assert observe(first, START + timedelta(seconds=1), None, 20.0).observed_at == 20.0
    assert observe(first, START, START, 20.0).observed_at == 20.0


def test_running_time_does_not_include_a_stopped_process() -> None:
    readings = iter([0.0, 1.0, 2.0, 3600.0, 3601.0])
    running = RunningTime(lambda: next(readings), step=1.0)
    assert [running.seconds() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]


def test_conditions_of_a_silent_node_become_unknown_once() -> None:
    changed = unknown_conditions(node(), START)
    assert [(c.type, c.reason) for c in changed] == [
        ("Ready", "NodeStatusUnknown"),
        ("MemoryPressure", "NodeStatusNeverUpdated"),
        ("DiskPressure", "NodeStatusNeverUpdated"),
        ("PIDPressure", "NodeStatusNeverUpdated"),
    ]
    marked = node()
    marked.status.conditions = changed
    assert unknown_conditions(marked, START) == []


LEAVES: dict[str, tuple[list[Toleration], float | None, float | None]] = {
    "no toleration: evicted at once": ([], None, 60.0),
    "tolerationSeconds 300: evicted after five minutes": (
        [Toleration("node.kubernetes.io/unreachable", "Exists", toleration_seconds=300)],
        None,
        300.0,
    ),
    "toleration without seconds: never evicted": ([Toleration(operator="Exists")], None, None),
    "negative tolerationSeconds: evicted at once": (
        [Toleration("node.kubernetes.io/unreachable", "Exists", toleration_seconds=-1)],
        None,
        0.0,
    ),
    "maximum toleration: evicted at the latest then": (
        [Toleration("node.kubernetes.io/unreachable", "Exists", toleration_seconds=300)],
        5.0,
        5.0,
    ),
}


@pytest.mark.parametrize("case", LEAVES.values(), ids=LEAVES)
def test_eviction_time(case: tuple[list[Toleration], float | None, float | None]) -> None:
    """Seconds after the taint came; a minute has passed."""
    tolerations, longest, want = case
    guest = pod("guest", node="n")
    guest.spec.tolerations = tolerations
    when = eviction_time(guest, [FOREIGN, UNREACHABLE], START + timedelta(seconds=60), longest)
    assert (when - START).total_seconds() == want if when is not None else want is None
