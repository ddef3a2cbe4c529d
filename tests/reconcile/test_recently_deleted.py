"""Pods that have gone are known for a while, so that people can be told who took them."""

import pytest

from argosy.reconcile.recently_deleted import KEPT, Departed
from argosy.testing.manualclock import ManualClock
from argosy.testing.workloads import pod


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def departed(clock: ManualClock) -> Departed:
    return Departed(clock)


def test_a_pod_that_went_is_known_until_another_has_its_place(departed: Departed) -> None:
    departed.went("job", pod(0, node="n1"))
    departed.went("job", pod(1))
    departed.went("other", pod(0))
    assert [(one.index, one.node, one.terminating) for one in departed.of("job")] == [
        (0, "n1", True),
        (1, "", True),
    ]
    departed.came("job", pod(0, replacement=1))
    assert [one.index for one in departed.of("job")] == [1]
    departed.came("job", pod(1))
    assert departed.of("job") == ()
    assert len(departed.of("other")) == 1


def test_a_pod_that_went_is_forgotten_after_a_minute(departed: Departed, clock: ManualClock) -> None:
    departed.went("job", pod(0))
    clock.advance(KEPT / 2)
    departed.went("job", pod(0, node="later"))
    clock.advance(KEPT / 2 + 1)
    departed.went("other", pod(0))
    assert [one.node for one in departed.of("job")] == ["later"], "the place was empty again since"
    clock.advance(KEPT)
    departed.went("other", pod(1))
    assert departed.of("job") == ()
