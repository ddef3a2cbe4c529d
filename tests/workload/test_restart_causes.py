"""Every way to lose a pod has a cause of its own."""

import pytest
from msgspec.structs import replace

from argosy.workload.observed import ObservedPod
from argosy.workload.restart_causes import RestartCause, cause_of
from tests.support.workloads import pod

CAUSES: dict[str, tuple[ObservedPod, RestartCause]] = {
    "a program that gave up": (pod(0, "Failed", exit_code=1), RestartCause.NON_ZERO_EXIT),
    "a code that stands for no signal": (pod(0, "Failed", exit_code=255), RestartCause.NON_ZERO_EXIT),
    "a program that was killed": (pod(0, "Failed", exit_code=137), RestartCause.SIGNAL),
    "a program that took too much memory": (
        pod(0, "Failed", exit_code=137, out_of_memory=True),
        RestartCause.OOM_KILLED,
    ),
    "a pod that failed without a program": (pod(0, "Failed", reason="OutOfcpu"), RestartCause.FAILED),
    "a program that came to its end": (pod(0, "Succeeded", exit_code=0), RestartCause.COMPLETED),
    "a node that is short of memory": (
        pod(0, "Failed", disrupted=True, reason="Evicted"),
        RestartCause.EVICTED,
    ),
    "a node that is drained": (
        pod(0, terminating=True, disruption_reason="EvictionByEvictionAPI"),
        RestartCause.EVICTED,
    ),
    "a node that is tainted": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager"),
        RestartCause.EVICTED,
    ),
    "a pod of higher priority": (
        pod(0, terminating=True, disruption_reason="PreemptionByScheduler"),
        RestartCause.PREEMPTED,
    ),
    "a pod of higher priority that the node let in": (
        pod(0, "Failed", disruption_reason="TerminationByKubelet", reason="Preempting"),
        RestartCause.PREEMPTED,
    ),
    "its own emptyDir is full": (
        replace(pod(0, "Failed", exit_code=137, reason="Evicted"), over_limit=True),
        RestartCause.EVICTED,
    ),
    "a node that shuts down": (
        pod(0, "Failed", disruption_reason="TerminationByKubelet", reason="Terminated"),
        RestartCause.DISRUPTED,
    ),
    "somebody deletes it": (pod(0, terminating=True), RestartCause.DELETED),
    "it ends because it is deleted": (
        pod(0, "Failed", exit_code=143, terminating=True),
        RestartCause.DELETED,
    ),
    "its node does not answer": (pod(0, node="down"), RestartCause.NODE_LOST),
    "it must leave a node that does not answer": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager", node="down"),
        RestartCause.NODE_LOST,
    ),
    "its node is gone": (
        pod(0, terminating=True, disruption_reason="DeletionByPodGC"),
        RestartCause.NODE_LOST,
    ),
}


@pytest.mark.parametrize(("one", "want"), CAUSES.values(), ids=CAUSES.keys())
def test_why(one: ObservedPod, want: RestartCause) -> None:
    assert cause_of(one, {"down"}) is want
