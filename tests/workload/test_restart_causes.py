"""Every way to lose a pod has a cause of its own."""

import pytest
from msgspec.structs import replace

from argosy.workload.observed import ObservedPod
from argosy.workload.restart_causes import Why, why
from tests.support.workloads import pod

CAUSES: dict[str, tuple[ObservedPod, Why]] = {
    "a program that gave up": (pod(0, "Failed", exit_code=1), Why.EXIT),
    "a code that stands for no signal": (pod(0, "Failed", exit_code=255), Why.EXIT),
    "a program that was killed": (pod(0, "Failed", exit_code=137), Why.SIGNAL),
    "a program that took too much memory": (
        pod(0, "Failed", exit_code=137, out_of_memory=True),
        Why.OUT_OF_MEMORY,
    ),
    "a pod that failed without a program": (pod(0, "Failed", reason="OutOfcpu"), Why.FAILED),
    "a program that came to its end": (pod(0, "Succeeded", exit_code=0), Why.COMPLETED),
    "a node that is short of memory": (pod(0, "Failed", disrupted=True, reason="Evicted"), Why.EVICTED),
    "a node that is drained": (
        pod(0, terminating=True, disruption_reason="EvictionByEvictionAPI"),
        Why.EVICTED,
    ),
    "a node that is tainted": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager"),
        Why.EVICTED,
    ),
    "a pod of higher priority": (
        pod(0, terminating=True, disruption_reason="PreemptionByScheduler"),
        Why.PREEMPTED,
    ),
    "a pod of higher priority that the node let in": (
        pod(0, "Failed", disruption_reason="TerminationByKubelet", reason="Preempting"),
        Why.PREEMPTED,
    ),
    "its own emptyDir is full": (
        replace(pod(0, "Failed", exit_code=137, reason="Evicted"), over_limit=True),
        Why.EVICTED,
    ),
    "a node that shuts down": (
        pod(0, "Failed", disruption_reason="TerminationByKubelet", reason="Terminated"),
        Why.DISRUPTED,
    ),
    "somebody deletes it": (pod(0, terminating=True), Why.DELETED),
    "it ends because it is deleted": (pod(0, "Failed", exit_code=143, terminating=True), Why.DELETED),
    "its node does not answer": (pod(0, node="down"), Why.NODE_DOWN),
    "it must leave a node that does not answer": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager", node="down"),
        Why.NODE_DOWN,
    ),
    "its node is gone": (pod(0, terminating=True, disruption_reason="DeletionByPodGC"), Why.NODE_DOWN),
}


@pytest.mark.parametrize(("one", "want"), CAUSES.values(), ids=CAUSES.keys())
def test_why(one: ObservedPod, want: Why) -> None:
    assert why(one, {"down"}) is want
