"""Reports whether a local control plane is ready and healthy, by requests to its API server."""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd_options import CustomResource
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import NODE_LIMITATIONS
from argosy.local.bootstrap import install
from argosy.local.cluster import ClusterError
from argosy.local.node_set import read_nodes
from argosy.local.processes import Run, read_run
from argosy.local.state import State


class NodeLine(Struct, frozen=True):
    name: str
    ready: bool
    notes: str = ""
    """Features that its pods lack, and why."""


class Report(Struct, frozen=True):
    """The state of a control plane, for `argosy status`."""

    folder: str
    running: bool
    server: str = ""
    kubeconfig: str = ""
    components: dict[str, bool] = field(default_factory=dict)
    nodes: list[NodeLine] = field(default_factory=list)
    disk: str = ""
    """The problem with the disk of the state folder, if any."""

    @property
    def healthy(self) -> bool:
        return (
            self.running
            and not self.disk
            and all(self.components.values())
            and all(node.ready for node in self.nodes)
        )


async def ready(
    state: State,
    run: Run,
    custom_resources: Sequence[type[CustomResource]],
    *,
    timeout: float,
    say: Callable[[str], None],
) -> list[NodeLine]:
    """Wait for the API server, install the CRDs of these kinds, and wait until every node is Ready."""
    deadline = time.monotonic() + timeout
    async with Client(Connection.from_kubeconfig(state.kubeconfig)) as client:
        await _reachable(client, state.logs / "apiserver.log", deadline)
        say(f"API server ready at {_server(run)}")
        try:
            nodes, _ = await asyncio.gather(
                _ready_nodes(client, state, run, deadline), install(client, custom_resources)
            )
        except ApiError as error:
            log = state.logs / "apiserver.log"
            raise ClusterError(f"the API server rejects requests ({error}); see {log}") from error
    if all(node.ready for node in nodes):
        return nodes
    late = ", ".join(node.name for node in nodes if not node.ready)
    raise ClusterError(f"nodes are not ready after {timeout:g} s ({late}); see {state.logs / 'node.log'}")


async def report(state: State) -> Report:
    """Return the present state of the control plane, without waiting for anything."""
    run = read_run(state.run)
    if run is None or not run.supervisor.alive:
        return Report(folder=str(state.folder), running=False)
    alive = {name: process.alive for name, process in run.components.items()}
    nodes: list[NodeLine] = []
    try:
        async with Client(Connection.from_kubeconfig(state.kubeconfig)) as client, asyncio.timeout(5):
            nodes = await _nodes(client)
    except (ApiError, TimeoutError):
        alive["apiserver"] = False
    return Report(str(state.folder), True, _server(run), str(state.kubeconfig), alive, nodes, state.problem())


async def _reachable(client: Client, log: Path, deadline: float) -> None:
    while True:
        try:
            await client.request("GET", "/readyz")
            return
        except ApiError as error:
            if time.monotonic() > deadline:
                raise ClusterError(f"the API server does not answer ({error}); see {log}") from error
        await asyncio.sleep(0.02)


async def _ready_nodes(client: Client, state: State, run: Run, deadline: float) -> list[NodeLine]:
    """Wait until all nodes are Ready that are on and not silenced, or until the deadline; return these."""
    while True:
        entries = read_nodes(state.nodes, run.options.nodes).entries
        present = {node.name: node for node in await _nodes(client)}
        wanted = [entry.name for entry in entries if entry.state == "Running"]
        nodes = [present.get(name, NodeLine(name, ready=False)) for name in wanted]
        if all(node.ready for node in nodes) or time.monotonic() > deadline:
            return nodes
        await asyncio.sleep(0.02)


async def _nodes(client: Client) -> list[NodeLine]:
    listed = await client.list(Node)
    return [
        NodeLine(
            node.metadata.name,
            is_ready(node),
            node.metadata.annotations.get(NODE_LIMITATIONS, ""),
        )
        for node in listed.items
    ]


def is_ready(node: Node) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def _server(run: Run) -> str:
    return f"https://127.0.0.1:{run.options.port}"
