"""Runs a node agent with its own API server for tests, which bind pods to nodes themselves."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, ApiError, NotFound
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Event, Namespace, Node, Pod, ServiceAccount
from argosy.local.apiserver.kubeconfig import write_kubeconfig
from argosy.local.node_set import NodeEntry
from tests.support.servers import ADMIN, local_apiserver

Json = dict[str, object]


class Machine:
    """The agent's process and a client of its API server."""

    def __init__(self, state: Path, client: Client) -> None:
        self.state = state
        self.client = client
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.state / "logs" / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "argosy.local.node", "--state", str(self.state), "--nodes", "2"),
                    *("--first-backoff", "0.2", "--longest-backoff", "1", "--heartbeat", "1"),
                    *("--log-retention", "3"),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process:
            os.kill(self.process.pid, number)
            self.process.wait()
            self.process = None

    def stop_pods(self) -> None:
        command = [sys.executable, "-m", "argosy.local.node", "--state", str(self.state), "--stop"]
        subprocess.run(command, check=True, timeout=60)

    async def run(self, name: str, script: str, **spec: object) -> None:
        """Create a pod of one container `main` on node-1."""
        container: Json = {"name": "main", "image": "host", "command": ["/bin/sh", "-c", script]}
        extra = spec.pop("container", {})
        labels = spec.pop("labels", {})
        if isinstance(extra, dict):
            container |= extra
        body: Json = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"nodeName": "node-1", "restartPolicy": "Never", "containers": [container], **spec},
        }
        await self.client.create(Pod, body, "default")

    async def wait(self, name: str, condition: Callable[[Pod], object], seconds: float = 20.0) -> Pod:
        """Wait until a pod fulfils the condition; returns it."""
        deadline = time.monotonic() + seconds
        while True:
            pod = await self.client.get(Pod, name, "default")
            if condition(pod):
                return pod
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: {msgspec.json.encode(pod).decode()}")
            await asyncio.sleep(0.02)

    async def phase(self, name: str, phase: str) -> Pod:
        return await self.wait(name, lambda pod: pod.status.phase == phase)

    async def gone(self, name: str, seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                await self.client.get(Pod, name, "default")
            except NotFound:
                return
            await asyncio.sleep(0.02)
        raise TimeoutError(f"{name} is still there")

    async def event(self, name: str, reason: str, seconds: float = 20.0) -> Event:
        """Wait for an Event about a pod; returns it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in (await self.client.list(Event, "default")).items:
                if (event.involved_object.name, event.reason) == (name, reason):
                    return event
            await asyncio.sleep(0.05)
        raise TimeoutError(f"no {reason} about {name}")

    async def send(self, method: str, path: str) -> dict[str, object]:
        """Send a request below `/argosy`, which changes the nodes; returns its response."""
        body = await self.client.request(method, f"/argosy/{path}")
        return msgspec.json.decode(body, type=dict[str, object])

    async def nodes(self) -> dict[str, NodeEntry]:
        return msgspec.convert(await self.send("GET", "nodes"), dict[str, NodeEntry])

    async def logs(self, name: str) -> str:
        pieces = [piece async for piece in self.client.logs(name, "default")]
        return b"".join(pieces).decode()


@contextlib.asynccontextmanager
async def machine() -> AsyncIterator[Machine]:
    """Two ready nodes; ends all processes and removes all files at the end of the block."""
    state = Path(tempfile.mkdtemp(prefix="ay-"))
    try:
        with local_apiserver(state) as server:
            for path in (state / "kubeconfigs" / "node", state / "kubeconfigs" / "test"):
                write_kubeconfig(
                    path, server.url, state / "pki" / "ca.crt", ADMIN.token, state / "apiserver.sock"
                )
            connection = Connection.from_kubeconfig(state / "kubeconfigs" / "test")
            async with Client(connection) as client:
                await _basics(client)
                running = Machine(state, client)
                running.start()
                try:
                    await _nodes_ready(client)
                    yield running
                finally:
                    running.kill()
                    running.stop_pods()
    finally:
        shutil.rmtree(state, ignore_errors=True)


async def _basics(client: Client) -> None:
    """Create the lease namespace and the default ServiceAccount, which controllers would create."""
    for body in ({"metadata": {"name": "default"}}, {"metadata": {"name": "kube-node-lease"}}):
        with contextlib.suppress(AlreadyExists):
            await client.create(Namespace, body)
    with contextlib.suppress(AlreadyExists):
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, "default")


async def _nodes_ready(client: Client, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(ApiError):
            nodes = (await client.list(Node)).items
            if len(nodes) == 2 and all(node.status.conditions for node in nodes):
                return
        await asyncio.sleep(0.05)
    raise TimeoutError("the nodes did not register")
