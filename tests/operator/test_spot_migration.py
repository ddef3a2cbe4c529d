"""Operator and agent together: a workload is checkpointed, and a pod restored from its checkpoint."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from argosy.agent.backups import BackupReconciler
from argosy.agent.kubelet import Kubelet
from argosy.agent.objects import OwnNode, OwnPod
from argosy.agent.settings import AgentSettings
from argosy.dialects.migration.targets import StatefulSet
from argosy.engine.cache import Cache
from argosy.engine.certificates import load_certificate
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore, StatefulMigration
from argosy.operator.apis.base import with_setting
from argosy.operator.apis.spot import SPOT
from tests.support.certificates import LOOPBACK, Authority
from tests.support.checkpoint_node import FakeKubelet, node_status
from tests.support.operator_harness import Scene, until_served
from tests.support.raw_server import raw_server
from tests.support.servers import Server


@pytest.fixture
def api(real_apiserver: Server) -> Server:
    """A real API server only: the local one has no StatefulSets."""
    return real_apiserver


@asynccontextmanager
async def agent(scene: Scene, node: str, folder: Path) -> AsyncIterator[FakeKubelet]:
    """A node with a kubelet that makes checkpoints, and its agent."""
    authority = Authority()
    authority_file = folder / "kubelet.crt"
    authority_file.write_bytes(authority.certificate)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(tls, authority.issue(node, LOOPBACK))
    kubelet = FakeKubelet(folder, scene.server.token)
    settings = AgentSettings(
        node=node,
        checkpoint_folder=folder,
        storage_folder=folder / "storage",
        orphan_delay=0.1,
        resume_grace=0.0,
    )
    connection = Connection.from_kubeconfig(scene.server.kubeconfig)
    async with raw_server(kubelet.handle, tls) as server, Client(connection) as client:
        status = node_status(server.port)
        await client.patch(Node, node, {"status": status}, subresource="status")
        nodes = Cache(client, OwnNode, fields=f"metadata.name={node}")
        pods = Cache(client, OwnPod, fields=f"spec.nodeName={node}")
        backups = BackupReconciler(
            client, nodes, pods, Kubelet(connection, authority_file), settings, SystemClock()
        )
        tasks = [asyncio.create_task(task) for task in (nodes.run(), pods.run(), backups.run())]
        try:
            yield kubelet
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def add_workload(scene: Scene) -> None:
    """A StatefulSet with a pod, as its controller would create it."""
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "main", "image": "postgres:16"}]},
    }
    selector = {"matchLabels": {"app": "db"}}
    spec = {"serviceName": "db", "replicas": 1, "selector": selector, "template": template}
    await scene.client.create(StatefulSet, {"metadata": {"name": "db"}, "spec": spec}, scene.namespace)
    pod = {**template, "metadata": {"name": "db-0", "labels": {"app": "db"}}}
    await scene.client.create(Pod, pod, scene.namespace)


async def test_workload_is_checkpointed_and_a_pod_restored(scene: Scene, tmp_path: Path) -> None:
    for kind in (CheckpointBackup, CheckpointRestore, StatefulMigration):
        await until_served(scene.client, kind, scene.namespace)
    spot = SPOT.__class__(**{**vars(SPOT), "settings": with_setting(SPOT.settings, "cluster_name", "here")})
    async with (
        scene.nodes(1) as [node],
        agent(scene, node, tmp_path) as kubelet,
        scene.operator(apis=(spot,)),
    ):
        await add_workload(scene)
        await scene.run_on("db-0", node)
        spec = {
            "resourceRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"},
            "sourceClusters": ["here"],
            "registry": {"url": "127.0.0.1:1", "repository": "team/db"},
            "schedule": "immediately",
        }
        migration = {"metadata": {"name": "move"}, "spec": spec}
        await scene.client.create(StatefulMigration, migration, scene.namespace)

        async def is_built() -> bool:
            listed = await scene.client.list(CheckpointBackup, scene.namespace)
            return [item.status.phase for item in listed.items] == ["ImagePushing"]

        # There is no registry: the image is built and its push repeated.
        await scene.until("the backup is pushed", is_built)
        assert kubelet.dumps == ["main"]
        backup = await scene.client.get(CheckpointBackup, "move-db-0-here", scene.namespace)
        assert backup.status.built_images[0].image_name == "team/db/postgres:16-db-0-main"
        assert backup.status.checkpointed_pod_template["spec"]
        workload = await scene.client.get(StatefulSet, "db", scene.namespace)
        assert workload.metadata.labels == {"checkpoint-migration.dcn.io": "true"}
        done: dict[str, object] = {"status": {"phase": "Completed"}}
        await _restore(scene, "move-db-0-here", done)
        await scene.client.delete(StatefulMigration, "move", scene.namespace)

        async def is_gone() -> bool:
            labelled = (await scene.client.get(StatefulSet, "db", scene.namespace)).metadata.labels
            return not labelled and not (await scene.client.list(StatefulMigration, scene.namespace)).items

        await scene.until("the migration is gone and the label with it", is_gone)


async def _restore(scene: Scene, backup: str, done: dict[str, object]) -> None:
    """Restore a pod from a backup, which waits until the backup is good."""
    images = [{"name": "main", "image": "registry.example/db:restored"}]
    spec = {"backupRef": {"name": backup}, "podName": "db-restored", "containers": images}
    await scene.client.create(
        CheckpointRestore, {"metadata": {"name": "again"}, "spec": spec}, scene.namespace
    )

    async def is_in(phase: str) -> bool:
        return (await scene.client.get(CheckpointRestore, "again", scene.namespace)).status.phase == phase

    await scene.until("the restore waits", lambda: is_in("Pending"))
    await scene.client.patch(CheckpointBackup, backup, done, scene.namespace, subresource="status")
    await scene.until("the pod is restored", lambda: is_in("Restoring"))

    async def is_created() -> bool:
        pods = (await scene.client.list(Pod, scene.namespace)).items
        return any(pod.metadata.name == "db-restored" for pod in pods)

    await scene.until("the pod is created", is_created)
    await scene.report("db-restored", "Running")
    await scene.until("the pod is restored", lambda: is_in("Restored"))
    body = await scene.client.request("GET", Pod.resource.path("db-restored", scene.namespace))
    assert b"registry.example/db:restored" in body
