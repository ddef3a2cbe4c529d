import pytest
from msgspec import Struct

from argosy.workload import limits
from argosy.workload.model import Limits, Phase
from argosy.workload.observed import Observed
from argosy.workload.record import Record
from tests.support.workloads import NOW, later, workload


class Case(Struct):
    limits: Limits
    seconds: float
    phase: Phase = Phase.RUNNING
    started: bool = True
    want: str = ""
    want_next: float | None = None


TWO_HOURS = Limits(active_deadline=7200)
QUICK = Limits(start_timeout=60)

CASES = {
    "no limits: never exceeded": Case(Limits(), 1e6),
    "before the active deadline: when it will be": Case(TWO_HOURS, 7199, want_next=7200),
    "at the active deadline: DeadlineExceeded": Case(TWO_HOURS, 7200, want="DeadlineExceeded"),
    "clock set back before the start: the deadline stays": Case(TWO_HOURS, -500, want_next=7200),
    "job not started: no deadline": Case(TWO_HOURS, 9999, started=False),
    "before the start timeout: when it will be": Case(QUICK, 59, Phase.STARTING, want_next=60),
    "starting at the start timeout: StartTimeout": Case(QUICK, 60, Phase.STARTING, want="StartTimeout"),
    "running job: no start timeout": Case(QUICK, 600, Phase.RUNNING),
    "restarting at the start timeout: StartTimeout": Case(QUICK, 60, Phase.RESTARTING, want="StartTimeout"),
    "two limits: the earlier is next": Case(
        Limits(active_deadline=100, start_timeout=60), 5, Phase.STARTING, want_next=60
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_job_fails_at_its_time_limits(case: Case) -> None:
    began = NOW if case.started else None
    record = Record(phase_since=NOW, phase=case.phase, started_at=began, attempt_started_at=began)
    check = limits.check_limits(workload(limits=case.limits), record, Observed(), later(case.seconds))
    assert (check.result.reason if check.result else "") == case.want
    assert check.next_at == (None if case.want_next is None else later(case.want_next))


def test_the_message_names_the_field_and_its_value() -> None:
    record = Record(phase_since=NOW, started_at=NOW)
    ending = limits.check_limits(workload(limits=TWO_HOURS), record, Observed(), later(7200)).result
    assert ending and ending.message == "still active after 2 h (limits.activeDeadline)"
