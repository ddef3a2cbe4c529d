"""Runs the agent as a process inside the cluster's namespaces until it is signalled to stop."""

import asyncio
import signal
import socket

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.local.agent_token import agent_token
from argosy.local.node import checkpoint_requests, kernel, kubelet_server
from argosy.local.node.agent import Agent
from argosy.local.node.node_control import NodeControl
from argosy.local.node.node_requests import NodeRequests
from argosy.local.node.node_status import Machine, NodeRegistrar
from argosy.local.node.settings import Settings
from argosy.local.state import State


async def run_agent(settings: Settings, outside: socket.socket, notes: list[str]) -> None:
    """Run until SIGTERM or SIGINT. Pods keep running."""
    kernel.become_subreaper()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    connection = Connection.from_kubeconfig(settings.state / "kubeconfigs" / "node")
    async with Client(connection, user_agent="argosy-node", field_manager="kubelet") as client:
        machine = Machine(settings)
        agent = Agent(client, settings, outside, machine)
        nodes = NodeControl(settings, agent, NodeRegistrar(client, settings, machine, notes))
        running = asyncio.create_task(_work(client, settings, agent, nodes))
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if running.done():
            running.result()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _work(client: Client, settings: Settings, agent: Agent, nodes: NodeControl) -> None:
    """Serve logs and checkpoints, run the agent, and start the nodes once it can run pods."""
    path, token = settings.state / "agent.sock", agent_token(settings.state)
    requests = NodeRequests(nodes, agent)
    checkpoints = checkpoint_requests.CheckpointRequests(settings, agent.find_pod, agent.checkpoint)
    secure = checkpoint_requests.SecureRequests(client, checkpoints)
    checkpoint_requests.remove_unfinished(settings.checkpoints)
    async with asyncio.TaskGroup() as group:
        group.create_task(
            kubelet_server.serve(path, token, agent, requests.answer, checkpoints, agent.listening)
        )
        group.create_task(checkpoint_requests.serve(State(settings.state).kubelet_certificate, secure))
        group.create_task(agent.run())
        await agent.ready.wait()
        group.create_task(nodes.run())
