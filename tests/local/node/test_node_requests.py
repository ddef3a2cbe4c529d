"""Requests that change nodes and kill pods are validated, and answered with what was done."""

from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest
import pytest_asyncio

from argosy.engine.errors import ApiError, Forbidden
from argosy.kinds.kubernetes import Pod
from argosy.local.node_set import MAX_NODES, NodeEntry, NodeSet, node_names
from argosy.local.processes import write_json
from tests.support.agents import Machine, machine

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here() -> AsyncIterator[Machine]:
    """One machine for all tests of this module; each leaves it as it was."""
    async with machine() as running:
        yield running


async def test_a_signal_ends_the_containers_of_a_pod_as_a_crash_does(here: Machine) -> None:
    await here.run("victim", "while :; do sleep 0.05; done", nodeName="node-2")
    await here.phase("victim", "Running")
    killed = await here.send("POST", "pods/default/victim/kill")
    assert killed == {"node": "node-2", "containers": ["main"], "restartPolicy": "Never"}
    pod = await here.phase("victim", "Failed")
    ended = pod.status.container_statuses[0].state.terminated
    assert ended is not None
    assert (ended.exit_code, ended.reason) == (137, "Error")
    with pytest.raises(ApiError, match=r"victim: no container is running \(phase Failed\)"):
        await here.send("POST", "pods/default/victim/kill")
    await here.client.delete(Pod, "victim", "default")


REJECTED: dict[str, tuple[str, str, int, str]] = {
    "unknown node: 404 with a suggestion": (
        "POST",
        "nodes/nod-2/silence",
        404,
        'unknown node "nod-2"; did you mean "node-2"? (known nodes: node-1, node-2)',
    ),
    "removal of an unknown node: 404": ("DELETE", "nodes/x", 404, 'unknown node "x"'),
    "unknown action: 404": ("POST", "nodes/node-2/silense", 404, 'did you mean "silence"?'),
    "unknown parameter: 400": ("POST", "nodes/node-2/stop?four=1", 400, "unknown parameter four"),
    "parameter of another action: 400": ("POST", "nodes/node-2/silence?for=1", 400, "unknown parameter for"),
    "time that is no number: 400": ("POST", "nodes/node-2/reclaim?in=soon", 400, 'in: invalid value "soon"'),
    "time that is not finite: 400": ("POST", "nodes/node-2/reclaim?in=nan", 400, "between 0 and 86400"),
    "negative time: 400": ("POST", "nodes/node-2/stop?for=-1", 400, "must be between 0 and 86400"),
    "name that is no label: 400": ("POST", "nodes?name=Node_3", 400, 'name: invalid value "Node_3"'),
    "name with a slash: 400": ("POST", f"nodes?name={quote('../x', safe='')}", 400, "invalid value"),
    "name in use: 409": ("POST", "nodes?name=node-2", 409, "node-2: there is a node of this name (running)"),
    "too many GPUs: 400": ("POST", "nodes?pretendGpus=65", 400, "must be between 0 and 64"),
    "pod that does not exist: 404": ("POST", "pods/default/x/kill", 404, 'unknown pod "x"'),
    "signal that does not exist: 400": ("POST", "pods/default/x/kill?signal=99", 400, "signal: invalid"),
    "path that is not served: 404": ("POST", "machines", 404, "is not served here"),
}


@pytest.mark.parametrize(("method", "path", "code", "message"), REJECTED.values(), ids=REJECTED.keys())
async def test_invalid_requests_are_rejected_and_change_nothing(
    here: Machine, method: str, path: str, code: int, message: str
) -> None:
    before = await here.nodes()
    with pytest.raises(ApiError) as rejected:
        await here.send(method, path)
    assert rejected.value.status == code
    assert message in rejected.value.message
    assert await here.nodes() == before


async def test_only_users_with_rights_to_the_path_may_change_nodes(here: Machine) -> None:
    for method, path in (("GET", "nodes"), ("POST", "nodes"), ("DELETE", "nodes/node-2")):
        with pytest.raises(Forbidden):
            await here.client.request(method, f"/argosy/{path}", headers={"Impersonate-User": "someone"})


async def test_more_nodes_than_a_control_plane_can_have_are_rejected(here: Machine) -> None:
    here.kill()
    full = NodeSet(2, tuple(NodeEntry(name, state="Stopped") for name in node_names(MAX_NODES)))
    write_json(here.state / "nodes.json", full)
    here.start()
    with pytest.raises(ApiError, match="a control plane has at most 64 nodes"):
        await here.send("POST", "nodes")
    here.kill()
    write_json(here.state / "nodes.json", NodeSet.of(2, 0))
    here.start()
