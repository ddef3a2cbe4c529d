"""Gang scheduling by Volcano PodGroups on the local scheduler and by kube-scheduler on a real cluster.

The operator chooses the available scheduler (`auto`). The capacity of the node is set through an extended
resource that only these tests request.
"""

from collections.abc import Iterator
from typing import cast

import pytest

from tests.support import examples
from tests.support.builders import RunBuilder, run
from tests.support.commands import REPOSITORY
from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

SLOT = "example.com/slot"
WAITING = "trap 'exit 1' TERM; while true; do sleep 0.2; done"


def set_slots(user: User, slots: int) -> None:
    """Set the number of slots of the first node."""
    amounts = f'{{"{SLOT}":"{slots}"}}'
    patch = f'{{"status":{{"capacity":{amounts},"allocatable":{amounts}}}}}'
    user.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture(autouse=True)
def _clean_up(user: User) -> Iterator[None]:
    yield
    user.kubectl("delete", "tr,aj", "--all", "--wait=false")
    set_slots(user, 0)


def container(script: str = WAITING) -> Json:
    resources = {"limits": {SLOT: "1"}}
    return {"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", script], "resources": resources}


def template(**more: object) -> Json:
    return {"spec": {"containers": [container()], "terminationGracePeriodSeconds": 1, **more}}


def gang(name: str = "gang", workers: int = 3, **fields: object) -> RunBuilder:
    return run(name).role("worker", workers, template=template()).gang(**fields)


def nodes(user: User) -> list[str]:
    """The node names of the pods; empty for an unscheduled pod."""
    pods = cast("list[dict[str, dict[str, str]]]", user.get("pods")["items"])
    return [pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def until_unschedulable(user: User, name: str) -> None:
    described = lambda: user.kubectl("describe", "tr,pods").stdout  # noqa: E731
    wait_for(lambda: user.status(name).get("reason") == "Unschedulable", described, 60)


def test_no_pod_of_a_gang_is_scheduled_until_all_fit(user: User) -> None:
    """Of three pods two would fit; none is scheduled before all three fit."""
    set_slots(user, 2)
    user.apply(gang())
    until_unschedulable(user, "gang")
    assert nodes(user) == ["", "", ""]
    set_slots(user, 3)
    user.wait_for_phase("gang", "Running")
    assert nodes(user) == ["node-1"] * 3


@pytest.mark.long_on_cluster
def test_waiting_gang_is_scheduled_when_another_gang_is_deleted(user: User) -> None:
    set_slots(user, 3)
    user.apply(gang("first"))
    user.wait_for_phase("first", "Running")
    user.apply(gang("second", 2))
    until_unschedulable(user, "second")
    user.kubectl("delete", "tr", "first")
    user.wait_for_phase("second", "Running")


@pytest.mark.long_on_cluster
def test_gang_starts_with_min_available_pods(user: User) -> None:
    set_slots(user, 2)
    user.apply(gang(minAvailable=2))
    wait_for(lambda: sorted(nodes(user)) == ["", "node-1", "node-1"], lambda: str(nodes(user)), 60)


@pytest.mark.long_on_cluster
def test_deleted_pod_of_a_running_gang_is_replaced(user: User) -> None:
    set_slots(user, 3)
    user.apply(gang())
    user.wait_for_phase("gang", "Running")
    before = user.get("pod", "gang-worker-1")["metadata"]
    user.kubectl("delete", "pod", "gang-worker-1")

    def replaced() -> bool:
        current = user.kubectl("get", "pod", "gang-worker-1", "-o", "jsonpath={.metadata.uid}", code=None)
        return current.returncode == 0 and current.stdout != cast("Json", before)["uid"]

    wait_for(replaced, lambda: user.kubectl("describe", "tr").stdout, 60)
    user.wait_for_phase("gang", "Running")


@pytest.mark.long_on_cluster
def test_example_of_a_gang_succeeds(user: User) -> None:
    output = user.argosy("run", str(REPOSITORY / examples.GANG)).stdout
    assert {f"worker-{index} │ worker {index} is here with the others" for index in range(3)} <= set(
        output.splitlines()
    )
    assert "Succeeded" in output.splitlines()[-1]
    assert "gangScheduledAt" in cast("Json", user.status("gang")["argosy"]), "a gang scheduler scheduled it"


def test_aresjob_is_scheduled_as_a_gang(user: User) -> None:
    """Condition Scheduled is True once all pods are scheduled."""
    set_slots(user, 2)
    role = {"replicas": 3, "template": template()}
    policy = {"schedulingPolicy": {"minAvailable": 3}}
    spec = {"frameworkType": "custom", "roleSpecs": {"worker": role}, "runPolicy": policy}
    job: Json = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "ares"}, "spec": spec}
    user.apply(job)
    wait_for(lambda: nodes(user) == ["", "", ""], lambda: user.kubectl("describe", "aj").stdout, 60)
    assert "Scheduled" not in conditions(user)
    set_slots(user, 3)
    wait_for(
        lambda: conditions(user).get("Scheduled") == "True" and conditions(user).get("Running") == "True",
        lambda: user.kubectl("describe", "aj").stdout,
        60,
    )
    assert nodes(user) == ["node-1"] * 3


def conditions(user: User) -> dict[str, str]:
    status = cast("dict[str, list[dict[str, str]]]", user.get("aj", "ares").get("status", {}))
    return {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
