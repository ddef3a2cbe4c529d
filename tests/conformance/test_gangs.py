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
from tests.support.user import Json, Tenant
from tests.support.waiting import wait_for

SLOT = "example.com/slot"
WAITING = "trap 'exit 1' TERM; while true; do sleep 0.2; done"


def offer(tenant: Tenant, slots: int) -> None:
    """The first node has so many slots."""
    amounts = f'{{"{SLOT}":"{slots}"}}'
    patch = f'{{"status":{{"capacity":{amounts},"allocatable":{amounts}}}}}'
    tenant.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", patch)


@pytest.fixture(autouse=True)
def _nothing_left(tenant: Tenant) -> Iterator[None]:
    yield
    tenant.kubectl("delete", "tr,aj", "--all", "--wait=false")
    offer(tenant, 0)


def container(script: str = WAITING) -> Json:
    resources = {"limits": {SLOT: "1"}}
    return {"name": "main", "image": IMAGE, "command": ["/bin/sh", "-c", script], "resources": resources}


def template(**more: object) -> Json:
    return {"spec": {"containers": [container()], "terminationGracePeriodSeconds": 1, **more}}


def gang(name: str = "gang", workers: int = 3, **fields: object) -> RunBuilder:
    return run(name).role("worker", workers, template=template()).gang(**fields)


def nodes(tenant: Tenant) -> list[str]:
    """Where the pods are; empty for one that is nowhere."""
    pods = cast("list[dict[str, dict[str, str]]]", tenant.get("pods")["items"])
    return [pod["spec"].get("nodeName", "") for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def until_unschedulable(tenant: Tenant, name: str) -> None:
    told = lambda: tenant.kubectl("describe", "tr,pods").stdout  # noqa: E731
    wait_for(lambda: tenant.status(name).get("reason") == "Unschedulable", told, 60)


def test_a_gang_that_does_not_fit_is_not_placed_by_half(tenant: Tenant) -> None:
    """Of three pods two would fit; none is placed before all three are."""
    offer(tenant, 2)
    tenant.apply(gang())
    until_unschedulable(tenant, "gang")
    assert nodes(tenant) == ["", "", ""]
    offer(tenant, 3)
    tenant.until_phase("gang", "Running")
    assert nodes(tenant) == ["node-1"] * 3


def test_room_that_another_gang_leaves_is_taken(tenant: Tenant) -> None:
    offer(tenant, 3)
    tenant.apply(gang("first"))
    tenant.until_phase("first", "Running")
    tenant.apply(gang("second", 2))
    until_unschedulable(tenant, "second")
    tenant.kubectl("delete", "tr", "first")
    tenant.until_phase("second", "Running")


def test_a_gang_may_begin_with_fewer_than_all(tenant: Tenant) -> None:
    offer(tenant, 2)
    tenant.apply(gang(minAvailable=2))
    wait_for(lambda: sorted(nodes(tenant)) == ["", "node-1", "node-1"], lambda: str(nodes(tenant)), 60)


def test_a_lost_pod_of_a_gang_is_replaced(tenant: Tenant) -> None:
    offer(tenant, 3)
    tenant.apply(gang())
    tenant.until_phase("gang", "Running")
    before = tenant.get("pod", "gang-worker-1")["metadata"]
    tenant.kubectl("delete", "pod", "gang-worker-1")

    def replaced() -> bool:
        found = tenant.kubectl("get", "pod", "gang-worker-1", "-o", "jsonpath={.metadata.uid}", code=None)
        return found.returncode == 0 and found.stdout != cast("Json", before)["uid"]

    wait_for(replaced, lambda: tenant.kubectl("describe", "tr").stdout, 60)
    tenant.until_phase("gang", "Running")


def test_example(tenant: Tenant) -> None:
    said = tenant.argosy("run", str(REPOSITORY / examples.GANG)).stdout
    assert {f"worker-{index} │ worker {index} is here with the others" for index in range(3)} <= set(
        said.splitlines()
    )
    assert "Succeeded" in said.splitlines()[-1]
    assert "gangScheduledAt" in cast("Json", tenant.status("gang")["argosy"]), "somebody has placed it"


def test_an_aresjob_is_placed_as_a_gang(tenant: Tenant) -> None:
    """`Scheduled` is told once all have their place."""
    offer(tenant, 2)
    role = {"replicas": 3, "template": template()}
    policy = {"schedulingPolicy": {"minAvailable": 3}}
    spec = {"frameworkType": "custom", "roleSpecs": {"worker": role}, "runPolicy": policy}
    job: Json = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "ares"}, "spec": spec}
    tenant.apply(job)
    wait_for(lambda: nodes(tenant) == ["", "", ""], lambda: tenant.kubectl("describe", "aj").stdout, 60)
    assert "Scheduled" not in conditions(tenant)
    offer(tenant, 3)
    wait_for(
        lambda: conditions(tenant).get("Scheduled") == "True" and conditions(tenant).get("Running") == "True",
        lambda: tenant.kubectl("describe", "aj").stdout,
        60,
    )
    assert nodes(tenant) == ["node-1"] * 3


def conditions(tenant: Tenant) -> dict[str, str]:
    status = cast("dict[str, list[dict[str, str]]]", tenant.get("aj", "ares").get("status", {}))
    return {one["type"]: one["status"] for one in status.get("conditions", [])}
