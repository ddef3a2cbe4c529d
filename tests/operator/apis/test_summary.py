"""Tests how the CLI finds and names the pods of each kind of job."""

import pytest

from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.kinds.spot import JOB_LABEL, REPLICA_LABEL
from argosy.operator.apis.spot_summary import PODS as SPOT_PODS
from argosy.operator.apis.summary import PodLabels

PODS = PodLabels()
LONG = "x" * 64

SELECTORS = {
    "all pods of a job": (PODS.selector("a"), f"{JOB}=a"),
    "one role": (PODS.selector("a", "worker"), f"{JOB}=a,{ROLE}=worker"),
    "one index of a role": (PODS.selector("a", "worker", 0), f"{JOB}=a,{ROLE}=worker,{INDEX}=0"),
    "all replicas of a SpotInstanceJob": (SPOT_PODS.selector("a"), f"{JOB_LABEL}=a"),
    "one replica of a SpotInstanceJob": (
        SPOT_PODS.selector("a", "replica", 1),
        f"{JOB_LABEL}=a,{REPLICA_LABEL}=1",
    ),
    "a role that SpotInstanceJobs do not have: no pod": (
        SPOT_PODS.selector("a", "worker"),
        f"{JOB_LABEL}=a,!{JOB_LABEL}",
    ),
}


@pytest.mark.parametrize(("selector", "want"), SELECTORS.values(), ids=SELECTORS)
def test_pods_are_selected_by_job_role_and_index(selector: str, want: str) -> None:
    assert selector == want


def test_a_name_that_is_too_long_for_a_label_is_shortened_as_on_the_pods() -> None:
    assert len(SPOT_PODS.selector(LONG)) == len(f"{JOB_LABEL}=") + 63


def test_a_pod_is_named_after_role_and_index() -> None:
    assert PODS.replica({ROLE: "worker", INDEX: "2"}) == "worker-2"
    assert PODS.replica({ROLE: "worker", INDEX: "2"}, "sidecar") == "worker-2/sidecar"
    assert PODS.replica({}) == "?-?"
    assert SPOT_PODS.replica({REPLICA_LABEL: "1"}) == "replica-1"


def test_pods_are_sorted_by_role_and_then_by_number() -> None:
    pods = [{ROLE: "worker", INDEX: "10"}, {ROLE: "worker", INDEX: "2"}, {ROLE: "launcher", INDEX: "0"}]
    names = [PODS.replica(pod) for pod in sorted(pods, key=PODS.sort_key)]
    assert names == ["launcher-0", "worker-2", "worker-10"]
