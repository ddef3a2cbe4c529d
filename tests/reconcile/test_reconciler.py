"""Tests for whole reconciles over caches that the test fills: what is written, and in which order."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from argosy.dialects.base import read_record
from argosy.engine.errors import ApiError, Conflict, Invalid, NotFound, Unavailable
from argosy.engine.objects import Key
from argosy.reconcile import fixed_point, reconciler
from argosy.reconcile.bursts import BURST_HOLD_SECONDS, BURST_JOBS, BURST_WINDOW_SECONDS
from argosy.reconcile.status_writer import DEFER_SECONDS, MAX_DEFER_SECONDS
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from tests.support.builders import run
from tests.support.reconciler_harness import KEY, ReconcilerHarness, in_burst


class LoopClock:
    """Returns the time of the event loop, which a test may advance."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture
def harness() -> ReconcilerHarness:
    return ReconcilerHarness(run().role("worker", 3).build())


async def until_quiet(harness: ReconcilerHarness) -> None:
    for _ in range(10):
        wake = await harness.reconcile()
        if not harness.api.log and wake is None:
            return
        harness.clock.seconds += wake or 0.0
    raise AssertionError("it does not come to rest")


async def test_the_record_is_written_before_pods_are_created(harness: ReconcilerHarness) -> None:
    await harness.reconcile()
    assert harness.api.log[0] == "status Starting"
    assert set(harness.api.log[1:]) >= {f"create Pod mnist-worker-{index}" for index in range(3)}


@pytest.mark.parametrize(
    ("refusal", "passes", "words"),
    [
        (NotFound(404, "NotFound", ""), 3, "has no status subresource"),
        (Invalid(422, "Invalid", "status.phase: must be a number"), 1, "status.phase: must be a number"),
    ],
)
async def test_a_crd_that_rejects_our_status_is_reported_by_an_event(
    harness: ReconcilerHarness, refusal: ApiError, passes: int, words: str
) -> None:
    harness.api.error = refusal
    for _ in range(passes - 1):
        assert await harness.reconcile() == 1.0, "it may be deleted, and no watch event has arrived yet"
    assert await harness.reconcile() == 2.0
    ((reason, message),) = harness.recorder.events
    assert reason == "StatusUpdateFailed"
    assert "trainingruns.argosy.dev" in message
    assert words in message
    harness.clock.seconds += 2.1
    assert await harness.reconcile() == 5.0, "it is tried less and less often"
    assert harness.api.log == []
    harness.api.error = None
    assert harness.reconciler.on_crd_changed() == [KEY]
    await harness.reconcile()
    assert harness.api.writes() == ["status Starting"]


@pytest.mark.parametrize("refusal", [Conflict(409, "Conflict", ""), NotFound(404, "NotFound", "")])
async def test_after_a_rejected_status_write_nothing_is_executed(
    harness: ReconcilerHarness, refusal: ApiError
) -> None:
    harness.api.error = refusal
    assert await harness.reconcile() == 1.0
    assert harness.api.log == []
    assert harness.recorder.events == []


async def test_a_created_pod_is_not_created_again_before_the_watch_shows_it(
    harness: ReconcilerHarness,
) -> None:
    await harness.reconcile()
    await harness.reconcile()
    assert not any(line.startswith("create") for line in harness.api.log)


async def test_a_running_job_is_not_requeued(harness: ReconcilerHarness) -> None:
    await harness.reconcile()
    harness.set_phase("Running", 0, 1, 2)
    assert await harness.reconcile() is None, "its new phase asks for nothing by itself"
    assert harness.api.log == ["status Running"]


async def test_an_unchanged_job_is_not_written(harness: ReconcilerHarness) -> None:
    await until_quiet(harness)
    await harness.reconcile()
    assert harness.api.log == []


async def test_counts_are_written_at_most_once_per_second_and_never_dropped(
    harness: ReconcilerHarness,
) -> None:
    await until_quiet(harness)
    harness.clock.seconds += 5
    harness.set_phase("Running", 0)
    await harness.reconcile()
    assert harness.api.log == ["status Starting"], "the first count after a quiet time goes out at once"
    harness.clock.seconds += 0.25
    harness.set_phase("Running", 1)
    assert await harness.reconcile() == pytest.approx(0.75)
    assert harness.api.log == []
    harness.clock.seconds += 0.75
    await harness.reconcile()
    assert harness.api.log == ["status Starting"]
    assert harness.api.stored().status.workers == "2/3"
    harness.clock.seconds += 0.1
    harness.set_phase("Running", 2)
    await harness.reconcile()
    assert harness.api.log == ["status Running"], "a phase does not wait"


