"""Serves the rehearsal cloud to a cluster; its VMs become Nodes without a kubelet.

A VM joins if the token in its startup script is a bootstrap token of the cluster. From then on its Node is
kept ready, as by a kubelet, until the VM is gone. No pod runs there. Nobody deletes the Node of a VM that is
gone, which a cloud controller manager would do: that is left to the operator.
"""

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from argosy.engine.client import Client
from argosy.engine.codec import Body
from argosy.engine.errors import NotFound
from argosy.engine.kubeconfig import Connection
from argosy.engine.urls import Query
from argosy.kinds.kubernetes import Node
from argosy.local.gce.api import ApiRequest, GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.machines import JoiningMachines
from argosy.local.gce.server import GceServer, utc_now
from tests.support.clouds.strict_gce import StrictGate
from tests.support.cluster.running import RunningCluster

HEARTBEAT_SECONDS = 2.0
"""Shorter than the time after which the clusters of tests call a silent node unknown."""
START_SECONDS = 30.0
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
"""Keeps the operator's own pods away, as on nodes with GPUs in clouds."""


@dataclass
class RentedMachines:
    """The cloud, for a test to look at from another thread."""

    cloud: Cloud
    gate: StrictGate
    endpoint: str

    def vms(self) -> set[str]:
        """Return the names of all VMs that there are."""
        return {name for *_, name in tuple(self.cloud.instances)}

    def requested(self) -> int:
        """Return how many VMs there have been."""
        return len(self.cloud.ever)


@contextmanager
def rented_machines(cluster: RunningCluster) -> Iterator[RentedMachines]:
    """Serve the cloud at the address of the cluster's host for the duration of the block."""
    cloud = Cloud(utc_now, Latency(insert=0.2, boot=0.2, delete=0.2, notice=30))
    gate = StrictGate(is_recorded=lambda request: _is_recorded(cluster, request))
    started, loops, stop = threading.Event(), [], asyncio.Event()
    endpoints: list[str] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        connection = Connection.from_kubeconfig(cluster.server.kubeconfig)
        host = cluster.state.layout.host_address
        async with (
            _NodesWithoutKubelet(connection) as client,
            GceServer(GceApi(cloud, gate)).serving(host=host) as url,
        ):
            machines = JoiningMachines(cloud, client, lambda _line: None, client.keep_ready)
            endpoints.append(url)
            started.set()
            await stop.wait()
            await machines.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(START_SECONDS), "the cloud is not served"
        yield RentedMachines(cloud, gate, endpoints[0])
    finally:
        for loop in loops:
            loop.call_soon_threadsafe(stop.set)
        thread.join(START_SECONDS)


def _is_recorded(cluster: RunningCluster, request: ApiRequest) -> bool:
    words = ("get", "provisionedinstances", "-A", "-o", "jsonpath={.items[*].status.argosy}")
    return str(request.body["name"]) in cluster.kubectl(*words).stdout


class _NodesWithoutKubelet(Client):
    """Adds nodes, as the local control plane does on request, to any other cluster."""

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | str | None = None,
        body: bytes | Body | Sequence[Mapping[str, object]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        if not path.startswith("/argosy/nodes"):
            return await super().request(method, path, query=query, body=body, headers=headers)
        if method == "POST":
            assert isinstance(query, Mapping)
            spec = {"taints": [TAINT]}
            await self.create(Node, {"metadata": {"name": query["name"]}, "spec": spec})
            await self._heartbeat(query["name"], {"nvidia.com/gpu": query["pretendGpus"], "cpu": "4"})
        return b""

    async def keep_ready(self, node: str) -> None:
        """Report that a node is ready until it is deleted."""
        with suppress(NotFound):
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS)
                await self._heartbeat(node, {})

    async def _heartbeat(self, node: str, resources: Mapping[str, str]) -> None:
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
        status: dict[str, object] = {"conditions": [ready]}
        if resources:
            status |= {"capacity": resources, "allocatable": resources}
        await self.patch(Node, node, {"status": status}, subresource="status")
