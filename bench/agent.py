"""The node agent: from a value of the metadata service to the annotations of its Node.

It runs on a real kube-apiserver if one has been built, else on Argosy's own. The agent is a process; the
metadata service of GCE and the watch are in this one. The bound is a bare client in this process, which waits
for the same value in the same way and sends one patch.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

from msgspec import Struct

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Node
from argosy.kinds.spot import TERMINATION_DEADLINE
from argosy.wire.client import Client as HttpClient
from argosy.wire.origin import Origin
from bench.figures import Figure
from bench.operator import any_server
from bench.processes import running
from tests.support.clouds.metadata import GceMetadata, serving
from tests.support.servers import Server
from tests.support.waiting import until

PREEMPTED = "instance/preempted"
BOUND_IS = "a bare client that waits for the value and patches the Node"
DEADLINE_SECONDS = 60.0


class Sizes(Struct, frozen=True):
    rounds: int = 9


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, any_server(Path(folder)) as server:
        yield from measure_on(server, Sizes())


def measure_on(server: Server, sizes: Sizes) -> Iterator[Figure]:
    times, bounds = asyncio.run(_measure(server, sizes))
    yield Figure("agent_notice_s", median(times), "s", median(bounds), BOUND_IS, 1.0)
    yield Figure("agent_notice_max_s", max(times), "s", max(bounds), BOUND_IS, 1.0)


async def _measure(server: Server, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Return the seconds of each round: of the agent, and of the bare client."""
    cloud, bare_cloud = GceMetadata(), GceMetadata()
    async with (
        serving(cloud.handle) as metadata,
        serving(bare_cloud.handle) as bare_metadata,
        Client(Connection.from_kubeconfig(server.kubeconfig)) as client,
        _WatchedNode.watching(client, "vm-agent") as node,
        _WatchedNode.watching(client, "vm-bare") as bare_node,
    ):
        command = [sys.executable, "-m", "argosy", "agent", "--notices=gce", "--no-checkpoints"]
        command += [f"--node={node.name}", f"--kubeconfig={server.kubeconfig}"]
        with running([*command, f"--metadata-endpoint={metadata}"], stderr=subprocess.DEVNULL):
            await _until_polled(cloud, 2)
            times = [await _preempt(cloud, node, polls=2) for _ in range(sizes.rounds)]
        bare = asyncio.create_task(_bare_client(bare_metadata, client, bare_node.name))
        await _until_polled(bare_cloud, 1)
        bounds = [await _preempt(bare_cloud, bare_node, polls=1) for _ in range(sizes.rounds)]
        bare.cancel()
        await asyncio.gather(bare, return_exceptions=True)
        return times, bounds


async def _preempt(cloud: GceMetadata, node: "_WatchedNode", polls: int) -> float:
    """Return the seconds from a preemption until a watch shows the deadline; then withdraw it."""
    start = time.monotonic()
    await cloud.preempt()
    await node.wait_for(announced=True)
    seconds = time.monotonic() - start
    await _until_polled(cloud, polls)
    await cloud.set(PREEMPTED, "FALSE")
    await node.wait_for(announced=False)
    await _until_polled(cloud, polls)
    return seconds


async def _until_polled(cloud: GceMetadata, polls: int) -> None:
    async def is_polled() -> bool:
        return cloud.long_polls == polls

    await until(is_polled, f"{polls} requests wait for a change", DEADLINE_SECONDS)


async def _bare_client(metadata: str, client: Client, node: str) -> None:
    """Wait for changes of the value, and patch the Node with each."""
    http = HttpClient(Origin.from_url(metadata))
    target, etag = f"/computeMetadata/v1/{PREEMPTED}", ""
    try:
        while True:
            query = f"?wait_for_change=true&timeout_sec=60&last_etag={etag}" if etag else ""
            headers = {"Metadata-Flavor": "Google"}
            response = await http.send("GET", target + query, headers, None, timeout=70.0)
            etag = response.headers["ETag"]
            value = "2030-01-01T00:00:00Z" if response.body == b"TRUE" else None
            await client.patch(Node, node, {"metadata": {"annotations": {TERMINATION_DEADLINE: value}}})
    finally:
        await http.close()


class _WatchedNode:
    """A Node whose annotations are watched."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._cache = Cache(client, Node, fields=f"metadata.name={name}")
        self._changed = asyncio.Event()
        self._cache.subscribe(lambda _: self._changed.set())

    @classmethod
    @asynccontextmanager
    async def watching(cls, client: Client, name: str) -> AsyncIterator["_WatchedNode"]:
        await client.apply(Node, {"metadata": {"name": name}}, force=True)
        node = cls(client, name)
        task = asyncio.create_task(node._cache.run())
        try:
            await node._cache.wait_synced()
            yield node
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_for(self, *, announced: bool) -> None:
        """Wait until the Node has a deadline, or has none."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while self._is_announced != announced:
                self._changed.clear()
                await self._changed.wait()

    @property
    def _is_announced(self) -> bool:
        node = self._cache.get("", self.name)
        return node is not None and TERMINATION_DEADLINE in node.metadata.annotations
