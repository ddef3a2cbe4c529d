"""Gang scheduling by the operator itself, on the local control plane: acceptance case 53."""

import json
from collections.abc import Iterator

import pytest

from tests.support.local_control_plane import ControlPlane, operated
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SLOT = "example.com/slot"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose operator admits gangs itself."""
    with operated("--gang-backend", "builtin") as running:
        yield running


def set_slots(plane: ControlPlane, slots: int) -> None:
    amounts = {SLOT: str(slots)}
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    plane.kubectl("patch", "node", "node-1", "--subresource=status", "--type=merge", "-p", patch)


def gang(name: str) -> str:
    """Three pods with a slot each, to be scheduled together."""
    limits = {"limits": {SLOT: 1}}
    main = {"name": "main", "image": "local", "command": ["sleep", "300"], "resources": limits}
    template = {"spec": {"containers": [main], "terminationGracePeriodSeconds": 0}}
    spec = {
        "frameworkType": "custom",
        "roleSpecs": {"worker": {"replicas": 3, "template": template}},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
    }
    return json.dumps(
        {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name}, "spec": spec}
    )


def field(plane: ControlPlane, name: str, path: str) -> str:
    return plane.kubectl("get", "aj", name, "-o", f"jsonpath={path}").stdout


def pods(plane: ControlPlane) -> list[str]:
    return plane.kubectl("get", "pods", "-o", "name").stdout.split()


def test_53_gang_waits_until_all_its_pods_fit(plane: ControlPlane) -> None:
    """minAvailable 3, capacity for 2 pods -> no pods, job Pending; for 3 -> all pods at once, Scheduled
    True. A second gang is admitted once the first is deleted."""
    described = lambda: plane.kubectl("describe", "aj,nodes").stdout  # noqa: E731
    waiting_reason = "{.status.argosy.waiting.reason}"
    scheduled = '{.status.conditions[?(@.type=="Scheduled")].status}'
    set_slots(plane, 2)
    plane.kubectl("apply", "-f", "-", stdin=gang("first"))
    wait_for(lambda: field(plane, "first", waiting_reason) == "Queued", described, 60)
    assert (pods(plane), field(plane, "first", "{.status.phase}")) == ([], "Pending")
    assert field(plane, "first", scheduled) == ""
    set_slots(plane, 3)
    wait_for(lambda: field(plane, "first", "{.status.phase}") == "Running", described, 60)
    assert (len(pods(plane)), field(plane, "first", scheduled)) == (3, "True")
    plane.kubectl("apply", "-f", "-", stdin=gang("second"))
    wait_for(lambda: field(plane, "second", waiting_reason) == "Queued", described, 60)
    plane.kubectl("delete", "aj", "first")
    wait_for(lambda: field(plane, "second", "{.status.phase}") == "Running", described, 60)
