"""Tests for commands in containers of simulated nodes, through a real kube-apiserver."""

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Pod
from tests.conftest import fresh_name, make_namespace
from tests.support.exec_server import ExecServer
from tests.support.servers import Server
from tests.support.simulator import Simulator
from tests.support.waiting import connections_closed, eventually, until

STDIN = {"no stdin": None, "a short stdin": b"x", "a stdin of many frames": b"x" * 200_000}


@pytest.mark.parametrize("stdin", STDIN.values(), ids=STDIN)
async def test_commands_succeed(real_apiserver: Server, stdin: bytes | None) -> None:
    make_namespace(real_apiserver, namespace := fresh_name())
    body = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "local"}]}}
    async with (
        Client(Connection.from_kubeconfig(real_apiserver.kubeconfig)) as client,
        ExecServer() as server,
        Simulator(client, ["exec-node"], schedule=True, exec_port=server.port) as simulator,
    ):
        await client.create(Pod, body, namespace)

        async def runs() -> bool:
            return (await client.get(Pod, "p", namespace)).status.phase == "Running"

        await until(runs, "the pod runs")
        assert await client.exec("p", namespace, ["true"], container="main", stdin=stdin) == 0
        await eventually(lambda: server.commands == 1)
        await simulator.remove()
    await connections_closed()