async def test_the_delay_of_counts_starts_when_the_last_write_ended(
    harness: ReconcilerHarness,
) -> None:
    await until_quiet(harness)
    harness.api.write_seconds = 30.0
    harness.clock.seconds += 5
    harness.set_phase("Running", 0)
    await harness.reconcile()
    assert harness.api.log == ["status Starting"]
    harness.set_phase("Running", 1)
    assert await harness.reconcile() == pytest.approx(1.0)


async def test_the_first_status_counts_pods_that_are_created_next(harness: ReconcilerHarness) -> None:
    await harness.reconcile()
    status = harness.api.stored().status
    assert (status.attempt, status.replicas, status.roles["worker"].pending) == (1, 3, 3)
    harness.clock.seconds += 5
    await harness.reconcile()
    assert harness.api.log == [], "there is nothing more to tell"


async def test_rejected_pods_are_not_counted(harness: ReconcilerHarness) -> None:
    harness.api.quota = 1
    await harness.reconcile()
    await harness.reconcile()
    assert harness.api.log == ["status Starting"]
    status = harness.api.stored().status
    assert (status.reason, status.attempt) == ("PodForbidden", 1)
    assert (status.replicas, status.roles["worker"].pending) == (1, 1)


@pytest.mark.looptime
async def test_eight_starting_pods_take_two_writes_and_few_reconciles() -> None:
    harness = ReconcilerHarness(run().role("worker", 8).build(), clock=LoopClock())
    async with harness.running_controller():
        await asyncio.sleep(3)
        for index in range(8):
            harness.set_phase("Running", index)
            await asyncio.sleep(0.1)
        await asyncio.sleep(20)
    assert harness.api.writes() == ["status Starting", "status Running"]
    assert harness.reconciles == 2


@pytest.mark.looptime
async def test_a_slowly_starting_job_is_written_once_per_second() -> None:
    harness = ReconcilerHarness(run().role("worker", 101).build(), clock=LoopClock())
    async with harness.running_controller():
        await asyncio.sleep(3)
        for index in range(100):
            harness.set_phase("Running", index)
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
    assert harness.api.stored().status.workers == "100/101"
    assert 4 <= len(harness.api.writes()) <= 6, "the first, and at most one in each of five seconds"
    assert harness.reconciles <= 8


async def test_a_pruned_record_stops_all_actions(harness: ReconcilerHarness) -> None:
    harness.api.prunes = True
    wake = await harness.reconcile()
    assert wake is not None
    assert wake > 1
    assert [line for line in harness.api.log if line.startswith("create")] == []
    assert "trainingruns.argosy.dev" in harness.api.stored().status.message
    await harness.reconcile()
    assert harness.api.log == [], "it does not write again and again"


async def test_a_scheduler_that_counts_nodes_in_its_message_causes_few_status_writes(
    harness: ReconcilerHarness,
) -> None:
    await harness.reconcile()
    await harness.reconcile()
    writes: list[str] = []
    for nodes in range(50):
        harness.set_unschedulable(0, f"0/{nodes} nodes are available: {nodes} Insufficient nvidia.com/gpu.")
        await harness.reconcile()
        writes += harness.api.writes()
        harness.clock.seconds += 0.4
    assert len(writes) <= 3, "the reason at once, and other words for it every ten seconds"
    wake = await harness.reconcile()
    assert wake is not None
    harness.clock.seconds += wake
    await harness.reconcile()
    assert harness.api.writes() == ["status Starting"]
    assert "0/49 nodes are available" in harness.api.stored().status.message, "the last message is reported"


@pytest.fixture
def burst_harness(harness: ReconcilerHarness) -> Iterator[ReconcilerHarness]:
    """Return a job in a burst, with a CRD that is confirmed to preserve Records."""
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        yield harness


def reconcile_another_job(harness: ReconcilerHarness) -> None:
    """Let the burst go on: another job of the namespace is reconciled."""
    harness.reconciler.status.bursts.for_namespace(KEY[0]).observe_job("another", harness.clock.monotonic())


