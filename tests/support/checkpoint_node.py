"""A node as its agent sees it: an API server, a kubelet that writes archives, and a folder for them."""

import asyncio
import io
import ssl
import tarfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from argosy.agent.backups import BackupReconciler
from argosy.agent.kubelet import Kubelet
from argosy.agent.objects import OwnNode, OwnPod
from argosy.agent.settings import AgentSettings
from argosy.engine.cache import Cache
from argosy.engine.certificates import load_certificate
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.credentials import FixedCredentials, Identity
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import Key
from argosy.kinds.migration import CheckpointBackup
from tests.support.certificates import LOOPBACK, Authority
from tests.support.fake_apiserver import FakeServer
from tests.support.raw_server import Call, RawServer, http, http_json, raw_server

Json = dict[str, object]

BACKUPS = "checkpointbackups"
TOKEN = "token-of-the-agent"
NODE = "node-1"


def archive(
    container: str,
    base: str = "registry.example/train:v1",
    size: int = 3000,
    owner: tuple[str, str, str] | None = None,
) -> bytes:
    """Return a checkpoint's archive, with the files that container runtimes write.

    `owner` are namespace, pod and container, as containerd writes them.
    """
    config = msgspec.json.encode({"name": container, "rootfsImageName": base})
    prefix, names = "io.kubernetes.cri", ("sandbox-namespace", "sandbox-name", "container-name")
    annotations = {f"{prefix}.{name}": value for name, value in zip(names, owner or (), strict=False)}
    spec = msgspec.json.encode({"annotations": annotations})
    files = {"config.dump": config, "spec.dump": spec, "checkpoint/pages-1.img": b"p" * size}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


class FakeKubelet:
    """Answers like a kubelet, and writes archives as a container runtime does."""

    def __init__(self, folder: Path, token: str = TOKEN) -> None:
        self.folder = folder
        self._token = token
        self.dumps: list[str] = []
        """Containers of which archives were written."""
        self.answer: bytes | None = None
        """What is answered instead."""
        self.says_items = True

    async def handle(self, call: Call) -> bytes:
        if call.headers.get("authorization") != f"Bearer {self._token}":
            return http(401, b"Unauthorized")
        _, checkpoint, namespace, pod, container = call.path.split("/")
        assert (call.method, checkpoint, call.query) == ("POST", "checkpoint", {"timeout": "300"})
        if self.answer is not None:
            return self.answer
        path = self.folder / archive_name(namespace, pod, container, datetime.now(UTC))
        loop = asyncio.get_running_loop()
        content = archive(container, owner=(namespace, pod, container))
        await loop.run_in_executor(None, path.write_bytes, content)
        self.dumps.append(container)
        return http_json(200, {"items": [str(path)]}) if self.says_items else http(200, b"<html>")


def archive_name(namespace: str, pod: str, container: str, at: datetime) -> str:
    return f"checkpoint-{pod}_{namespace}-{container}-{at.isoformat(timespec='seconds')}.tar"


EXTENSIONS = (
    *("completionTime", "nodeName", "sourcePodUID", "digests", "checkpointedPodTemplate", "size"),
    "lastCompleted",
)
"""Fields of the status that the CRD of stateful-migration-operator does not have."""


class CheckpointServer(FakeServer):
    """An API server with our CRD, or one that drops what its CRD does not have."""

    def __init__(self, *, prunes: bool) -> None:
        super().__init__()
        self._prunes = prunes
        self.deleted: list[str] = []
        """Names of deleted pods."""

    async def remove(self, collection: str, namespace: str, name: str) -> None:
        if collection == "pods":
            self.deleted.append(name)
        await super().remove(collection, namespace, name)

    async def _write(
        self, collection: str, key: tuple[str, str], obj: Json, type: str, old: Json | None
    ) -> Json:
        status = obj.get("status")
        if self._prunes and collection == BACKUPS and isinstance(status, dict):
            obj["status"] = {name: value for name, value in status.items() if name not in EXTENSIONS}
        return await super()._write(collection, key, obj, type, old)


