"""The pass as a whole, over caches that the test fills: what is written, in which order, and what is not."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from argosy.dialects.base import read_record
from argosy.engine.errors import ApiError, Conflict, Invalid, NotFound, Unavailable
from argosy.engine.objects import Key
from argosy.reconcile.bursts import BURST_HOLD_SECONDS, BURST_JOBS, BURST_WINDOW_SECONDS
from argosy.reconcile.status_writer import DEFER_SECONDS, MAX_DEFER_SECONDS
from argosy.workload.model import Phase
from tests.support.builders import run
from tests.support.stage import KEY, Stage, crowd_around


class LoopClock:
    """Goes with the event loop, whose time a test may make fly."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture
def stage() -> Stage:
    return Stage(run().role("worker", 3).build())


async def until_quiet(stage: Stage) -> None:
    for _ in range(10):
        wake = await stage.go()
        if not stage.api.log and wake is None:
            return
        stage.clock.seconds += wake or 0.0
    raise AssertionError("it does not come to rest")


async def test_the_record_is_written_before_anything_is_made(stage: Stage) -> None:
    await stage.go()
    assert stage.api.log[0] == "status Starting"
    assert set(stage.api.log[1:]) >= {f"create Pod mnist-worker-{index}" for index in range(3)}


@pytest.mark.parametrize(
    ("refusal", "passes", "words"),
    [
        (NotFound(404, "NotFound", ""), 3, "has no status subresource"),
        (Invalid(422, "Invalid", "status.phase: must be a number"), 1, "status.phase: must be a number"),
    ],
)
async def test_a_definition_that_takes_no_status_of_ours_is_told_by_an_event(
    stage: Stage, refusal: ApiError, passes: int, words: str
) -> None:
    stage.api.refuse = refusal
    for _ in range(passes - 1):
        assert await stage.go() == 1.0, "it may be gone, and no watch has told yet"
    assert await stage.go() == 2.0
    ((reason, message),) = stage.silent.events
    assert reason == "StatusUpdateFailed"
    assert "trainingruns.argosy.dev" in message
    assert words in message
    stage.clock.seconds += 2.1
    assert await stage.go() == 5.0, "it is tried less and less often"
    assert stage.api.log == []
    stage.api.refuse = None
    assert stage.reconciler.on_crd_changed() == [KEY]
    await stage.go()
    assert stage.api.writes() == ["status Starting"]


@pytest.mark.parametrize("refusal", [Conflict(409, "Conflict", ""), NotFound(404, "NotFound", "")])
async def test_a_refused_write_means_that_nothing_is_done(stage: Stage, refusal: ApiError) -> None:
    stage.api.refuse = refusal
    assert await stage.go() == 1.0
    assert stage.api.log == []
    assert stage.silent.events == []


async def test_a_pod_that_was_just_made_is_not_made_again_though_no_watch_has_brought_it(
    stage: Stage,
) -> None:
    await stage.go()
    await stage.go()
    assert not any(line.startswith("create") for line in stage.api.log)


async def test_a_job_that_has_come_up_is_left_alone(stage: Stage) -> None:
    await stage.go()
    stage.pods_become("Running", 0, 1, 2)
    assert await stage.go() is None, "its new phase asks for nothing by itself"
    assert stage.api.log == ["status Running"]


async def test_a_quiet_job_is_not_written(stage: Stage) -> None:
    await until_quiet(stage)
    await stage.go()
    assert stage.api.log == []


async def test_counts_wait_for_their_second_and_are_written_before_rest(stage: Stage) -> None:
    await until_quiet(stage)
    stage.clock.seconds += 5
    stage.pods_become("Running", 0)
    await stage.go()
    assert stage.api.log == ["status Starting"], "the first count after a quiet time goes out at once"
    stage.clock.seconds += 0.25
    stage.pods_become("Running", 1)
    assert await stage.go() == pytest.approx(0.75)
    assert stage.api.log == []
    stage.clock.seconds += 0.75
    await stage.go()
    assert stage.api.log == ["status Starting"]
    assert stage.api.stored().status.workers == "2/3"
    stage.clock.seconds += 0.1
    stage.pods_become("Running", 2)
    await stage.go()
    assert stage.api.log == ["status Running"], "a phase does not wait"


