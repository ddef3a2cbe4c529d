"""Tests for AresJobs in a burst: pods come before statuses and defaults, and nothing is written twice."""

import msgspec
import pytest

from argosy.dialects.ares.api import ares_job_api
from argosy.kinds.meta import Json
from tests.support.aresjobs import job
from tests.support.reconciler_harness import ReconcilerHarness, in_burst

PODS = {f"create Pod mnist-worker-{index}" for index in range(3)}


@pytest.fixture
def harness() -> ReconcilerHarness:
    written: Json = msgspec.to_builtins(job(roles={"worker": {"replicas": 3}}))
    return ReconcilerHarness(written, ares_job_api())


async def reconcile(harness: ReconcilerHarness, times: int) -> list[str]:
    """Return what this many reconciles wrote."""
    log: list[str] = []
    for _ in range(times):
        await harness.reconcile()
        log += harness.api.log
    return log


async def test_alone_defaults_and_pending_are_written_before_pods_are_created(
    harness: ReconcilerHarness,
) -> None:
    log = await reconcile(harness, 3)
    assert log[:3] == ["patch spec", "status Pending", "status Starting"]
    assert set(log[3:]) >= PODS


async def test_in_a_burst_pods_are_created_before_anything_else_is_written(
    harness: ReconcilerHarness,
) -> None:
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        log = await reconcile(harness, 2)
        assert set(log) >= PODS
        assert not [line for line in log if line.startswith(("status", "patch"))]
        harness.set_phase("Running", 0, 1, 2)
        assert await reconcile(harness, 3) == ["patch spec", "status Running"], "one status instead of three"
    transitions = [message for reason, message in harness.recorder.events if reason == "JobPhaseTransition"]
    assert transitions == ["Pending -> Running"]
