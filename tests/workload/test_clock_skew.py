from datetime import timedelta

import pytest
from msgspec import Struct

from argosy.workload.clock_skew import shift_to_clock
from argosy.workload.decide import decide
from argosy.workload.model import Elastic, Gang, Limits, Phase, RestartPolicy, Ttl
from argosy.workload.notice import OpenNotice
from argosy.workload.observed import Observed
from argosy.workload.operation import Operation
from argosy.workload.plan import CreatePod, DeleteJob
from argosy.workload.record import Record, RoleRecord, WaitReason
from tests.support.workloads import NOW, later, observation, pod, pods, role, workload

HOUR = 3600
RECORD = Record(
    phase_since=later(20),
    started_at=later(0),
    attempt_started_at=later(1),
    first_running_at=later(5),
    retry_at=later(30),
    waiting=WaitReason("BackOff", "", later(20)),
    roles={
        "worker": RoleRecord(
            phase_since=later(5), retry_at=later(30), below_min_since=later(20), listed_since=later(20)
        )
    },
    operations=(Operation("a", "Out", "worker", later(0), step_since=later(20)),),
    notices=(
        OpenNotice(
            "node/u1",
            "Drained",
            "",
            "n1",
            later(0),
            later(60),
            "SaveAndMove",
            released_at=later(20),
            certain_since=later(5),
        ),
    ),
)


class Case(Struct):
    now: float
    want_moved: float


CASES = {
    "clock advances: unchanged": Case(25, 0),
    "clock of another replica is 30 s behind: unchanged": Case(-30, 0),
    "clock set back by an hour: shifted by an hour": Case(20 - HOUR, HOUR),
    "clock set back by an hour ten minutes after the last change: shifted to now": Case(
        600 - HOUR, HOUR - 580
    ),
    "clock set forward: unchanged": Case(HOUR, 0),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_all_times_are_shifted_together(case: Case) -> None:
    moved = shift_to_clock(RECORD, later(case.now))
    by = timedelta(seconds=case.want_moved)
    assert RECORD.phase_since and RECORD.started_at and RECORD.retry_at and RECORD.waiting
    assert (moved.phase_since, moved.started_at) == (RECORD.phase_since - by, RECORD.started_at - by)
    assert moved.retry_at == RECORD.retry_at - by
    assert moved.waiting and moved.waiting.since == RECORD.waiting.since - by
    worker = moved.role("worker")
    assert worker.retry_at == moved.retry_at
    assert worker.below_min_since == worker.listed_since == moved.phase_since
    [operation] = moved.operations
    assert (operation.started_at, operation.step_since) == (moved.started_at, moved.phase_since)
    [notice] = moved.notices
    assert (notice.since, notice.deadline) == (moved.started_at, later(60) - by)
    assert (notice.certain_since, notice.released_at) == (moved.first_running_at, moved.phase_since)
    assert shift_to_clock(moved, later(case.now)) == moved


def test_a_backoff_does_not_last_an_hour_longer_after_the_clock_was_set_back() -> None:
    job = workload(role(replicas=1, restart=RestartPolicy.ON_FAILURE))
    record = decide(job, None, observation(pod(0)), NOW).record
    for replacement in range(2):
        failed = observation(pod(0, "Failed", exit_code=1, replacement=replacement))
        record = decide(job, record, failed, later(1)).record
    waiting = decide(job, record, Observed(), later(2))
    assert waiting.requeue_at == later(11)
    back = decide(job, record, Observed(), later(2 - HOUR))
    assert back.requeue_at == later(2 + 10 - HOUR)
    again = decide(job, back.record, Observed(), back.requeue_at)
    assert any(isinstance(action, CreatePod) for action in again.actions)


def test_deadline_and_ttl_do_not_last_an_hour_longer_after_the_clock_was_set_back() -> None:
    limits = Limits(active_deadline=60, ttl=Ttl(failed=30))
    job = workload(role(replicas=1), limits=limits)
    record = decide(job, None, observation(pod(0)), NOW).record
    record = decide(job, record, observation(pod(0)), later(10 - HOUR)).record
    ended = decide(job, record, observation(pod(0)), later(70 - HOUR)).record
    assert (ended.phase, ended.reason) == (Phase.FAILED, "DeadlineExceeded")
    set_back = later(80 - 2 * HOUR)
    kept = decide(job, ended, Observed(), set_back)
    assert kept.requeue_at == set_back + timedelta(seconds=30)
    expired = decide(job, kept.record, Observed(), kept.requeue_at)
    assert any(isinstance(action, DeleteJob) for action in expired.actions)


FOREVER = float(2**63 - 1)
ENDLESS = {
    "active deadline beyond the calendar: never exceeded": Limits(active_deadline=FOREVER),
    "start timeout beyond the calendar: never exceeded": Limits(start_timeout=FOREVER),
    "timeout below the minimum beyond the calendar: never exceeded": Limits(below_min_timeout=FOREVER),
    "times to live beyond the calendar: never exceeded": Limits(
        ttl=Ttl(FOREVER, FOREVER), children_ttl=Ttl(FOREVER, FOREVER)
    ),
}


@pytest.mark.parametrize("limits", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_limit_beyond_the_calendar_is_never_exceeded(limits: Limits) -> None:
    job = workload(role("worker", 2, elastic=Elastic(1, 2)), limits=limits, gang=Gang(1, timeout=FOREVER))
    record = decide(job, None, observation(), NOW).record
    for letters in ("PP", "RR", "T.", "SS", "SS"):
        plan = decide(job, record, observation(*pods(letters)), NOW)
        record = plan.record
        assert not any(isinstance(action, DeleteJob) for action in plan.actions)
    assert record.phase is Phase.SUCCEEDED