class CheckpointNode:
    """One node, whose agent can be started again and again."""

    def __init__(
        self, api: CheckpointServer, kubelet: FakeKubelet, server: RawServer, ca: bytes, root: Path
    ) -> None:
        self.api = api
        self.kubelet = kubelet
        self.kubelet_server = server
        self.connection = Connection(
            server=f"http://127.0.0.1:{api.port}",
            credentials=FixedCredentials(Identity(token=TOKEN)),
            certificate_authority=ca,
        )
        self.settings = AgentSettings(
            node=NODE,
            checkpoint_folder=kubelet.folder,
            storage_folder=root / "storage",
            resume_grace=0.0,
            orphan_delay=0.0,
        )

    def change(self, **settings: object) -> None:
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]

    async def add_pod(self, name: str = "train-0", *containers: str, **fields: object) -> None:
        status = {"phase": fields.get("phase", "Running")}
        items = [{"name": item, "image": f"registry.example/{item}:v1"} for item in containers or ("main",)]
        spec = {"nodeName": fields.get("node", NODE), "containers": items}
        created = "2026-01-01T00:00:00Z"
        metadata = {
            "name": name,
            "namespace": "research",
            "creationTimestamp": created,
            "labels": {"app": name},
        }
        await self.api.put("pods", {"metadata": metadata, "spec": spec, "status": status})

    async def add_backup(self, name: str = "backup", **spec: object) -> None:
        base = {
            "schedule": "immediately",
            "podRef": {"name": "train-0"},
            "resourceRef": {"apiVersion": "batch/v1", "kind": "Job", "name": "train"},
        }
        created = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        metadata = {
            "name": name,
            "namespace": "research",
            "generation": 1,
            "creationTimestamp": created,
            "labels": {"training.dcnlab.com/spot-instance-job": "train"},
        }
        await self.api.put(BACKUPS, {"metadata": metadata, "spec": {**base, **spec}})

    def backup(self, name: str = "backup") -> CheckpointBackup:
        """Return the backup as the API server has it."""
        [found] = [item for item in self.api.objects(BACKUPS) if meta(item)["name"] == name]
        return msgspec.convert(found, CheckpointBackup)

    def raw(self, name: str = "backup") -> Json:
        [found] = [item for item in self.api.objects(BACKUPS) if meta(item)["name"] == name]
        return found

    def archives(self) -> list[str]:
        return sorted(path.name for path in self.kubelet.folder.iterdir())

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[BackupReconciler]:
        """Start an agent whose reconciles are called by the test."""
        async with Client(self.connection) as client, AsyncExitStack() as stack:
            nodes = Cache(client, OwnNode, fields=f"metadata.name={NODE}")
            pods = Cache(client, OwnPod, fields=f"spec.nodeName={NODE}")
            kubelet = Kubelet(self.connection)
            reconciler = BackupReconciler(client, nodes, pods, kubelet, self.settings, SystemClock())
            running = [asyncio.create_task(cache.run()) for cache in (nodes, pods, reconciler.backups)]

            async def stop() -> None:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

            stack.push_async_callback(stop)
            for cache in (nodes, pods, reconciler.backups):
                await cache.wait_synced()
            yield reconciler

    async def reconcile(self, name: str = "backup") -> float | None:
        """Start an agent, reconcile until nothing is left to do for now, and return when there will be."""
        async with self.agent() as reconciler:
            for _ in range(20):
                requeue = await reconciler.reconcile(Key("research", name))
                if requeue is None or requeue.after is None or requeue.after > 2:
                    return None if requeue is None else requeue.after
        raise AssertionError("the reconcile does not come to an end")


@asynccontextmanager
async def checkpoint_node(root: Path, *, prunes: bool = False) -> AsyncIterator[CheckpointNode]:
    """Run an API server and a kubelet, which has a certificate for the name of its node only."""
    folder = root / "checkpoints"
    await asyncio.to_thread(folder.mkdir)
    kubelet = FakeKubelet(folder)
    authority = Authority()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_certificate(tls, authority.issue(NODE, LOOPBACK))
    api = CheckpointServer(prunes=prunes)
    async with api, raw_server(kubelet.handle, tls) as server:
        await api.put("nodes", {"metadata": {"name": NODE}, "status": node_status(server.port)})
        yield CheckpointNode(api, kubelet, server, authority.certificate, root)


def node_status(kubelet_port: int) -> Json:
    """Return the status of a Node whose kubelet listens on loopback."""
    return {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "nodeInfo": {
            **dict.fromkeys(("bootID", "kernelVersion", "kubeProxyVersion", "kubeletVersion"), "x"),
            **dict.fromkeys(("machineID", "osImage", "systemUUID"), "x"),
            "operatingSystem": "linux",
            "architecture": "amd64",
            "containerRuntimeVersion": "containerd://2.2.1",
        },
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
    }


def meta(obj: Json) -> Json:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return metadata
