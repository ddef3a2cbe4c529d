"""Tests for the state of an object that is kept between reconciles."""

from argosy.plan.actions import ActionResult, ActionStatus
from argosy.reconcile.object_state import (
    FIRST_RETRY_SECONDS,
    MAX_RETRY_SECONDS,
    ActionRetries,
    ObjectState,
)

KEY = ("ConfigMap", "a")
FAILURE = ActionResult(*KEY, ActionStatus.FORBIDDEN, "no")


def test_the_backoff_of_a_failed_action_doubles() -> None:
    retries = ActionRetries()
    for wait in (FIRST_RETRY_SECONDS, 2 * FIRST_RETRY_SECONDS, 4 * FIRST_RETRY_SECONDS):
        retries.record(FAILURE, 100.0)
        assert retries.next_retry_at() == 100.0 + wait
    assert retries.is_in_backoff(KEY, 100.0)
    assert not retries.is_in_backoff(KEY, 100.0 + wait)
    for _ in range(20):
        retries.record(FAILURE, 100.0)
    assert retries.next_retry_at() == 100.0 + MAX_RETRY_SECONDS


def test_an_action_that_succeeded_is_forgotten() -> None:
    retries = ActionRetries()
    retries.record(FAILURE, 100.0)
    retries.clear(KEY)
    assert (retries.failures, retries.next_retry_at()) == ({}, None)


def test_an_action_that_is_no_longer_planned_is_forgotten() -> None:
    retries = ActionRetries()
    retries.record(FAILURE, 100.0)
    retries.keep_only({KEY})
    assert retries.failures == {KEY: FAILURE}
    retries.keep_only(())
    assert (retries.failures, retries.next_retry_at()) == ({}, None)


def test_a_new_generation_forgets_earlier_rejections() -> None:
    state = ObjectState(uid="u", generation=1)
    state.retries.record(FAILURE, 100.0)
    state.use_generation(1)
    assert state.retries.failures
    state.use_generation(2)
    assert not state.retries.failures
