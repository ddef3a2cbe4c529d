import pytest
from msgspec.structs import replace

from argosy.workload import messages
from argosy.workload.observed import ObservedPod
from argosy.workload.record import RestartEntry
from argosy.workload.restarts.causes import container_restart_entry
from tests.support.workloads import NOW, pod

SENTENCES = {
    "worker-2 was killed (SIGKILL, exit 137) on node-3": pod(2, "Failed", exit_code=137, node="node-3"),
    "worker-2 ran out of memory (exit 137) on node-3": pod(
        2, "Failed", exit_code=137, out_of_memory=True, node="node-3"
    ),
    "worker-2 failed (exit 1)": pod(2, "Failed", exit_code=1),
    "worker-2 failed (exit 255)": pod(2, "Failed", exit_code=255),
    "worker-2 failed (no exit code)": pod(2, "Failed"),
    "worker-2 failed (UnexpectedAdmissionError)": pod(2, "Failed", reason="UnexpectedAdmissionError"),
    "worker-2 completed (exit 0)": pod(2, "Succeeded", exit_code=0),
    "worker-2 was deleted on node-3": pod(2, terminating=True, node="node-3"),
    "worker-2 is on node-3, which is unreachable": pod(2, node="node-3"),
    "worker-2 was evicted from node-3: low memory": replace(
        pod(2, "Failed", disrupted=True, node="node-3", reason="Evicted"), message="low memory"
    ),
    "worker-2 was preempted on node-3": pod(
        2, terminating=True, disruption_reason="PreemptionByScheduler", node="node-3"
    ),
    "worker-2 was removed by the cluster on node-3: shutting down": replace(
        pod(2, "Failed", disrupted=True, node="node-3", reason="NodeShutdown"), message="shutting down"
    ),
}


@pytest.mark.parametrize(("want", "ended"), SENTENCES.items())
def test_the_end_of_a_pod_is_a_sentence(want: str, ended: ObservedPod) -> None:
    assert messages.describe_end(ended) == want


def test_the_restart_of_a_container_is_a_sentence() -> None:
    entry = container_restart_entry(pod(2, container_restarts=1, last_exit_code=9, node="node-3"), NOW)
    assert messages.describe_restart(entry) == "a container of worker-2 failed (exit 9) on node-3"


def test_an_unknown_cause_of_a_later_version_is_shown_as_it_is() -> None:
    assert (
        messages.describe_restart(RestartEntry(NOW, "worker", 2, "Sabotage", "Pod"))
        == "worker-2 was lost (Sabotage)"
    )
