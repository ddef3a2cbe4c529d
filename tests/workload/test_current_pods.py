"""Tests that current pods are the same whether read one by one or by role."""

import pytest
from msgspec.structs import replace

from argosy.workload.current_pods import all_current_pods, current_pods, is_current, stale_pods
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from tests.support.workloads import pod, role_record

RECORD = Record(
    attempt=2, roles={"worker": role_record(size=3, replacements={1: 1}), "launcher": role_record(size=1)}
)

CASES = {
    "current attempt: current": (pod(0, attempt=2), True),
    "earlier attempt: stale": (pod(0, attempt=1), False),
    "pod that was replaced: stale": (pod(1, attempt=2), False),
    "replacement of a pod: current": (replace(pod(1, attempt=2), replacement=1), True),
    "index beyond the size: stale": (pod(3, attempt=2), False),
    "other role of the job: current": (replace(pod(0, attempt=2), role="launcher"), True),
    "unknown role: stale": (replace(pod(0, attempt=2), role="gone"), False),
}


@pytest.mark.parametrize(("candidate", "want"), CASES.values(), ids=CASES.keys())
def test_current_pods_match_the_record(candidate: ObservedPod, want: bool) -> None:
    observed = Observed(pods=(candidate,))
    assert is_current(RECORD, candidate) is want
    assert (candidate in current_pods(RECORD, candidate.role, observed)) is want
    assert (candidate in stale_pods(RECORD, observed)) is not want


def test_every_pod_is_current_or_stale() -> None:
    observed = Observed(pods=tuple(candidate for candidate, _ in CASES.values()))
    current, stale = all_current_pods(RECORD, observed), stale_pods(RECORD, observed)
    assert len(current) + len(stale) == len(observed.pods)
    assert [candidate for candidate in observed.pods if is_current(RECORD, candidate)] == [
        candidate for candidate in observed.pods if candidate in current
    ]
