"""Gangs on both grounds: Volcano's groups on the local scheduler, Kubernetes' own on kube-scheduler.

The operator of the cluster takes whichever there is (`auto`). How much room there is, a node says by a
resource that nobody else asks for.
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


def offer(user: User, slots: int) -> None:
    """The first node has so many slots."""
    amounts = f'{{"{SLOT}":"{slots}"}}'
    patch = f'{{"status":{{"capacity":{amounts},"allocatable":{amounts}}}}}'
    user.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture(autouse=True)
def _nothing_left(user: User) -> Iterator[None]:
    yield
    user.kubectl("delete", "tr,aj", "--all", "--wait=false")
    offer(user, 0)


def container(script: str = WAITING) -> Json:
    resources = {"limits": {SLOT: "1"}}
    return {"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", script], "resources": resources}


def template(**more: object) -> Json:
    return {"spec": {"containers": [container()], "terminationGracePeriodSeconds": 1, **more}}


def gang(name: str = "gang", workers: int = 3, **fields: object) -> RunBuilder:
    return run(name).role("worker", workers, template=template()).gang(**fields)


def nodes(user: User) -> list[str]:
    """Where the pods are; empty for one that is nowhere."""
    pods = cast("list[dict[str, dict[str, str]]]", user.get("pods")["items"])
    return [pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def until_unschedulable(user: User, name: str) -> None:
    told = lambda: user.kubectl("describe", "tr,pods").stdout  # noqa: E731
    wait_for(lambda: user.status(name).get("reason") == "Unschedulable", told, 60)


def test_a_gang_that_does_not_fit_is_not_placed_by_half(user: User) -> None:
    """Of three pods two would fit; none is placed before all three are."""
    offer(user, 2)
    user.apply(gang())
    until_unschedulable(user, "gang")
    assert nodes(user) == ["", "", ""]
    offer(user, 3)
    user.wait_for_phase("gang", "Running")
    assert nodes(user) == ["node-1"] * 3


def test_room_that_another_gang_leaves_is_taken(user: User) -> None:
    offer(user, 3)
    user.apply(gang("first"))
    user.wait_for_phase("first", "Running")
    user.apply(gang("second", 2))
    until_unschedulable(user, "second")
    user.kubectl("delete", "tr", "first")
    user.wait_for_phase("second", "Running")


def test_a_gang_may_begin_with_fewer_than_all(user: User) -> None:
    offer(user, 2)
    user.apply(gang(minAvailable=2))
    wait_for(lambda: sorted(nodes(user)) == ["", "node-1", "node-1"], lambda: str(nodes(user)), 60)


def test_a_lost_pod_of_a_gang_is_replaced(user: User) -> None:
    offer(user, 3)
    user.apply(gang())
    user.wait_for_phase("gang", "Running")
    before = user.get("pod", "gang-worker-1")["metadata"]
    user.kubectl("delete", "pod", "gang-worker-1")

    def replaced() -> bool:
        found = user.kubectl("get", "pod", "gang-worker-1", "-o", "jsonpath={.metadata.uid}", code=None)
        return found.returncode == 0 and found.stdout != cast("Json", before)["uid"]

    wait_for(replaced, lambda: user.kubectl("describe", "tr").stdout, 60)
    user.wait_for_phase("gang", "Running")


def test_example(user: User) -> None:
    said = user.argosy("run", str(REPOSITORY / examples.GANG)).stdout
    assert {f"worker-{index} │ worker {index} is here with the others" for index in range(3)} <= set(
        said.splitlines()
    )
    assert "Succeeded" in said.splitlines()[-1]
    assert "gangScheduledAt" in cast("Json", user.status("gang")["argosy"]), "somebody has placed it"


def test_an_aresjob_is_placed_as_a_gang(user: User) -> None:
    """`Scheduled` is told once all have their place."""
    offer(user, 2)
    role = {"replicas": 3, "template": template()}
    policy = {"schedulingPolicy": {"minAvailable": 3}}
    spec = {"frameworkType": "custom", "roleSpecs": {"worker": role}, "runPolicy": policy}
    job: Json = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "ares"}, "spec": spec}
    user.apply(job)
    wait_for(lambda: nodes(user) == ["", "", ""], lambda: user.kubectl("describe", "aj").stdout, 60)
    assert "Scheduled" not in conditions(user)
    offer(user, 3)
    wait_for(
        lambda: conditions(user).get("Scheduled") == "True" and conditions(user).get("Running") == "True",
        lambda: user.kubectl("describe", "aj").stdout,
        60,
    )
    assert nodes(user) == ["node-1"] * 3


def conditions(user: User) -> dict[str, str]:
    status = cast("dict[str, list[dict[str, str]]]", user.get("aj", "ares").get("status", {}))
    return {one["type"]: one["status"] for one in status.get("conditions", [])}