async def test_the_second_counts_from_the_end_of_the_last_write_however_long_it_took(stage: Stage) -> None:
    await until_quiet(stage)
    stage.api.takes = 30.0
    stage.clock.seconds += 5
    stage.pods_become("Running", 0)
    await stage.go()
    assert stage.api.log == ["status Starting"]
    stage.pods_become("Running", 1)
    assert await stage.go() == pytest.approx(1.0)


async def test_pods_that_are_asked_for_are_told_with_the_first_write(stage: Stage) -> None:
    await stage.go()
    told = stage.api.stored().status
    assert (told.attempt, told.replicas, told.roles["worker"].pending) == (1, 3, 3)
    stage.clock.seconds += 5
    await stage.go()
    assert stage.api.log == [], "there is nothing more to tell"


async def test_pods_that_were_refused_are_not_told_of(stage: Stage) -> None:
    stage.api.quota = 1
    await stage.go()
    await stage.go()
    assert stage.api.log == ["status Starting"]
    told = stage.api.stored().status
    assert (told.reason, told.attempt) == ("PodForbidden", 1)
    assert (told.replicas, told.roles["worker"].pending) == (1, 1)


@pytest.mark.looptime
async def test_eight_pods_that_come_up_take_two_writes_and_few_passes() -> None:
    stage = Stage(run().role("worker", 8).build(), clock=LoopClock())
    async with stage.working():
        await asyncio.sleep(3)
        for index in range(8):
            stage.pods_become("Running", index)
            await asyncio.sleep(0.1)
        await asyncio.sleep(20)
    assert stage.api.writes() == ["status Starting", "status Running"]
    assert stage.passes == 2


@pytest.mark.looptime
async def test_a_job_that_comes_up_slowly_is_written_once_a_second() -> None:
    stage = Stage(run().role("worker", 101).build(), clock=LoopClock())
    async with stage.working():
        await asyncio.sleep(3)
        for index in range(100):
            stage.pods_become("Running", index)
            await asyncio.sleep(0.05)
        await asyncio.sleep(2)
    assert stage.api.stored().status.workers == "100/101"
    assert 4 <= len(stage.api.writes()) <= 6, "the first, and at most one in each of five seconds"
    assert stage.passes <= 8


async def test_a_record_that_does_not_come_back_stops_everything(stage: Stage) -> None:
    stage.api.prunes = True
    wake = await stage.go()
    assert wake is not None
    assert wake > 1
    assert [line for line in stage.api.log if line.startswith("create")] == []
    assert "trainingruns.argosy.dev" in stage.api.stored().status.message
    await stage.go()
    assert stage.api.log == [], "it does not write again and again"


async def test_a_scheduler_that_counts_nodes_in_its_message_causes_few_status_writes(stage: Stage) -> None:
    await stage.go()
    await stage.go()
    writes: list[str] = []
    for nodes in range(50):
        stage.cannot_be_scheduled(0, f"0/{nodes} nodes are available: {nodes} Insufficient nvidia.com/gpu.")
        await stage.go()
        writes += stage.api.writes()
        stage.clock.seconds += 0.4
    assert len(writes) <= 3, "the reason at once, and other words for it every ten seconds"
    wake = await stage.go()
    assert wake is not None
    stage.clock.seconds += wake
    await stage.go()
    assert stage.api.writes() == ["status Starting"]
    assert "0/49 nodes are available" in stage.api.stored().status.message, "the last words are told"


@pytest.fixture
def crowded(stage: Stage) -> Iterator[Stage]:
    """The job among many that are worked on, under a definition that is known to keep Records."""
    stage.reconciler.status.record_support.confirm_write()
    with crowd_around(stage):
        yield stage


