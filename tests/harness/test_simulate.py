"""Tests for the simulator as a process."""

import asyncio
import sys

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Node
from tests.support.servers import Server


async def test_nodes_are_removed_when_the_process_ends(local_apiserver: Server) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.support.simulate", "--kubeconfig", str(local_apiserver.kubeconfig)),
        *("--nodes", "2", "--remove"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 30) == b"ready\n"
    async with Client(Connection.from_kubeconfig(local_apiserver.kubeconfig)) as client:
        names = {node.metadata.name for node in (await client.list(Node)).items}
        assert {"sim-0", "sim-1"} <= names
        process.stdin.close()
        assert await asyncio.wait_for(process.wait(), 30) == 0
        names = {node.metadata.name for node in (await client.list(Node)).items}
        assert not {"sim-0", "sim-1"} & names
