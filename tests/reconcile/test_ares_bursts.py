"""AresJobs in a burst: pods come before statuses and defaults, and nothing is written twice."""

import msgspec
import pytest

from argosy.dialects.ares.api import ares_job_api
from argosy.kinds.meta import Json
from tests.support.aresjobs import job
from tests.support.stage import Stage, crowd_around

PODS = {f"create Pod mnist-worker-{index}" for index in range(3)}


@pytest.fixture
def stage() -> Stage:
    written: Json = msgspec.to_builtins(job(roles={"worker": {"replicas": 3}}))
    return Stage(written, ares_job_api())


async def reconcile(stage: Stage, times: int) -> list[str]:
    """Return what was written by so many reconciles."""
    log: list[str] = []
    for _ in range(times):
        await stage.go()
        log += stage.api.log
    return log


async def test_alone_defaults_and_pending_are_written_before_pods_are_created(stage: Stage) -> None:
    log = await reconcile(stage, 3)
    assert log[:3] == ["patch spec", "status Pending", "status Starting"]
    assert set(log[3:]) >= PODS


async def test_in_a_burst_pods_are_created_before_anything_else_is_written(stage: Stage) -> None:
    stage.reconciler.status.record_support.confirm_write()
    with crowd_around(stage):
        log = await reconcile(stage, 2)
        assert set(log) >= PODS
        assert not [line for line in log if line.startswith(("status", "patch"))]
        stage.pods_become("Running", 0, 1, 2)
        assert await reconcile(stage, 3) == ["patch spec", "status Running"], "one status instead of three"
    transitions = [message for reason, message in stage.silent.events if reason == "JobPhaseTransition"]
    assert transitions == ["Pending -> Running"]