async def test_in_a_crowd_pods_are_made_first_and_told_of_when_they_run(crowded: Stage) -> None:
    assert await crowded.go() == pytest.approx(DEFER_SECONDS)
    assert crowded.api.writes() == []
    assert {f"create Pod mnist-worker-{index}" for index in range(3)} <= set(crowded.api.log)
    crowded.pods_become("Running", 0)
    crowded.clock.seconds += 1
    await crowded.go()
    assert crowded.api.log == [], "one that runs while others come up is not worth a write yet"
    crowded.pods_become("Running", 1, 2)
    wake = await crowded.go()
    assert crowded.api.log == [], "others still wait for their pods"
    assert wake == pytest.approx(DEFER_SECONDS - 1)
    crowded.clock.seconds += wake or 0.0
    wake = await crowded.go()
    assert crowded.api.log == [], "they still do"
    assert wake == pytest.approx(MAX_DEFER_SECONDS - DEFER_SECONDS)
    crowded.clock.seconds += wake or 0.0
    await crowded.go()
    assert crowded.api.log == ["status Running"]


async def test_in_a_burst_a_phase_that_others_wait_for_is_written_at_once() -> None:
    stage = Stage(run().role("worker", 3).role("late", 1, dependsOn=[{"role": "worker"}]).build())
    stage.reconciler.status.record_support.confirm_write()
    with crowd_around(stage):
        await stage.go()
        assert stage.api.writes() == [], "nobody waits for a role to start"
        stage.pods_become("Running", 0, 1)
        await stage.go()
        assert stage.api.writes() == [], "the role does not run yet"
        stage.pods_become("Running", 2)
        await stage.go()
        assert stage.api.writes() == ["status Starting"]
        record = read_record(stage.api.stored())
        assert record is not None
        assert (record.role("worker").phase, record.role("late").phase) == (Phase.RUNNING, Phase.STARTING)


async def test_a_job_that_came_in_a_crowd_is_told_of_soon_after_it_is_gone(stage: Stage) -> None:
    stage.reconciler.status.record_support.confirm_write()
    with crowd_around(stage):
        wake = await stage.go()
    assert wake == pytest.approx(DEFER_SECONDS)
    stage.clock.seconds += wake or 0.0
    await stage.go()
    assert stage.api.log == ["status Starting"]


async def test_while_the_crowd_lasts_a_job_waits_twice_as_long_and_no_longer(crowded: Stage) -> None:
    crowded.clock.seconds += await crowded.go() or 0.0
    wake = await crowded.go()
    assert crowded.api.log == []
    assert wake == pytest.approx(MAX_DEFER_SECONDS - DEFER_SECONDS)
    crowded.clock.seconds += wake or 0.0
    await crowded.go()
    assert crowded.api.log == ["status Starting"]


async def test_when_the_crowd_is_gone_a_job_that_runs_is_told_of_at_once(stage: Stage) -> None:
    stage.reconciler.status.record_support.confirm_write()
    with crowd_around(stage):
        await stage.go()
    stage.clock.seconds += BURST_HOLD_SECONDS
    stage.pods_become("Running", 0, 1, 2)
    await stage.go()
    assert stage.api.log == ["status Running"]


async def test_a_crowd_that_pauses_for_a_moment_is_still_one(stage: Stage) -> None:
    stage.reconciler.status.record_support.confirm_write()
    with crowd_around(stage):
        await stage.go()
    stage.clock.seconds += 5 * BURST_WINDOW_SECONDS
    stage.pods_become("Running", 0, 1, 2)
    stage.api.log.clear()
    await stage.go()
    assert stage.api.log == []


async def test_in_a_crowd_pods_that_do_not_come_up_are_told_of_after_a_while(crowded: Stage) -> None:
    await crowded.go()
    await go_when_told_at_last(crowded)
    assert crowded.api.log == ["status Starting"]
    crowded.pods_become("Running", 0, 1, 2)
    await crowded.go()
    assert crowded.api.log == ["status Running"], "somebody has seen it start, and waits for this"
    await until_quiet(crowded)


