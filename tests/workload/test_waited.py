"""How long waits took, as two Records tell it."""

from datetime import timedelta

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import waited
from argosy.workload.model import Dependency, Gang, Phase
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, role, workload

JOB = workload(replace(role("launcher"), depends_on=(Dependency("worker"),)), role("worker"))
GANG = workload(gang=Gang(3))


def record(worker: Phase, at: float = 0, launcher: Phase = Phase.STARTING, attempt: int = 1) -> Record:
    """Pods were asked for NOW; the worker entered its phase so many seconds later."""
    roles = {
        "launcher": RoleRecord(launcher, phase_since=NOW),
        "worker": RoleRecord(worker, phase_since=later(at)),
    }
    return Record(phase=Phase.STARTING, attempt_started_at=NOW, attempt=attempt, roles=roles)


class Case(Struct):
    before: Record | None
    after: Record
    want: list[float]


CASES = {
    "a role is released when the other runs": Case(
        record(Phase.STARTING), record(Phase.RUNNING, 7), want=[7.0]
    ),
    "while the other starts it waits on": Case(record(Phase.PENDING), record(Phase.STARTING, 7), want=[]),
    "a wait that is over is told once": Case(record(Phase.RUNNING, 7), record(Phase.RUNNING, 7), want=[]),
    "one that succeeded at once is as good": Case(
        record(Phase.STARTING), record(Phase.SUCCEEDED, 3), want=[3.0]
    ),
    "who runs already waits no more, whatever becomes of the other": Case(
        record(Phase.FAILED, 50, Phase.RUNNING), record(Phase.RUNNING, 60, Phase.RUNNING), want=[]
    ),
    "nothing is known of a first pass": Case(None, record(Phase.RUNNING, 7), want=[]),
    "a new attempt waits anew": Case(record(Phase.STARTING), record(Phase.RUNNING, 7, attempt=2), want=[]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_for_roles(case: Case) -> None:
    assert list(waited.for_roles(JOB, case.before, case.after)) == case.want


def test_for_gang() -> None:
    queued, let_in = (
        Record(phase_since=NOW),
        Record(phase_since=NOW, attempt_started_at=NOW + timedelta(seconds=9)),
    )
    assert waited.for_gang(GANG, queued, let_in) == 9.0
    assert waited.for_gang(GANG, None, let_in) == 0.0, "let in at once"
    assert waited.for_gang(GANG, queued, queued) is None
    assert waited.for_gang(GANG, let_in, let_in) is None, "told once"
    assert waited.for_gang(workload(), queued, let_in) is None, "there is no gang"