async def test_in_a_burst_pods_are_created_first_and_the_status_is_written_when_they_run(
    burst_harness: ReconcilerHarness,
) -> None:
    assert await burst_harness.reconcile() == pytest.approx(DEFER_SECONDS)
    assert burst_harness.api.writes() == []
    assert {f"create Pod mnist-worker-{index}" for index in range(3)} <= set(burst_harness.api.log)
    burst_harness.set_phase("Running", 0)
    burst_harness.clock.seconds += 1
    await burst_harness.reconcile()
    assert burst_harness.api.log == [], "one that runs while others come up is not worth a write yet"
    burst_harness.set_phase("Running", 1, 2)
    wake = await burst_harness.reconcile()
    assert burst_harness.api.log == [], "others still wait for their pods"
    assert wake == pytest.approx(DEFER_SECONDS - 1)
    burst_harness.clock.seconds += wake or 0.0
    reconcile_another_job(burst_harness)
    wake = await burst_harness.reconcile()
    assert burst_harness.api.log == [], "they still do"
    assert wake == pytest.approx(MAX_DEFER_SECONDS - DEFER_SECONDS)
    burst_harness.clock.seconds += wake or 0.0
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Running"]


async def test_in_a_burst_a_phase_that_others_wait_for_is_written_at_once() -> None:
    harness = ReconcilerHarness(
        run().role("worker", 3).role("late", 1, dependsOn=[{"role": "worker"}]).build()
    )
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        await harness.reconcile()
        assert harness.api.writes() == [], "nobody waits for a role to start"
        harness.set_phase("Running", 0, 1)
        await harness.reconcile()
        assert harness.api.writes() == [], "the role does not run yet"
        harness.set_phase("Running", 2)
        await harness.reconcile()
        assert harness.api.writes() == ["status Starting"]
        record = read_record(harness.api.stored())
        assert record is not None
        assert (record.role("worker").phase, record.role("late").phase) == (Phase.RUNNING, Phase.STARTING)


async def test_a_deferred_status_is_written_soon_after_the_burst(
    harness: ReconcilerHarness,
) -> None:
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        wake = await harness.reconcile()
    assert wake == pytest.approx(DEFER_SECONDS)
    harness.clock.seconds += wake or 0.0
    await harness.reconcile()
    assert harness.api.log == ["status Starting"]


async def test_many_jobs_that_only_write_that_they_run_are_no_burst(burst_harness: ReconcilerHarness) -> None:
    await burst_harness.reconcile()
    burst_harness.set_phase("Running", 0, 1, 2)
    burst_harness.clock.seconds += await burst_harness.reconcile() or 0.0
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Running"]


async def test_during_a_burst_a_status_is_deferred_for_a_limited_time(
    burst_harness: ReconcilerHarness,
) -> None:
    burst_harness.clock.seconds += await burst_harness.reconcile() or 0.0
    wake = await burst_harness.reconcile()
    assert burst_harness.api.log == []
    assert wake == pytest.approx(MAX_DEFER_SECONDS - DEFER_SECONDS)
    burst_harness.clock.seconds += wake or 0.0
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Starting"]


async def test_after_a_burst_a_running_job_is_written_at_once(harness: ReconcilerHarness) -> None:
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        await harness.reconcile()
    harness.clock.seconds += BURST_HOLD_SECONDS
    harness.set_phase("Running", 0, 1, 2)
    await harness.reconcile()
    assert harness.api.log == ["status Running"]


async def test_a_burst_continues_over_a_short_pause(harness: ReconcilerHarness) -> None:
    harness.reconciler.status.record_support.confirm_write()
    with in_burst(harness):
        await harness.reconcile()
    harness.clock.seconds += 5 * BURST_WINDOW_SECONDS
    harness.set_phase("Running", 0, 1, 2)
    harness.api.log.clear()
    await harness.reconcile()
    assert harness.api.log == []


async def test_in_a_burst_pods_that_do_not_start_are_reported_after_a_while(
    burst_harness: ReconcilerHarness,
) -> None:
    await burst_harness.reconcile()
    await reconcile_after_max_deferral(burst_harness)
    assert burst_harness.api.log == ["status Starting"]
    burst_harness.set_phase("Running", 0, 1, 2)
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Running"], "somebody has seen it start, and waits for this"
    await until_quiet(burst_harness)