async def test_job_that_ends_while_running_is_deferred_is_written_as_running_first(crowded: Stage) -> None:
    await crowded.go()
    crowded.pods_become("Running", 0, 1, 2)
    await crowded.go()
    crowded.pods_become("Succeeded", 0, 1, 2)
    crowded.api.log.clear()
    await crowded.go()
    assert crowded.api.writes() == ["status Running", "status Succeeded"]
    assert [reason for reason, _ in crowded.silent.events] == ["Running", "Succeeded"], "each once"


async def test_a_pod_that_is_done_is_told_of_at_once_though_others_still_come_up(crowded: Stage) -> None:
    """Nothing else would remember it once the pod is gone, and it would run again."""
    await crowded.go()
    crowded.pods_become("Running", 1)
    crowded.pods_become("Succeeded", 0)
    crowded.api.log.clear()
    await crowded.go()
    assert crowded.api.log == ["status Starting"]
    record = read_record(crowded.api.stored())
    assert record is not None
    assert record.role("worker").succeeded_indexes == {0: 1}


async def test_who_comes_while_the_first_record_is_written_waits_for_it(stage: Stage) -> None:
    proof = stage.reconciler.status.record_support
    with proof.first_write():
        ours = asyncio.create_task(stage.go())
        await asyncio.sleep(0.01)
        assert stage.api.log == []
        proof.confirm_write()
    with crowd_around(stage):
        await ours
    assert stage.api.writes() == []
    assert "create Pod mnist-worker-0" in stage.api.log


async def test_in_a_crowd_a_refusal_is_told_at_once(crowded: Stage) -> None:
    crowded.api.quota = 1
    assert await crowded.go() == 0.0
    assert crowded.api.writes() == []
    await crowded.go()
    assert crowded.api.writes() == ["status Starting"]
    assert "exceeded quota" in crowded.api.stored().status.message


async def test_in_a_crowd_a_deleted_pod_is_replaced_before_it_is_told_of(crowded: Stage) -> None:
    await running(crowded)
    crowded.pod_goes(1)
    await crowded.go()
    assert crowded.api.log == ["create Pod mnist-worker-1"]
    crowded.pods_become("Running", 1)
    await crowded.go()
    assert crowded.api.log == [], "it was told to run, and it does"
    await go_when_told_at_last(crowded)
    assert crowded.api.log == ["status Running"]
    assert [one.cause for one in crowded.api.stored().status.restart_history] == ["Deleted"]


async def test_passes_that_follow_each_other_at_once_are_a_crowd_too(stage: Stage) -> None:
    crowd = stage.reconciler.status.bursts.for_namespace(KEY[0])
    await running(stage)
    for number in range(BURST_JOBS - 1):
        crowd.observe_job(f"job {number}", stage.clock.monotonic())
    stage.pod_goes(1)
    await stage.go()
    assert stage.api.log == ["create Pod mnist-worker-1"]


async def test_a_crowd_in_another_namespace_is_none_here(stage: Stage) -> None:
    """Else a tenant who submits many jobs would make others wait for their statuses."""
    stage.reconciler.status.record_support.confirm_write()
    for number in range(BURST_JOBS):
        stage.reconciler.status.bursts.for_namespace("of others").observe_job(
            f"job {number}", stage.clock.monotonic()
        )
    with ExitStack() as others:
        for _ in range(BURST_JOBS):
            others.enter_context(stage.reconciler.status.bursts.for_namespace("of others"))
        await stage.go()
    assert stage.api.log[0] == "status Starting"


async def test_pods_on_their_way_out_announce_a_crowd(stage: Stage) -> None:
    await running(stage)
    memory = stage.reconciler.states[KEY]
    for number in range(BURST_JOBS):
        memory.uid = f"job {number}"
        assert stage.reconciler.on_pod_terminating(KEY, "worker")
    stage.pod_goes(1)
    await stage.go()
    assert stage.api.log == ["create Pod mnist-worker-1"]


