"""Tests which pods are drained before their announced end, and by when."""

import pytest
from msgspec.structs import replace

from argosy.workload.announcements import NoticeCause
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, Workload
from argosy.workload.notice import NoticeResponse, OpenNotice
from argosy.workload.observed import ObservedPod
from argosy.workload.operation import Operation
from argosy.workload.record import Record
from argosy.workload.release import can_release, request_of, with_substitutes
from tests.support.et_simulator import running_job, worker
from tests.support.workloads import NOW, later, observation

JOB = running_job()
RECORD = JOB.record
W1 = JOB.pods[worker(1)]
LAUNCHER = JOB.pods["elastic-training-launcher"]


def workload() -> Workload:
    found = JOB.plan().workload
    assert found is not None
    return found


def starting() -> Record:
    return RECORD.with_role("launcher", replace(RECORD.role("launcher"), phase=Phase.STARTING))


CASES: dict[str, tuple[Record, NoticeCause, ObservedPod, bool]] = {
    "worker of a running launcher: drained": (RECORD, NoticeCause.PREEMPTED, W1, True),
    "launcher does not run yet: not drained": (starting(), NoticeCause.PREEMPTED, W1, False),
    "launcher itself: not drained": (RECORD, NoticeCause.PREEMPTED, LAUNCHER, False),
    "pod terminates already: not drained": (
        RECORD,
        NoticeCause.EVICTED,
        replace(W1, terminating=True),
        False,
    ),
    "node is off already: not drained": (RECORD, NoticeCause.OUT_OF_SERVICE, W1, False),
    "worker that is no member: not drained": (RECORD, NoticeCause.DRAINED, replace(W1, index=7), False),
}


@pytest.mark.parametrize(("record", "cause", "pod", "want"), CASES.values(), ids=CASES.keys())
def test_which_pods_are_drained(record: Record, cause: NoticeCause, pod: ObservedPod, want: bool) -> None:
    assert can_release(workload(), record, cause, pod) is want


def test_time_is_divided_between_replacements_draining_and_the_end_of_pods() -> None:
    notice = OpenNotice(
        id="node/n",
        cause="Preempted",
        source="cloud",
        node="n",
        since=NOW,
        deadline=later(115),
        response=NoticeResponse.SCALE_IN,
    )
    operation = Operation("notice/node/n", "In", "worker", NOW, indexes="1")
    request = request_of(operation, replace(RECORD, notices=(notice,)))
    assert request.deadline == later(100)
    assert request.min_hosts_until == later(50)
    assert request.shown == IndexSet.of((1,))


def test_release_whose_notice_is_forgotten_waits_for_nothing() -> None:
    operation = Operation("notice/node/n", "In", "worker", NOW, indexes="1")
    request = request_of(operation, RECORD)
    assert request.deadline is not None
    assert request.deadline <= NOW


def test_substitutes_have_indexes_that_nothing_uses() -> None:
    rule = workload().rules.host_list
    assert rule is not None
    there = observation(W1, replace(W1, name="old", index=2, terminating=True))
    record = with_substitutes(rule, RECORD, there, IndexSet.of((1,)))
    assert record.role("worker").members == IndexSet.of((0, 1, 3))
