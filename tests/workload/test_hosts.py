"""Tests how host lists reach the launcher: acknowledged by its sidecar, or else written by a command."""

from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.plan.actions import Exec, ExecResult, ExecStatus
from argosy.workload import reasons
from argosy.workload.hosts import CHECK_RETRY_SECONDS
from argosy.workload.index_set import EMPTY, IndexSet
from argosy.workload.model import RestartPolicy, Workload
from argosy.workload.record import RoleRecord
from argosy.workload.scale_request import ScaleRequest
from tests.support.scale_simulator import ScaleSimulator, done, elastic_job, names, running
from tests.support.workloads import NOW, later

LAUNCHER = "job-launcher-0"


def is_write(call: Exec) -> bool:
    """Return True for a command that writes the files of the launcher."""
    return call.key.startswith("hosts/")


def writes(job: ScaleSimulator) -> list[Exec]:
    return [call for call in job.calls if is_write(call)]


def fail_writes(call: Exec) -> ExecResult:
    return done(call, exit_code=1 if is_write(call) else 0)


def without_sidecar(answer: Callable[[Exec], ExecResult | None] = done) -> ScaleSimulator:
    """A job that runs with three workers, and whose sidecar stops when the list changes next."""
    job = running(elastic_job(3), answer)
    job.run(10)
    job.acknowledges = False
    return job


def lose_worker(job: ScaleSimulator, index: int = 2) -> datetime:
    """Lose a worker, and return when the list without it was recorded."""
    job.fail(f"job-worker-{index}")
    job.reconcile()
    assert index not in job.listed()
    return job.now


def write_times(job: ScaleSimulator, since: datetime, seconds: int) -> list[float]:
    """Return after how many seconds each command was started that wrote files."""
    times: list[float] = []
    for _ in range(seconds * 2):
        before = len(writes(job))
        job.run(1, 0.5)
        started = job.now - timedelta(seconds=0.5) - since
        times += [started.total_seconds()] * (len(writes(job)) - before)
    return times


def test_no_command_writes_a_list_that_is_acknowledged() -> None:
    job = running(elastic_job(3, restart=RestartPolicy.ON_FAILURE))
    lose_worker(job)
    job.run(60, 0.5)
    assert job.listed() == (0, 1, 3)
    assert writes(job) == []


def test_a_list_that_is_not_acknowledged_within_two_seconds_is_written_once() -> None:
    job = without_sidecar()
    changed_at = lose_worker(job)
    assert write_times(job, changed_at, 120) == [2.0]
    [call] = writes(job)
    assert (call.pod, call.uid, call.container) == (LAUNCHER, job.pods[LAUNCHER].uid, "main")
    assert b"'job-worker-0:1\njob-worker-1:1\n'" in call.stdin
    assert b"'job-worker-0 slots=1\njob-worker-1 slots=1\n'" in call.stdin
    assert b"kubexec" not in call.stdin


def test_the_next_list_is_written_again() -> None:
    job = without_sidecar()
    lose_worker(job, 2)
    job.run(10)
    changed_at = lose_worker(job, 1)
    assert write_times(job, changed_at, 20) == [2.0]
    assert [b"job-worker-1" in call.stdin for call in writes(job)] == [True, False]


@pytest.mark.parametrize(("in_burst", "seconds"), [(False, 2.0), (True, 4.0)])
def test_the_sidecar_has_more_time_while_many_jobs_change(in_burst: bool, seconds: float) -> None:
    job = without_sidecar()
    job.in_burst = in_burst
    since = lose_worker(job)
    assert write_times(job, since, 6) == [seconds]


def test_an_acknowledgement_of_an_earlier_list_does_not_count() -> None:
    job = without_sidecar()
    assert job.pods[LAUNCHER].hosts_ack
    assert write_times(job, lose_worker(job), 10) == [2.0]


def test_a_new_launcher_has_two_seconds_from_its_start() -> None:
    job = without_sidecar()
    job.run(100)
    job.pods[LAUNCHER] = replace(job.pods[LAUNCHER], uid="uid-new", hosts_ack="", created=job.now)
    assert write_times(job, job.now, 20) == [2.0]
    assert writes(job)[-1].uid == "uid-new"


def test_commands_that_fail_are_repeated_ever_more_rarely_and_reported_once() -> None:
    job = without_sidecar(fail_writes)
    changed_at = lose_worker(job)
    assert write_times(job, changed_at, 200) == [2.0, 7.0, 17.0, 37.0, 77.0, 137.0, 197.0]
    entries = [entry for entry in job.record.history if entry.reason == reasons.HOST_LIST_NOT_WRITTEN]
    assert [(entry.at - changed_at).total_seconds() for entry in entries] == [7.0]
    assert entries[0].message == (
        "the list of 2 hosts was not written into pod job-launcher-0 in time; trying again"
    )


def test_a_launcher_that_cannot_be_reached_is_tried_again_until_it_can() -> None:
    statuses = [ExecStatus.NOT_REACHABLE, ExecStatus.TIMED_OUT]

    def answer(call: Exec) -> ExecResult:
        failed = is_write(call) and statuses
        return ExecResult(call.key, statuses.pop(0)) if failed else done(call)

    job = without_sidecar(answer)
    assert write_times(job, lose_worker(job), 100) == [2.0, 7.0, 17.0]


def test_commands_stop_when_the_sidecar_answers() -> None:
    job = without_sidecar(fail_writes)
    changed_at = lose_worker(job)
    job.run(12, 0.5)
    job.acknowledge()
    assert write_times(job, changed_at, 100) == []
    assert "hosts" not in names(call for call in job.reconcile().actions if isinstance(call, Exec))


