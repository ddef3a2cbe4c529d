"""Tests for the tracker of free capacity."""

from collections import Counter

import pytest

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds import labels
from argosy.kinds.meta import OwnerReference
from argosy.reconcile.caches import Caches
from argosy.reconcile.capacity import MAX_RESERVED_SECONDS, CapacityTracker, PodUsage, PodUsageMeta
from argosy.workload.capacity import PodRequirements
from tests.support.manual_clock import ManualClock
from tests.support.workloads import workload

JOB = workload()
OTHER = "uid-of-another-job"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def tracker(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> CapacityTracker:
    """A tracker whose list of pods is complete, and empty."""
    monkeypatch.setattr(Cache, "synced", True)
    return Caches(Client(Connection(server="https://127.0.0.1:1")), clock).capacity


def pending(tracker: CapacityTracker, uid: str = OTHER) -> int:
    """Return how many pods without a node are counted before those of the job."""
    capacity = tracker.snapshot(uid)
    assert capacity is not None
    return sum(batch.count for batch in capacity.pending)


def appear(tracker: CapacityTracker, index: int, owner: str = JOB.uid) -> None:
    """Show a pod without a node in the cache."""
    metadata = PodUsageMeta(
        f"pod-{index}",
        "default",
        f"uid-{index}",
        str(index + 1),
        {labels.ROLE: "worker"},
        [OwnerReference(uid=owner)],
    )
    tracker.pods.put(PodUsage(metadata, PodRequirements()))


def test_capacity_is_unknown_until_all_pods_are_listed(clock: ManualClock) -> None:
    tracker = Caches(Client(Connection(server="https://127.0.0.1:1")), clock).capacity
    assert tracker.snapshot(OTHER) is None
    assert tracker.requested.is_set()


def test_reserved_pods_count_for_other_jobs_until_they_appear(tracker: CapacityTracker) -> None:
    tracker.reserve(JOB, Counter(worker=3))
    assert pending(tracker) == 3
    appear(tracker, 0)
    assert pending(tracker) == 3, "one pod exists, two are reserved"
    appear(tracker, 1)
    appear(tracker, 2)
    assert pending(tracker) == 3
    assert tracker.reserved_until() is None


def test_reservation_of_the_job_itself_is_free_for_it(tracker: CapacityTracker) -> None:
    tracker.reserve(JOB, Counter(worker=3))
    assert pending(tracker, JOB.uid) == 0


def test_reservation_ends_when_pods_do_not_appear(tracker: CapacityTracker, clock: ManualClock) -> None:
    tracker.reserve(JOB, Counter(worker=3))
    assert tracker.reserved_until() == clock.monotonic() + MAX_RESERVED_SECONDS
    clock.seconds += MAX_RESERVED_SECONDS
    assert pending(tracker) == 0
