"""Tests for remembering deleted pods for a while, so that the cause of a loss can be reported."""

import pytest

from argosy.reconcile.recently_deleted import KEEP_SECONDS, RecentlyDeleted
from tests.support.manual_clock import ManualClock
from tests.support.workloads import pod


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def departed(clock: ManualClock) -> RecentlyDeleted:
    return RecentlyDeleted(clock)


def test_a_pod_that_went_is_known_until_another_has_its_place(departed: RecentlyDeleted) -> None:
    departed.add("job", pod(0, node="n1"))
    departed.add("job", pod(1))
    departed.add("other", pod(0))
    assert [(pod.index, pod.node, pod.terminating) for pod in departed.for_job("job")] == [
        (0, "n1", True),
        (1, "", True),
    ]
    departed.discard("job", pod(0, replacement=1))
    assert [pod.index for pod in departed.for_job("job")] == [1]
    departed.discard("job", pod(1))
    assert departed.for_job("job") == ()
    assert len(departed.for_job("other")) == 1


def test_a_pod_that_went_is_forgotten_after_a_minute(departed: RecentlyDeleted, clock: ManualClock) -> None:
    departed.add("job", pod(0))
    clock.advance(KEEP_SECONDS / 2)
    departed.add("job", pod(0, node="later"))
    clock.advance(KEEP_SECONDS / 2 + 1)
    departed.add("other", pod(0))
    assert [pod.node for pod in departed.for_job("job")] == ["later"], "the place was empty again since"
    clock.advance(KEEP_SECONDS)
    departed.add("other", pod(1))
    assert departed.for_job("job") == ()