def test_slots_that_change_make_a_new_version_of_the_same_list() -> None:
    job = running()
    job.run(10)
    before = job.record.role("worker")
    worker = replace(job.job.roles["worker"], slots=4)
    job.job = replace(job.job, roles={**job.job.roles, "worker": worker})
    job.reconcile()
    after = job.record.role("worker")
    assert (after.listed, after.listed_since) == (before.listed, job.now)
    assert after.listed_version > before.listed_version
    assert after.listed_digest != before.listed_digest
    job.run(20)
    assert writes(job) == []


VERSIONS = {
    "later: the time in microseconds": (later(60), int(later(60).timestamp() * 1_000_000)),
    "at the same time: one more": (NOW, int(NOW.timestamp() * 1_000_000) + 1),
    "clock set back: one more": (later(-3600), int(NOW.timestamp() * 1_000_000) + 1),
}


@pytest.mark.parametrize(("now", "want"), VERSIONS.values(), ids=VERSIONS)
def test_the_version_of_a_list_always_increases(now: datetime, want: int) -> None:
    first = RoleRecord().with_listed(IndexSet.first(2), NOW)
    assert first.with_listed(IndexSet.first(1), now).listed_version == want


def test_a_lost_record_lists_all_running_workers_again_in_one_step() -> None:
    job = running(elastic_job(3))
    version = job.record.role("worker").listed_version
    job.answer = lambda call: done(call) if call.pod == "job-worker-0" else None
    job.stored, job.results, job.host_lists = None, {}, []
    job.run(10)
    assert job.host_lists == [(0, 1, 2)]
    assert job.record.role("worker").listed_version > version


def scale_in(index: int) -> ScaleRequest:
    chosen = IndexSet.of([index])
    return ScaleRequest("uid-in", "In", "in", NOW, lambda _state: chosen, timeout=600.0)


class Drain:
    """The scale-in of one worker, and when its steps happened, in seconds after the list was changed."""

    def __init__(self, job: ScaleSimulator) -> None:
        job.request(scale_in(2))
        while job.listed() == (0, 1, 2):
            job.run(1, 0.5)
        since = job.record.role("worker").listed_since
        assert since is not None
        self.started: dict[str, float] = {}
        known = len(job.calls)
        for _ in range(30):
            job.run(1, 0.5)
            at = (job.now - timedelta(seconds=0.5) - since).total_seconds()
            for name in names(job.calls[known:]):
                self.started.setdefault(name, at)
            known = len(job.calls)
        assert job.workers() == [0, 1]


def test_a_drain_is_checked_as_soon_as_the_list_is_acknowledged() -> None:
    job = running(elastic_job(3))
    job.run(10)
    assert Drain(job).started == {"drain": 0.5}


def test_a_drain_is_checked_once_a_command_has_written_the_list() -> None:
    started = Drain(without_sidecar()).started
    assert started == {"hosts": 2.0, "drain": 3.0}


def test_a_drain_waits_no_longer_than_for_the_first_command() -> None:
    started = Drain(without_sidecar(fail_writes)).started
    assert started == {"hosts": 2.0, "drain": 7.0}


def test_without_a_drain_check_a_worker_is_deleted_once_the_list_is_acknowledged() -> None:
    job = without_commands(elastic_job(3))
    job.run(10)
    job.acknowledges = False
    job.request(scale_in(2))
    while job.listed() == (0, 1, 2):
        job.run(1, 0.5)
    job.run(2, 0.5)
    assert job.workers() == [0, 1, 2]
    job.acknowledge()
    job.run(3, 0.5)
    assert (job.workers(), job.calls) == ([0, 1], [])


def test_a_worker_that_cannot_be_attached_is_checked_until_it_can() -> None:
    """Each reconcile asks for the next one: nothing else wakes the job."""
    failing = {"job-worker-1"}
    job = ScaleSimulator(elastic_job(2), lambda call: done(call, exit_code=int(call.pod in failing)))
    job.run(3)
    for _ in range(6):
        assert job.reconcile().requeue_at == job.now + timedelta(seconds=CHECK_RETRY_SECONDS)
    checks = [call for call in job.calls if call.pod == "job-worker-1"]
    assert len(checks) > 2
    failing.clear()
    job.run(3)
    assert job.listed() == (0, 1)


def test_without_an_attach_check_workers_are_listed_when_they_run() -> None:
    job = without_commands(elastic_job(2))
    job.pending = {"job-worker-1"}
    job.run(5)
    assert (job.listed(), LAUNCHER in job.pods) == ((0,), False)
    job.pending = set()
    job.run(5)
    assert (job.listed(), LAUNCHER in job.pods, job.calls) == ((0, 1), True, [])


def without_commands(job: Workload) -> ScaleSimulator:
    """A job whose workers and launcher are not asked anything."""
    rule = job.rules.host_list
    assert rule is not None
    unchecked = replace(rule, attach_check=(), drain_check=())
    return ScaleSimulator(replace(job, rules=replace(job.rules, host_list=unchecked)))


def run_without_sidecar(stop_at: int | None) -> ScaleSimulator:
    job = without_sidecar()
    job.steps, job.stop_at = 0, stop_at
    job.request(scale_in(2))
    job.run(60, 0.5)
    return job


STEPS = run_without_sidecar(None).steps


@pytest.mark.parametrize("stop_at", range(1, STEPS + 1))
def test_an_operator_killed_at_any_step_writes_the_files_in_the_end(stop_at: int) -> None:
    job = run_without_sidecar(stop_at)
    assert (job.listed(), job.workers()) == ((0, 1), [0, 1])
    last = job.record.role("worker")
    assert last.listed_by_exec == f"{job.pods[LAUNCHER].uid}/{last.listed_etag}"
    assert 1 <= len(writes(job)) <= 2
    assert len({call.stdin for call in writes(job)}) == 1
    assert last.draining == EMPTY
