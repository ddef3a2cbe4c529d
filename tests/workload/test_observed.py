import msgspec
import pytest
from msgspec import Struct

from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.workload.observed import ObservedPod, is_equivalent_pod, observe_pod
from tests.support.workloads import NOW

LABELS = {labels.ROLE: "worker", labels.INDEX: "2", labels.ATTEMPT: "3", labels.REPLACEMENT: "1"}


def observed(**parts: object) -> ObservedPod:
    body = {"metadata": {"name": "p", "uid": "u", "labels": LABELS}, **parts}
    pod = observe_pod(msgspec.convert(body, Pod))
    assert pod
    return pod


def ended(code: int, name: str = "main", reason: str = "Error", finished: int = 0) -> dict[str, object]:
    terminated = {"exitCode": code, "reason": reason, "finishedAt": f"2030-01-01T00:00:0{finished}Z"}
    return {"name": name, "state": {"terminated": terminated}}


class Case(Struct):
    status: dict[str, object]
    want: dict[str, object]
    spec: dict[str, object] = {}


LOW_ON_MEMORY = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    "Container main was using 5Gi, request is 1Gi, has larger consumption of memory. "
)

CASES = {
    "no status: Pending": Case({}, {"phase": "Pending", "exit_code": None}),
    "one container failed: its exit code": Case(
        {"phase": "Failed", "containerStatuses": [ended(0, "sidecar"), ended(137)]},
        {"exit_code": 137, "container": "main", "disrupted": False},
    ),
    "init container failed: its exit code": Case(
        {"phase": "Failed", "initContainerStatuses": [ended(2, "fetch")]},
        {"exit_code": 2, "container": "fetch"},
    ),
    "evicted: disrupted, with the message": Case(
        {"phase": "Failed", "reason": "Evicted", "message": "low memory"},
        {"disrupted": True, "message": "low memory"},
    ),
    "evicted by a node short of memory: disrupted": Case(
        {"phase": "Failed", "reason": "Evicted", "message": LOW_ON_MEMORY},
        {"disrupted": True, "over_limit": False},
    ),
    "evicted for a full emptyDir: over its limit": Case(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ',
            "containerStatuses": [ended(137)],
        },
        {"disrupted": False, "over_limit": True},
    ),
    "evicted for the storage of a container: over its limit": Case(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": 'Container main exceeded its local ephemeral storage limit "1Gi". ',
        },
        {"disrupted": False, "over_limit": True},
    ),
    "evicted for the storage of all containers: over its limit": Case(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
        },
        {"disrupted": False, "over_limit": True},
    ),
    "same message without an eviction: not over its limit": Case(
        {
            "phase": "Failed",
            "reason": "Error",
            "message": 'Usage of EmptyDir volume "a" exceeds the limit "1". ',
        },
        {"disrupted": False, "over_limit": False},
    ),
    "condition DisruptionTarget: disrupted": Case(
        {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"disrupted": True},
    ),
    "preempted by the scheduler: disrupted, with the reason": Case(
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        {"disrupted": True, "disruption_reason": "PreemptionByScheduler"},
    ),
    "OOM-killed container: out of memory": Case(
        {"phase": "Failed", "containerStatuses": [ended(137, reason="OOMKilled")]},
        {"exit_code": 137, "out_of_memory": True},
    ),
    "two restarted containers: the exit code of the last": Case(
        {
            "containerStatuses": [
                {"name": "a", "restartCount": 1, "lastState": ended(1, finished=1)["state"]},
                {"name": "b", "restartCount": 1, "lastState": ended(137, "b", "OOMKilled", 2)["state"]},
            ]
        },
        {"last_exit_code": 137, "last_out_of_memory": True, "exit_code": None},
    ),
    "helper container running: waits for a dependency": Case(
        {"phase": "Pending", "initContainerStatuses": [{"name": "initializer", "state": {"running": {}}}]},
        {"waits_for_dependency": True},
    ),
    "init container of the user running: does not wait for a dependency": Case(
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]},
        {"waits_for_dependency": False},
    ),
    "image cannot be pulled: waiting reason": Case(
        {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
        {"waiting_reason": "ImagePullBackOff"},
    ),
    "container being created: no waiting reason": Case(
        {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
        {"waiting_reason": ""},
    ),
    "no node: Unschedulable": Case(
        {
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/3 nodes",
                }
            ]
        },
        {"waiting_reason": "Unschedulable", "waiting_message": "0/3 nodes"},
    ),
    "two restarted containers: the sum of their restarts": Case(
        {"containerStatuses": [{"name": "a", "restartCount": 2}, {"name": "b", "restartCount": 1}]},
        {"container_restarts": 3},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_status_of_a_pod_is_read(case: Case) -> None:
    pod = observed(status=case.status, spec=case.spec)
    assert {name: getattr(pod, name) for name in case.want} == case.want


def test_labels_name_the_replica() -> None:
    pod = observed()
    assert (pod.role, pod.index, pod.attempt, pod.replacement) == ("worker", 2, 3, 1)


def test_a_pod_with_invalid_labels_is_ignored() -> None:
    body = {"metadata": {"name": "p", "labels": {**LABELS, labels.INDEX: "two"}}}
    assert observe_pod(msgspec.convert(body, Pod)) is None


PREEMPTIONS: dict[str, tuple[dict[str, object], bool]] = {
    "Volcano, reason Evict: preempted": ({"type": "Ready", "status": "False", "reason": "Evict"}, True),
    "another scheduler, reason Preempted: preempted": (
        {"type": "Ready", "status": "False", "reason": "Preempted"},
        True,
    ),
    "kube-scheduler, reason PreemptionByScheduler: preempted": (
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"},
        True,
    ),
    "evicted by the eviction API: not preempted": (
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        False,
    ),
    "not ready for another reason: not preempted": (
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        False,
    ),
    "ready again: not preempted": ({"type": "Ready", "status": "True", "reason": "Evict"}, False),
}


@pytest.mark.parametrize("case", PREEMPTIONS.values(), ids=PREEMPTIONS)
def test_conditions_mark_a_preempted_pod(case: tuple[dict[str, object], bool]) -> None:
    condition, want = case
    body = {"metadata": {"name": "p", "labels": LABELS}, "status": {"conditions": [condition]}}
    pod = observe_pod(msgspec.convert(body, Pod), noticed=NOW)
    assert pod and pod.preempted_at == (NOW if want else None)
    with_time = {**condition, "lastTransitionTime": "2020-01-01T00:00:00Z"}
    body = {"metadata": {"name": "p", "labels": LABELS}, "status": {"conditions": [with_time]}}
    pod = observe_pod(msgspec.convert(body, Pod), noticed=NOW)
    assert pod and (pod.preempted_at is not None and pod.preempted_at.year == 2020) is want


def test_only_propagated_metadata_is_read() -> None:
    meta = {"labels": {**LABELS, "x/queue": "a"}, "annotations": {"x/priority": "5", "other": "1"}}
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u", **meta}}, Pod)
    propagated = observe_pod(pod, ("x/queue", "x/priority"))
    assert propagated is not None
    assert (propagated.metadata.labels, propagated.metadata.annotations) == (
        {"x/queue": "a"},
        {"x/priority": "5"},
    )
    plain = observe_pod(pod)
    assert plain is not None
    assert not plain.metadata.labels


def test_acknowledged_host_files_are_read_and_make_a_difference() -> None:
    meta = {"name": "p", "uid": "u", "labels": LABELS}
    pod = observed(metadata={**meta, "annotations": {"argosy.dev/hosts-ack": "7-ab"}})
    assert pod.hosts_ack == "7-ab"
    assert not is_equivalent_pod(observed(metadata=meta), pod)


COSTS = {
    "no annotation: 0": ({}, 0),
    "positive cost: the cost": ({labels.POD_DELETION_COST: "100"}, 100),
    "negative cost: the cost": ({labels.POD_DELETION_COST: "-100"}, -100),
    **{
        f"{text!r}: 0, as it is no number of 32 bits": ({labels.POD_DELETION_COST: text}, 0)
        for text in ("", "many", "1.5", "+1", "01", "1_000", "٣", "2147483648", "9" * 5000)
    },
}


@pytest.mark.parametrize(("annotations", "want"), COSTS.values(), ids=COSTS)
def test_deletion_cost_of_a_pod(annotations: dict[str, str], want: int) -> None:
    metadata = {"name": "p", "uid": "u", "labels": LABELS, "annotations": annotations}
    assert observed(metadata=metadata).deletion_cost == want


def test_step_of_a_program_makes_a_difference_when_its_pod_ends() -> None:
    meta = {"name": "p", "uid": "u", "labels": LABELS}
    reported = {**meta, "annotations": {"argosy.dev/training-step": "1200"}}
    assert observed(metadata=reported).training_step == 1200
    assert is_equivalent_pod(observed(metadata=meta), observed(metadata=reported))
    ends = {"deletionTimestamp": "2030-01-01T00:00:00Z"}
    assert not is_equivalent_pod(observed(metadata=meta | ends), observed(metadata=reported | ends))
