"""Tests for counting the pods that a replica lost in a row."""

import pytest
from msgspec.structs import replace

from argosy.reconcile.losses import IN_A_ROW_SECONDS, RecentLosses
from argosy.workload.observed import ObservedPod, RecentLoss
from tests.support.manual_clock import ManualClock
from tests.support.workloads import pod

RUNNING = pod(0)
PLACE = ("worker", 0)

CHANGES: dict[str, tuple[ObservedPod | None, ObservedPod | None, bool]] = {
    "a running pod is gone: lost": (RUNNING, None, True),
    "a running pod is being deleted: lost": (RUNNING, pod(0, terminating=True), True),
    "a running pod failed: lost": (RUNNING, pod(0, "Failed"), True),
    "a pod that succeeded is gone: lost": (pod(0, "Succeeded"), None, True),
    "a pod came: not lost": (None, RUNNING, False),
    "a pod came that is already being deleted: not lost": (None, pod(0, terminating=True), False),
    "a pod began to run: not lost": (pod(0, "Pending"), RUNNING, False),
    "a pod succeeded: not lost": (RUNNING, pod(0, "Succeeded"), False),
    "a pod that failed is gone: counted before": (pod(0, "Failed"), None, False),
    "a pod that was being deleted is gone: counted before": (pod(0, terminating=True), None, False),
}


@pytest.mark.parametrize(("before", "after", "lost"), CHANGES.values(), ids=CHANGES.keys())
def test_what_counts_as_a_loss(before: ObservedPod | None, after: ObservedPod | None, lost: bool) -> None:
    losses = RecentLosses(ManualClock())
    losses.pod_changed("job", RUNNING, None)
    losses.pod_changed("job", before, after)
    assert losses.for_job("job") == ({PLACE: RecentLoss(2, 0.0)} if lost else {})


def test_losses_are_counted_for_each_place_and_job_by_itself() -> None:
    losses = RecentLosses(ManualClock())
    for job, lost_pod in (("a", RUNNING), ("a", pod(1)), ("a", pod(0, role="ps")), ("b", RUNNING)):
        losses.pod_changed(job, lost_pod, None)
    assert (losses.for_job("a"), losses.for_job("b")) == ({}, {})


def test_losses_far_apart_are_not_in_a_row() -> None:
    clock = ManualClock()
    losses = RecentLosses(clock)
    losses.pod_changed("job", RUNNING, None)
    clock.advance(IN_A_ROW_SECONDS + 1)
    losses.pod_changed("job", RUNNING, None)
    assert losses.for_job("job") == {}
    clock.advance(7)
    losses.pod_changed("job", replace(RUNNING, uid="other"), None)
    clock.advance(3)
    assert losses.for_job("job") == {PLACE: RecentLoss(2, 3.0)}


def test_nothing_is_kept_of_old_losses() -> None:
    clock = ManualClock()
    losses = RecentLosses(clock)
    for index in range(100):
        losses.pod_changed("job", pod(index), None)
    clock.advance(IN_A_ROW_SECONDS + 1)
    losses.pod_changed("other", RUNNING, None)
    assert list(losses._jobs) == ["other"]
    assert len(losses._order) == 1