async def test_job_that_ends_while_running_is_deferred_is_written_as_running_first(
    burst_harness: ReconcilerHarness,
) -> None:
    await burst_harness.reconcile()
    burst_harness.set_phase("Running", 0, 1, 2)
    await burst_harness.reconcile()
    burst_harness.set_phase("Succeeded", 0, 1, 2)
    burst_harness.api.log.clear()
    await burst_harness.reconcile()
    assert burst_harness.api.writes() == ["status Running", "status Succeeded"]
    assert [reason for reason, _ in burst_harness.recorder.events] == ["Running", "Succeeded"], "each once"


async def test_in_a_burst_a_finished_pod_is_recorded_at_once(
    burst_harness: ReconcilerHarness,
) -> None:
    """Otherwise the pod would run again after its deletion."""
    await burst_harness.reconcile()
    burst_harness.set_phase("Running", 1)
    burst_harness.set_phase("Succeeded", 0)
    burst_harness.api.log.clear()
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Starting"]
    record = read_record(burst_harness.api.stored())
    assert record is not None
    assert record.role("worker").succeeded_indexes == {0: 1}


async def test_reconciles_wait_for_the_first_write_of_a_record(harness: ReconcilerHarness) -> None:
    proof = harness.reconciler.status.record_support
    with proof.first_write():
        ours = asyncio.create_task(harness.reconcile())
        await asyncio.sleep(0.01)
        assert harness.api.log == []
        proof.confirm_write()
    with in_burst(harness):
        await ours
    assert harness.api.writes() == []
    assert "create Pod mnist-worker-0" in harness.api.log


async def test_in_a_burst_a_rejection_is_reported_at_once(burst_harness: ReconcilerHarness) -> None:
    burst_harness.api.quota = 1
    assert await burst_harness.reconcile() == 0.0
    assert burst_harness.api.writes() == []
    await burst_harness.reconcile()
    assert burst_harness.api.writes() == ["status Starting"]
    assert "exceeded quota" in burst_harness.api.stored().status.message


async def test_in_a_burst_a_deleted_pod_is_replaced_before_the_status_is_written(
    burst_harness: ReconcilerHarness,
) -> None:
    await running(burst_harness)
    burst_harness.remove_pod(1)
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["create Pod mnist-worker-1"]
    burst_harness.set_phase("Running", 1)
    await burst_harness.reconcile()
    assert burst_harness.api.log == [], "the stored status says Running already"
    await reconcile_after_max_deferral(burst_harness)
    assert burst_harness.api.log == ["status Running"]
    assert [restart.cause for restart in burst_harness.api.stored().status.restart_history] == ["Deleted"]


async def test_many_jobs_reconciled_shortly_after_each_other_are_a_burst(harness: ReconcilerHarness) -> None:
    burst = harness.reconciler.status.bursts.for_namespace(KEY[0])
    await running(harness)
    for number in range(BURST_JOBS - 1):
        burst.observe_job(f"job {number}", harness.clock.monotonic())
    harness.remove_pod(1)
    await harness.reconcile()
    assert harness.api.log == ["create Pod mnist-worker-1"]


async def test_a_burst_in_another_namespace_has_no_effect(harness: ReconcilerHarness) -> None:
    """Otherwise a tenant that submits many jobs would delay the statuses of others."""
    harness.reconciler.status.record_support.confirm_write()
    for number in range(BURST_JOBS):
        harness.reconciler.status.bursts.for_namespace("of others").observe_job(
            f"job {number}", harness.clock.monotonic()
        )
    with ExitStack() as others:
        for _ in range(BURST_JOBS):
            others.enter_context(harness.reconciler.status.bursts.for_namespace("of others"))
        await harness.reconcile()
    assert harness.api.log[0] == "status Starting"


async def test_many_terminating_pods_start_a_burst(harness: ReconcilerHarness) -> None:
    await running(harness)
    memory = harness.reconciler.states[KEY]
    for number in range(BURST_JOBS):
        memory.uid = f"job {number}"
        assert harness.reconciler.on_pod_terminating(KEY, "worker", "uid-of-a-pod")
    harness.remove_pod(1)
    await harness.reconcile()
    assert harness.api.log == ["create Pod mnist-worker-1"]


async def test_many_reconciles_of_one_job_are_no_burst(harness: ReconcilerHarness) -> None:
    await running(harness)
    for _ in range(BURST_JOBS):
        await harness.reconcile()
    harness.remove_pod(1)
    await harness.reconcile()
    assert harness.api.log == ["status Restarting", "create Pod mnist-worker-1"]


async def test_in_a_burst_a_failed_pod_is_recorded_before_it_is_replaced(
    burst_harness: ReconcilerHarness,
) -> None:
    await running(burst_harness)
    burst_harness.set_phase("Failed", 1)
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Restarting", "delete Pod mnist-worker-1"]


