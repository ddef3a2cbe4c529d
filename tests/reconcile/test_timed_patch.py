"""Tests patches of a job itself that are due at a time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from argosy.dialects.base import TimedPatch
from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.kinds.trainingrun import TrainingRun
from tests.support.builders import run
from tests.support.reconciler_harness import ReconcilerHarness

DUE_SECONDS = 1005.0
"""On the clock of the harness, which begins at 1000."""


def suspended_when_due(job: TrainingRun) -> TimedPatch | None:
    due = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=DUE_SECONDS)
    return None if job.spec.suspend else TimedPatch(due, {"spec": {"suspend": True}})


async def test_a_job_is_reconciled_when_its_patch_is_due_and_patched_then() -> None:
    api = replace(training_run_api(), timed_patch=suspended_when_due)
    harness = ReconcilerHarness(run().role("worker", 1).build(), api)
    requeue = await harness.reconcile()
    assert "patch spec" not in harness.api.log
    assert requeue is not None
    assert harness.clock.seconds + requeue <= DUE_SECONDS
    harness.clock.seconds = DUE_SECONDS
    assert await harness.reconcile() == 0.0
    assert harness.api.log[-1] == "patch spec"
    await harness.reconcile()
    assert harness.api.log[0] == "status Suspended"
