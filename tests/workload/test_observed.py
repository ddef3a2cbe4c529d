import msgspec
import pytest
from msgspec import Struct

from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.workload.observed import ObservedPod, observe_pod
from tests.support.workloads import NOW

LABELS = {labels.ROLE: "worker", labels.INDEX: "2", labels.ATTEMPT: "3", labels.REPLACEMENT: "1"}


def observed(**parts: object) -> ObservedPod:
    body = {"metadata": {"name": "p", "uid": "u", "labels": LABELS}, **parts}
    seen = observe_pod(msgspec.convert(body, Pod))
    assert seen
    return seen


def ended(code: int, name: str = "main", reason: str = "Error", finished: int = 0) -> dict[str, object]:
    how = {"exitCode": code, "reason": reason, "finishedAt": f"2030-01-01T00:00:0{finished}Z"}
    return {"name": name, "state": {"terminated": how}}


class Case(Struct):
    status: dict[str, object]
    want: dict[str, object]
    spec: dict[str, object] = {}


LOW_ON_MEMORY = (
    "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    "Container main was using 5Gi, request is 1Gi, has larger consumption of memory. "
)

CASES = {
    "a pod without a status": Case({}, {"phase": "Pending", "exit_code": None}),
    "the exit code of the container that failed": Case(
        {"phase": "Failed", "containerStatuses": [ended(0, "sidecar"), ended(137)]},
        {"exit_code": 137, "container": "main", "disrupted": False},
    ),
    "the exit code of an init container": Case(
        {"phase": "Failed", "initContainerStatuses": [ended(2, "fetch")]},
        {"exit_code": 2, "container": "fetch"},
    ),
    "an eviction": Case(
        {"phase": "Failed", "reason": "Evicted", "message": "low memory"},
        {"disrupted": True, "message": "low memory"},
    ),
    "an eviction by a node that is short of memory: the cluster's doing": Case(
        {"phase": "Failed", "reason": "Evicted", "message": LOW_ON_MEMORY},
        {"disrupted": True, "over_limit": False},
    ),
    "an eviction for a full emptyDir: the pod's own": Case(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". ',
            "containerStatuses": [ended(137)],
        },
        {"disrupted": False, "over_limit": True},
    ),
    "an eviction for the storage of a container: the pod's own": Case(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": 'Container main exceeded its local ephemeral storage limit "1Gi". ',
        },
        {"disrupted": False, "over_limit": True},
    ),
    "an eviction for the storage of all containers: the pod's own": Case(
        {
            "phase": "Failed",
            "reason": "Evicted",
            "message": "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
        },
        {"disrupted": False, "over_limit": True},
    ),
    "a program that says the same and was not evicted": Case(
        {
            "phase": "Failed",
            "reason": "Error",
            "message": 'Usage of EmptyDir volume "a" exceeds the limit "1". ',
        },
        {"disrupted": False, "over_limit": False},
    ),
    "a preemption": Case(
        {"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"disrupted": True},
    ),
    "a preemption by the scheduler": Case(
        {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
        {"disrupted": True, "disruption_reason": "PreemptionByScheduler"},
    ),
    "a container that took too much memory": Case(
        {"phase": "Failed", "containerStatuses": [ended(137, reason="OOMKilled")]},
        {"exit_code": 137, "out_of_memory": True},
    ),
    "how the container ended that was restarted last": Case(
        {
            "containerStatuses": [
                {"name": "a", "restartCount": 1, "lastState": ended(1, finished=1)["state"]},
                {"name": "b", "restartCount": 1, "lastState": ended(137, "b", "OOMKilled", 2)["state"]},
            ]
        },
        {"last_exit_code": 137, "last_out_of_memory": True, "exit_code": None},
    ),
    "held in the init container that waits for others": Case(
        {"phase": "Pending", "initContainerStatuses": [{"name": "initializer", "state": {"running": {}}}]},
        {"waits_for_dependency": True},
    ),
    "not held by an init container of the user's own": Case(
        {"phase": "Pending", "initContainerStatuses": [{"name": "fetch", "state": {"running": {}}}]},
        {"waits_for_dependency": False},
    ),
    "an image that cannot be had": Case(
        {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]},
        {"waiting_reason": "ImagePullBackOff"},
    ),
    "a container about to start waits for nothing worth telling": Case(
        {"containerStatuses": [{"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]},
        {"waiting_reason": ""},
    ),
    "no place for it": Case(
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
    "restarts of all containers together": Case(
        {"containerStatuses": [{"name": "a", "restartCount": 2}, {"name": "b", "restartCount": 1}]},
        {"container_restarts": 3},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pod(case: Case) -> None:
    seen = observed(status=case.status, spec=case.spec)
    assert {name: getattr(seen, name) for name in case.want} == case.want


def test_place() -> None:
    seen = observed()
    assert (seen.role, seen.index, seen.attempt, seen.replacement) == ("worker", 2, 3, 1)


def test_a_pod_whose_labels_were_changed_has_no_place() -> None:
    body = {"metadata": {"name": "p", "labels": {**LABELS, labels.INDEX: "two"}}}
    assert observe_pod(msgspec.convert(body, Pod)) is None


PREEMPTIONS: dict[str, tuple[dict[str, object], bool]] = {
    "Volcano's own word": ({"type": "Ready", "status": "False", "reason": "Evict"}, True),
    "another scheduler's": ({"type": "Ready", "status": "False", "reason": "Preempted"}, True),
    "Kubernetes'": ({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}, True),
    "eviction from a node is none": (
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
        False,
    ),
    "a pod that is merely not ready": (
        {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        False,
    ),
    "a pod that is ready again": ({"type": "Ready", "status": "True", "reason": "Evict"}, False),
}


@pytest.mark.parametrize("case", PREEMPTIONS.values(), ids=PREEMPTIONS)
def test_preemption(case: tuple[dict[str, object], bool]) -> None:
    condition, want = case
    body = {"metadata": {"name": "p", "labels": LABELS}, "status": {"conditions": [condition]}}
    seen = observe_pod(msgspec.convert(body, Pod), noticed=NOW)
    assert seen and seen.preempted_at == (NOW if want else None)
    told = {**condition, "lastTransitionTime": "2020-01-01T00:00:00Z"}
    body = {"metadata": {"name": "p", "labels": LABELS}, "status": {"conditions": [told]}}
    seen = observe_pod(msgspec.convert(body, Pod), noticed=NOW)
    assert seen and (seen.preempted_at is not None and seen.preempted_at.year == 2020) is want


def test_of_metadata_only_what_is_handed_on_is_seen() -> None:
    meta = {"labels": {**LABELS, "x/queue": "a"}, "annotations": {"x/priority": "5", "other": "1"}}
    pod = msgspec.convert({"metadata": {"name": "p", "uid": "u", **meta}}, Pod)
    seen = observe_pod(pod, ("x/queue", "x/priority"))
    assert seen is not None
    assert (seen.metadata.labels, seen.metadata.annotations) == ({"x/queue": "a"}, {"x/priority": "5"})
    plain = observe_pod(pod)
    assert plain is not None
    assert not plain.metadata.labels
