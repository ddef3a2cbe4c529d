"""Tests that each way to lose a pod has its own cause."""

import pytest
from msgspec.structs import replace

from argosy.workload.observed import ObservedPod
from argosy.workload.restarts.causes import RestartCause, cause_of
from tests.support.workloads import pod

CAUSES: dict[str, tuple[ObservedPod, RestartCause]] = {
    "exit code 1: NonZeroExit": (pod(0, "Failed", exit_code=1), RestartCause.NON_ZERO_EXIT),
    "exit code 255, no signal: NonZeroExit": (pod(0, "Failed", exit_code=255), RestartCause.NON_ZERO_EXIT),
    "exit code 137: Signal": (pod(0, "Failed", exit_code=137), RestartCause.SIGNAL),
    "OOM-killed: OOMKilled": (
        pod(0, "Failed", exit_code=137, out_of_memory=True),
        RestartCause.OOM_KILLED,
    ),
    "failed without exit code: Failed": (pod(0, "Failed", reason="OutOfcpu"), RestartCause.FAILED),
    "succeeded: Completed": (pod(0, "Succeeded", exit_code=0), RestartCause.COMPLETED),
    "evicted by a node short of memory: Evicted": (
        pod(0, "Failed", disrupted=True, reason="Evicted"),
        RestartCause.EVICTED,
    ),
    "evicted by a drain: Evicted": (
        pod(0, terminating=True, disruption_reason="EvictionByEvictionAPI"),
        RestartCause.EVICTED,
    ),
    "evicted by a taint: Evicted": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager"),
        RestartCause.EVICTED,
    ),
    "preempted by the scheduler: Preempted": (
        pod(0, terminating=True, disruption_reason="PreemptionByScheduler"),
        RestartCause.PREEMPTED,
    ),
    "preempted by the kubelet: Preempted": (
        pod(0, "Failed", disruption_reason="TerminationByKubelet", reason="Preempting"),
        RestartCause.PREEMPTED,
    ),
    "evicted because its emptyDir is full: Evicted": (
        replace(pod(0, "Failed", exit_code=137, reason="Evicted"), over_limit=True),
        RestartCause.EVICTED,
    ),
    "node shutdown: Disrupted": (
        pod(0, "Failed", disruption_reason="TerminationByKubelet", reason="Terminated"),
        RestartCause.DISRUPTED,
    ),
    "deleted by a user: Deleted": (pod(0, terminating=True), RestartCause.DELETED),
    "exited while it is deleted: Deleted": (
        pod(0, "Failed", exit_code=143, terminating=True),
        RestartCause.DELETED,
    ),
    "on an unreachable node: NodeLost": (pod(0, node="down"), RestartCause.NODE_LOST),
    "evicted from an unreachable node: NodeLost": (
        pod(0, terminating=True, disruption_reason="DeletionByTaintManager", node="down"),
        RestartCause.NODE_LOST,
    ),
    "its node was deleted: NodeLost": (
        pod(0, terminating=True, disruption_reason="DeletionByPodGC"),
        RestartCause.NODE_LOST,
    ),
}


@pytest.mark.parametrize(("pod", "want"), CAUSES.values(), ids=CAUSES.keys())
def test_the_cause_of_a_lost_pod(pod: ObservedPod, want: RestartCause) -> None:
    assert cause_of(pod, {"down"}) is want