async def test_in_a_burst_nothing_is_created_before_the_crd_is_known_to_keep_records(
    burst_harness: ReconcilerHarness,
) -> None:
    burst_harness.reconciler.on_crd_changed()
    burst_harness.api.prunes = True
    await burst_harness.reconcile()
    assert [line for line in burst_harness.api.log if line.startswith("create")] == []


async def test_a_stored_record_shows_that_the_crd_keeps_records(
    burst_harness: ReconcilerHarness,
) -> None:
    await running(burst_harness)
    burst_harness.reconciler.status.record_support.confirmed = (
        False  # as in an operator that has just been started
    )
    burst_harness.remove_pod(1)
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["create Pod mnist-worker-1"]


async def test_a_record_read_before_the_crd_changed_shows_nothing(
    burst_harness: ReconcilerHarness,
) -> None:
    await running(burst_harness)
    burst_harness.jobs._synced.set()
    burst_harness.reconciler.on_crd_changed()
    burst_harness.remove_pod(1)
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Restarting", "create Pod mnist-worker-1"]


async def running(harness: ReconcilerHarness) -> None:
    """Let its pods run, and reconcile until the status is written."""
    await harness.reconcile()
    harness.set_phase("Running", 0, 1, 2)
    await reconcile_after_max_deferral(harness)


async def reconcile_after_max_deferral(harness: ReconcilerHarness) -> None:
    harness.clock.seconds += MAX_DEFER_SECONDS
    await harness.reconcile()


async def test_a_deferred_record_is_decided_again_after_a_conflict(
    burst_harness: ReconcilerHarness,
) -> None:
    await burst_harness.reconcile()
    burst_harness.set_phase("Running", 0, 1, 2)
    burst_harness.api.error = Conflict(409, "Conflict", "")
    await reconcile_after_max_deferral(burst_harness)
    burst_harness.api.error = None
    await burst_harness.reconcile()
    assert burst_harness.api.log == ["status Running"]
    assert burst_harness.api.stored().status.start_time is not None, "the pods tell when it was"


async def test_nothing_is_remembered_of_a_finished_job(harness: ReconcilerHarness) -> None:
    await until_quiet(harness)
    harness.set_phase("Succeeded", 0, 1, 2)
    await until_quiet(harness)
    assert harness.api.stored().status.phase == "Succeeded"
    assert harness.reconciler.states == {}


async def test_events_come_after_the_write_and_once(harness: ReconcilerHarness) -> None:
    await until_quiet(harness)
    harness.set_phase("Running", 0, 1, 2)
    await until_quiet(harness)
    await harness.reconcile()
    assert [reason for reason, _ in harness.recorder.events].count("Running") == 1


async def test_nothing_is_remembered_of_a_deleted_job(harness: ReconcilerHarness) -> None:
    await harness.reconcile()
    assert harness.reconciler.states
    assert await harness.reconciler.reconcile(Key("default", "nobody")) is None


async def test_a_deletion_that_failed_is_forgotten_when_the_pod_is_gone() -> None:
    harness = ReconcilerHarness(run().role("worker", 2, restart="Never").build())
    await harness.reconcile()
    harness.set_phase("Running", 0, 1)
    await harness.reconcile()
    harness.api.delete_error = Unavailable(503, "ServiceUnavailable", "try later")
    harness.set_phase("Failed", 0)
    assert await harness.reconcile() == 0.0
    assert harness.api.stored().status.phase == "Failed"
    backoff = await harness.reconcile()
    assert backoff is not None and backoff > 0
    harness.remove_pod(1)
    harness.clock.seconds += backoff
    await until_quiet(harness)


async def test_a_change_that_leads_to_a_wait_is_followed_by_a_reconcile_at_its_end(
    harness: ReconcilerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait is found by deciding again on the new Record, which changes nothing more."""

    def decide(workload: Workload, before: Record | None, observed: Observed, now: datetime) -> Plan:
        del workload, observed
        if before is not None and before.message == "waits":
            return Plan(before, requeue_at=now + timedelta(seconds=5))
        return Plan(Record(phase_since=now, message="waits"))

    monkeypatch.setattr(reconciler, "decide", decide)
    monkeypatch.setattr(fixed_point, "decide", decide)
    assert await harness.reconcile() == 5.0
    assert harness.api.writes()
