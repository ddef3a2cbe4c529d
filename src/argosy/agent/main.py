"""Runs a node agent until it is stopped.

It caches its own Node, the pods there and, with checkpoints, all CheckpointBackups. It needs no Lease: each
agent writes objects of its own node, and what any agent may do is safe to do twice.
"""

import asyncio
import signal
from contextlib import AsyncExitStack

from argosy.agent.backups import BackupReconciler
from argosy.agent.capability import CapabilityLabel
from argosy.agent.kubelet import Kubelet
from argosy.agent.notices.detect import detect_cloud, new_source
from argosy.agent.notices.publisher import NoticePublisher
from argosy.agent.objects import OwnNode, OwnPod
from argosy.agent.settings import AgentSettings
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.kubeconfig import Connection
from argosy.engine.logs import Logger, configure_logging

log = Logger(__name__)


async def run(settings: AgentSettings) -> None:
    """Run a node agent until SIGTERM or SIGINT."""
    configure_logging(settings.log_format, settings.log_level)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    agent = asyncio.create_task(run_agent(settings, _connect(settings)))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((agent, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if stop.is_set():
        log.info("stopping")
        agent.cancel()
        await asyncio.gather(agent, return_exceptions=True)
    else:
        agent.result()


async def run_agent(settings: AgentSettings, connection: Connection) -> None:
    """Serve one node until cancelled."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(connection, field_manager="argosy-agent"))
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        nodes = Cache(client, OwnNode, fields=f"metadata.name={settings.node}")
        on_node = f"spec.nodeName={settings.node}"
        pods = Cache(client, OwnPod, namespace=settings.namespace, fields=on_node)
        tasks.create_task(nodes.run())
        tasks.create_task(pods.run())
        tasks.create_task(_publish_notices(settings, client, nodes, pods))
        if settings.checkpoints:
            kubelet = Kubelet(connection, settings.kubelet_authority)
            backups = BackupReconciler(client, nodes, pods, kubelet, settings, SystemClock())
            tasks.create_task(backups.run())
            tasks.create_task(CapabilityLabel(client, nodes, kubelet, settings).run())


async def _publish_notices(
    settings: AgentSettings, client: Client, nodes: Cache[OwnNode], pods: Cache[OwnPod]
) -> None:
    """Publish what the machine's cloud announces; return if there is no known cloud or it is turned off."""
    cloud = settings.notices
    if cloud == "auto":
        await nodes.wait_synced()
        node = nodes.get("", settings.node)
        cloud = await detect_cloud(node.spec.provider_id if node else "", settings.metadata_endpoint)
    if cloud in ("", "none"):
        why = "turned off" if settings.notices == "none" else "the machine is in no known cloud"
        log.info("not watching for notices", reason=why)
        return

    def has_gpus() -> bool:
        node = nodes.get("", settings.node)
        return node is not None and node.has_gpus

    log.info("watching for notices", cloud=cloud)
    source = new_source(cloud, settings.metadata_endpoint, has_gpus)
    await NoticePublisher(client, nodes, pods, settings.node, source).run()


def _connect(settings: AgentSettings) -> Connection:
    if settings.kubeconfig is not None or settings.context is not None:
        return Connection.from_kubeconfig(settings.kubeconfig, settings.context)
    return Connection.discover()
