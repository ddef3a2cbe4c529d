import pytest
from msgspec.structs import replace

from argosy.testing.workloads import pod
from argosy.workload import words
from argosy.workload.observed import ObservedPod

FATES = {
    "worker-2 was killed (SIGKILL, exit 137) on node-3": pod(2, "Failed", exit_code=137, node="node-3"),
    "worker-2 failed (exit 1)": pod(2, "Failed", exit_code=1),
    "worker-2 failed (no exit code)": pod(2, "Failed"),
    "worker-2 is being deleted on node-3": pod(2, terminating=True, node="node-3"),
    "worker-2 was taken away by the cluster (Evicted) on node-3: low memory": replace(
        pod(2, "Failed", disrupted=True, node="node-3"), reason="Evicted", message="low memory"
    ),
}


@pytest.mark.parametrize(("want", "one"), FATES.items())
def test_fate(want: str, one: ObservedPod) -> None:
    assert words.fate(one) == want


LISTS = {
    "": [],
    "a": ["a"],
    "a and b": ["a", "b"],
    "a, b and c": ["a", "b", "c"],
    "a, b, c and 2 more": ["a", "b", "c", "d", "e"],
}


@pytest.mark.parametrize(("want", "names"), LISTS.items())
def test_listed(want: str, names: list[str]) -> None:
    assert words.listed(names) == want