async def test_many_passes_over_one_job_are_no_crowd(stage: Stage) -> None:
    await running(stage)
    for _ in range(BURST_JOBS):
        await stage.go()
    stage.pod_goes(1)
    await stage.go()
    assert stage.api.log == ["status Restarting", "create Pod mnist-worker-1"]


async def test_in_a_crowd_a_failed_pod_is_counted_before_it_is_replaced(crowded: Stage) -> None:
    await running(crowded)
    crowded.pods_become("Failed", 1)
    await crowded.go()
    assert crowded.api.log == ["status Restarting", "delete Pod mnist-worker-1"]


async def test_a_crowd_under_an_unknown_definition_makes_nothing_before_a_record_came_back(
    crowded: Stage,
) -> None:
    crowded.reconciler.on_crd_changed()
    crowded.api.prunes = True
    await crowded.go()
    assert [line for line in crowded.api.log if line.startswith("create")] == []


async def test_a_record_that_was_read_proves_that_the_definition_keeps_records(crowded: Stage) -> None:
    await running(crowded)
    crowded.reconciler.status.record_support.confirmed = False  # as in an operator that has just been started
    crowded.pod_goes(1)
    await crowded.go()
    assert crowded.api.log == ["create Pod mnist-worker-1"]


async def test_a_record_that_was_read_before_the_definition_changed_proves_nothing(crowded: Stage) -> None:
    await running(crowded)
    crowded.jobs._synced.set()
    crowded.reconciler.on_crd_changed()
    crowded.pod_goes(1)
    await crowded.go()
    assert crowded.api.log == ["status Restarting", "create Pod mnist-worker-1"]


async def running(stage: Stage) -> None:
    """Its pods run, and it was told so."""
    await stage.go()
    stage.pods_become("Running", 0, 1, 2)
    await go_when_told_at_last(stage)


async def go_when_told_at_last(stage: Stage) -> None:
    stage.clock.seconds += MAX_DEFER_SECONDS
    await stage.go()


async def test_a_record_that_was_not_written_is_decided_anew_after_a_conflict(crowded: Stage) -> None:
    await crowded.go()
    crowded.pods_become("Running", 0, 1, 2)
    crowded.api.refuse = Conflict(409, "Conflict", "")
    await go_when_told_at_last(crowded)
    crowded.api.refuse = None
    await crowded.go()
    assert crowded.api.log == ["status Running"]
    assert crowded.api.stored().status.start_time is not None, "the pods tell when it was"


async def test_a_finished_job_leaves_nothing_behind(stage: Stage) -> None:
    await until_quiet(stage)
    stage.pods_become("Succeeded", 0, 1, 2)
    await until_quiet(stage)
    assert stage.api.stored().status.phase == "Succeeded"
    assert stage.reconciler.states == {}


async def test_events_come_after_the_write_and_once(stage: Stage) -> None:
    await until_quiet(stage)
    stage.pods_become("Running", 0, 1, 2)
    await until_quiet(stage)
    await stage.go()
    assert [reason for reason, _ in stage.silent.events].count("Running") == 1


async def test_a_job_that_is_gone_is_forgotten(stage: Stage) -> None:
    await stage.go()
    assert stage.reconciler.states
    assert await stage.reconciler.reconcile(Key("default", "nobody")) is None


async def test_a_deletion_that_failed_is_forgotten_when_the_pod_is_gone() -> None:
    stage = Stage(run().role("worker", 2, restart="Never").build())
    await stage.go()
    stage.pods_become("Running", 0, 1)
    await stage.go()
    stage.api.delete_error = Unavailable(503, "ServiceUnavailable", "try later")
    stage.pods_become("Failed", 0)
    assert await stage.go() == 0.0
    assert stage.api.stored().status.phase == "Failed"
    backoff = await stage.go()
    assert backoff is not None and backoff > 0
    stage.pod_goes(1)
    stage.clock.seconds += backoff
    await until_quiet(stage)
