"""Nodes are silenced, stopped, reclaimed, added and removed while their pods are real processes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
import pytest_asyncio

from argosy.engine.errors import ApiError, NotFound
from argosy.kinds.kubernetes import Lease, Node, Pod
from argosy.kinds.labels import LOCAL_NODE, TERMINATION_DEADLINE, TERMINATION_SOURCE, TERMINATION_TAINT
from argosy.local.node.shim_manager import has_shim
from argosy.local.node_set import NodeEntry, NodeSet
from argosy.local.processes import write_json
from argosy.local.readiness import is_ready
from tests.support.agents import Machine, machine
from tests.support.waiting import eventually, until

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

FOREVER = "trap '' TERM; while :; do sleep 0.05; done"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Machine]:
    async with machine() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def here(shared: Machine) -> AsyncIterator[Machine]:
    """One machine for all tests of this module; each starts with node-1 and node-2, and without pods."""
    yield shared
    nodes = await shared.nodes()
    for name in nodes:
        if name not in ("node-1", "node-2"):
            await shared.send("DELETE", f"nodes/{name}")
    for name in ("node-1", "node-2"):
        await shared.send("POST", f"nodes/{name}/resume" if name in nodes else f"nodes?name={name}")
    for pod in (await shared.client.list(Pod, "default")).items:
        await shared.client.delete(Pod, pod.metadata.name, "default", grace_seconds=0)


async def renewed(here: Machine, name: str) -> datetime | None:
    return (await here.client.get(Lease, name, "kube-node-lease")).spec.renew_time


async def running_pod(here: Machine, name: str, node: str = "node-2", **spec: object) -> Pod:
    await here.run(name, FOREVER, nodeName=node, **spec)
    return await here.phase(name, "Running")


def has_processes(here: Machine, pod: Pod) -> bool:
    return has_shim(here.state / "pods" / pod.metadata.uid)


async def is_gone(here: Machine, name: str) -> bool:
    try:
        await here.client.get(Node, name)
    except NotFound:
        return True
    return False


async def test_a_silenced_node_reports_nothing_and_is_reached_by_nothing(here: Machine) -> None:
    pod = await running_pod(here, "quiet")
    await here.send("POST", "nodes/node-2/silence")
    silent_since, other = await renewed(here, "node-2"), await renewed(here, "node-1")
    await here.client.delete(Pod, "quiet", "default", grace_seconds=0)
    await here.run("later", FOREVER, nodeName="node-2")

    async def two_heartbeats() -> bool:
        latest = await renewed(here, "node-1")
        return latest is not None and other is not None and latest - other > timedelta(seconds=2)

    await until(two_heartbeats, "node-1 goes on")
    assert await renewed(here, "node-2") == silent_since
    assert has_processes(here, pod)
    assert (await here.client.get(Pod, "later", "default")).status.phase == "Pending"
    with pytest.raises(ApiError, match="node node-2 does not answer"):
        await here.logs("later")
    await here.send("POST", "nodes/node-2/resume")
    await here.phase("later", "Running")
    await eventually(lambda: not has_processes(here, pod))


async def test_a_silenced_node_stays_silent_when_its_agent_is_killed(here: Machine) -> None:
    pod = await running_pod(here, "quiet")
    await here.send("POST", "nodes/node-2/silence")
    silent_since = await renewed(here, "node-2")
    await here.client.delete(Pod, "quiet", "default", grace_seconds=0)
    here.kill()
    here.start()
    await here.run("elsewhere", "exit 0", nodeName="node-1")
    await here.phase("elsewhere", "Succeeded")
    assert (await here.nodes())["node-2"].state == "Silenced"
    assert await renewed(here, "node-2") == silent_since
    assert has_processes(here, pod)
    await here.send("POST", "nodes/node-2/resume")
    await eventually(lambda: not has_processes(here, pod))


async def test_pods_of_a_stopped_node_are_killed_and_nothing_is_reported_until_it_is_on(
    here: Machine,
) -> None:
    batch = await running_pod(here, "batch", restartPolicy="Never")
    service = await running_pod(here, "service", restartPolicy="Always")
    kept = await running_pod(here, "kept", node="node-1")
    await here.send("POST", "nodes/node-2/stop")
    assert [has_processes(here, pod) for pod in (batch, service, kept)] == [False, False, True]
    assert (await here.client.get(Pod, "batch", "default")).status.phase == "Running"
    assert not await is_gone(here, "node-2")
    await here.send("POST", "nodes/node-2/resume")
    failed = await here.phase("batch", "Failed")
    ended = failed.status.container_statuses[0].state.terminated
    assert ended is not None
    assert ended.exit_code == 137
    again = await here.wait("service", lambda pod: pod.status.container_statuses[0].restart_count == 1)
    assert again.status.phase == "Running"
    assert (await here.client.get(Pod, "kept", "default")).status.container_statuses[0].restart_count == 0


async def test_a_node_that_was_stopped_for_a_time_is_switched_on_by_itself(here: Machine) -> None:
    await running_pod(here, "service", restartPolicy="Always")
    await here.send("POST", "nodes/node-2/stop?for=1")
    assert (await here.nodes())["node-2"].state == "Stopped"
    await here.wait("service", lambda pod: pod.status.container_statuses[0].restart_count == 1)
    assert (await here.nodes())["node-2"] == NodeEntry("node-2")


async def test_an_agent_that_was_killed_before_it_stopped_a_node_stops_it(here: Machine) -> None:
    pod = await running_pod(here, "doomed")
    here.kill()
    nodes = NodeSet.of(2, 0).with_entry(NodeEntry("node-2", state="Stopped"))
    write_json(here.state / "nodes.json", nodes)
    assert has_processes(here, pod)
    here.start()
    await eventually(lambda: not has_processes(here, pod))
    assert (await here.client.get(Pod, "doomed", "default")).status.phase == "Running"


async def test_a_pod_that_is_starting_does_not_survive_its_node(here: Machine) -> None:
    for number in range(8):
        await here.run(f"early-{number}", FOREVER, nodeName="node-2")
    await here.send("POST", "nodes/node-2/stop")
    for pod in (await here.client.list(Pod, "default")).items:
        assert not has_processes(here, pod)
    await here.send("POST", "nodes/node-2/resume")
    await here.run("next", FOREVER, nodeName="node-2")
    await here.phase("next", "Running")


async def test_reclaim_is_announced_on_the_node_and_can_be_withdrawn(here: Machine) -> None:
    foreign = {"key": "example.com/taint", "value": "x", "effect": "NoSchedule"}
    await here.client.patch(Node, "node-2", {"spec": {"taints": [foreign]}})
    entry = await here.send("POST", "nodes/node-2/reclaim?in=600&backAfter=20")
    node = await here.client.get(Node, "node-2")
    assert node.metadata.annotations[TERMINATION_DEADLINE] == entry["reclaimAt"]
    deadline = datetime.fromisoformat(node.metadata.annotations[TERMINATION_DEADLINE])
    assert timedelta(seconds=500) < deadline - datetime.now(UTC) < timedelta(seconds=700)
    assert node.metadata.annotations[TERMINATION_SOURCE] == "rehearsal"
    taints = [(taint.key, taint.value, taint.effect) for taint in node.spec.taints]
    assert taints == [tuple(foreign.values()), (TERMINATION_TAINT, "rehearsal", "NoSchedule")]
    await here.send("POST", "nodes/node-2/resume")
    node = await here.client.get(Node, "node-2")
    assert not {TERMINATION_DEADLINE, TERMINATION_SOURCE} & set(node.metadata.annotations)
    assert [taint.key for taint in node.spec.taints] == ["example.com/taint"]
    await here.client.patch(Node, "node-2", {"spec": {"taints": None}})


async def test_announcements_of_others_are_left_alone_when_the_agent_starts(here: Machine) -> None:
    marks = {TERMINATION_DEADLINE: "2030-01-01T00:00:00Z", TERMINATION_SOURCE: "cloud"}
    await here.client.patch(Node, "node-1", {"metadata": {"annotations": marks}})
    stale = {TERMINATION_DEADLINE: "2020-01-01T00:00:00Z", TERMINATION_SOURCE: "rehearsal"}
    await here.client.patch(Node, "node-2", {"metadata": {"annotations": stale}})
    here.kill()
    here.start()

    async def cleaned() -> bool:
        return TERMINATION_SOURCE not in (await here.client.get(Node, "node-2")).metadata.annotations

    await until(cleaned, "the rehearsal of an earlier run is forgotten")
    await here.nodes()
    assert marks.items() <= (await here.client.get(Node, "node-1")).metadata.annotations.items()
    await here.client.patch(Node, "node-1", {"metadata": {"annotations": dict.fromkeys(marks)}})


async def test_a_reclaimed_node_vanishes_at_its_deadline_though_the_agent_is_killed_and_returns_as_new(
    here: Machine,
) -> None:
    pod = await running_pod(here, "lost")
    before = (await here.client.get(Node, "node-2")).metadata.uid
    await here.client.patch(Node, "node-2", {"spec": {"unschedulable": True}})
    await here.send("POST", "nodes/node-2/reclaim?in=1&backAfter=1")
    here.kill()
    here.start()

    async def gone() -> bool:
        return await is_gone(here, "node-2")

    await until(gone, "the Node is deleted")
    assert not (here.state / "pods" / pod.metadata.uid).exists()

    async def back() -> Node | None:
        return None if await gone() else await here.client.get(Node, "node-2")

    node = await until(back, "the node returns")
    assert node.metadata.uid != before
    assert not node.spec.unschedulable
    assert node.spec.taints == []
    assert TERMINATION_DEADLINE not in node.metadata.annotations


async def test_a_reclaimed_node_that_does_not_return_is_not_a_node_any_more(here: Machine) -> None:
    await here.send("POST", "nodes/node-2/reclaim?in=0")

    async def removed() -> bool:
        return "node-2" not in await here.nodes()

    await until(removed, "the node is forgotten")

    async def gone() -> bool:
        return await is_gone(here, "node-2")

    await until(gone, "the Node is deleted")


CHANGES = {
    "stopped": "nodes/node-2/stop",
    "stopped and switched on": "nodes/node-2/stop?for=0",
    "reclaimed and returned": "nodes/node-2/reclaim?in=0&backAfter=0",
    "silenced": "nodes/node-2/silence",
}


@pytest.mark.long
@pytest.mark.parametrize("path", CHANGES.values(), ids=CHANGES.keys())
async def test_an_agent_killed_at_any_time_of_a_change_makes_all_or_nothing_of_it(
    here: Machine, path: str
) -> None:
    for milliseconds in range(0, 60, 4):
        await kill_during_change(here, path, milliseconds / 1000)


async def kill_during_change(here: Machine, path: str, seconds: float) -> None:
    """Kill the agent so many seconds after a change was requested, and check what it makes of it."""
    pod = await running_pod(here, "service", restartPolicy="Always")
    change = asyncio.create_task(here.send("POST", path))
    await asyncio.sleep(seconds)
    here.kill()
    here.start()
    with contextlib.suppress(ApiError):
        await change

    async def settled() -> bool:
        entry = (await here.nodes())["node-2"]
        has_power = entry.state in ("Running", "Silenced")
        return entry.back_at is None and entry.reclaim_at is None and has_processes(here, pod) is has_power

    await until(settled, f"after a kill at {seconds} s the node is what is recorded")
    await here.send("POST", "nodes/node-2/resume")
    await until(lambda: _is_ready(here, "node-2"), "the node is Ready")
    await here.phase("service", "Running")
    await here.client.delete(Pod, "service", "default", grace_seconds=0)
    await eventually(lambda: not has_processes(here, pod))


async def _is_ready(here: Machine, name: str) -> bool:
    return not await is_gone(here, name) and is_ready(await here.client.get(Node, name))


async def test_a_node_can_be_added_used_and_removed(here: Machine) -> None:
    assert await here.send("POST", "nodes?pretendGpus=3") == {"name": "node-3", "pretendGpus": 3}

    await until(lambda: _is_ready(here, "node-3"), "the node is Ready")
    node, other = await here.client.get(Node, "node-3"), await here.client.get(Node, "node-1")
    assert node.status.allocatable["nvidia.com/gpu"] == "3"
    assert node.status.allocatable["memory"] == other.status.allocatable["memory"]
    pod = await running_pod(here, "guest", node="node-3")
    await here.send("DELETE", "nodes/node-3")
    assert await is_gone(here, "node-3")
    assert not (here.state / "pods" / pod.metadata.uid).exists()
    assert (await here.client.get(Pod, "guest", "default")).status.phase == "Running"
    assert "node-3" not in await here.nodes()


async def test_nodes_of_an_earlier_run_are_removed_and_foreign_nodes_stay(here: Machine) -> None:
    await here.send("POST", "nodes?name=extra")
    await here.client.create(Node, {"metadata": {"name": "foreign"}})
    await here.client.create(Node, {"metadata": {"name": "empty", "labels": {LOCAL_NODE: "true"}}})
    pod = await running_pod(here, "guest", node="extra")
    here.kill()
    (here.state / "nodes.json").unlink()  # as `argosy down` does
    here.start()

    async def gone() -> bool:
        return await is_gone(here, "extra") and await is_gone(here, "empty")

    await until(gone, "the Nodes of the earlier run are deleted")
    assert not has_processes(here, pod)
    assert not await is_gone(here, "foreign")
    with pytest.raises(ApiError, match="foreign: the cluster has another Node of this name"):
        await here.send("POST", "nodes?name=foreign")
    await here.client.delete(Node, "foreign")
