"""Which pods are in their places: asked one by one and for whole roles, with the same answer."""

import pytest
from msgspec.structs import replace

from argosy.workload.current_pods import all_current_pods, current_pods, is_current, stale_pods
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import pod

RECORD = Record(
    attempt=2, roles={"worker": RoleRecord(size=3, replacements={1: 1}), "launcher": RoleRecord(size=1)}
)

CASES = {
    "the pod of its place": (pod(0, attempt=2), True),
    "one of an older attempt": (pod(0, attempt=1), False),
    "one that was replaced": (pod(1, attempt=2), False),
    "the one that replaced it": (replace(pod(1, attempt=2), replacement=1), True),
    "one too many": (pod(3, attempt=2), False),
    "one of another role": (replace(pod(0, attempt=2), role="launcher"), True),
    "one of a role that is not there": (replace(pod(0, attempt=2), role="gone"), False),
}


@pytest.mark.parametrize(("one", "want"), CASES.values(), ids=CASES.keys())
def test_a_pod_is_in_its_place_or_a_stranger(one: ObservedPod, want: bool) -> None:
    seen = Observed(pods=(one,))
    assert is_current(RECORD, one) is want
    assert (one in current_pods(RECORD, one.role, seen)) is want
    assert (one in stale_pods(RECORD, seen)) is not want


def test_every_pod_is_one_or_the_other() -> None:
    seen = Observed(pods=tuple(one for one, _ in CASES.values()))
    there, not_there = all_current_pods(RECORD, seen), stale_pods(RECORD, seen)
    assert len(there) + len(not_there) == len(seen.pods)
    assert [one for one in seen.pods if is_current(RECORD, one)] == [one for one in seen.pods if one in there]
