"""Registers the Nodes of this machine, renews their Leases and statuses, and announces their end.

Each node offers all CPUs and an equal part of the memory. Simulated GPUs exist only if requested; real ones
are assigned in turn to the nodes that `argosy up` asked for. A node that is added later offers as much as
they do, so that their capacity never changes; together they then offer more than the machine has.
"""

import asyncio
import os
import platform
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import ClassVar, Final

from msgspec import Struct, field

from argosy import __version__
from argosy.engine.client import Client, PatchType
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Lease, Node
from argosy.kinds.labels import (
    LOCAL_NODE,
    NODE_LIMITATIONS,
    REHEARSAL,
    TERMINATION_DEADLINE,
    TERMINATION_SOURCE,
    TERMINATION_TAINT,
)
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.resource import Resource
from argosy.local.node.settings import Settings
from argosy.local.node_set import NodeEntry, node_names

log = Logger(__name__)

GPU: Final = "nvidia.com/gpu"
_LEASE_NAMESPACE: Final = "kube-node-lease"
_STATUS_SECONDS: Final = 300.0


def find_gpus(devices: Path = Path("/dev")) -> list[int]:
    return sorted(int(path.name[6:]) for path in devices.glob("nvidia[0-9]*") if path.name[6:].isdigit())


def gpu_devices(indexes: Sequence[int], devices: Path = Path("/dev")) -> list[str]:
    """Return the device files that a container with these GPUs needs, including shared ones."""
    if not indexes:
        return []
    shared = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "nvidia-caps")
    return [f"/dev/nvidia{index}" for index in indexes] + [
        f"/dev/{name}" for name in shared if (devices / name).exists()
    ]


class Machine:
    """The resources of this machine."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        # Every node has all cores: they are shared as on any busy machine, so that a job that requests whole
        # cores can be tried on a laptop. Memory cannot be shared like that.
        self.cpu_millis = (os.cpu_count() or 1) * 1000
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.memory = pages // settings.nodes
        gpus = find_gpus()
        names = node_names(settings.nodes)
        self.gpus: dict[str, list[int]] = {
            name: gpus[number :: len(names)] for number, name in enumerate(names)
        }

    def capacity(self, node: NodeEntry) -> dict[str, str]:
        count = len(self.gpus.get(node.name, ())) or node.pretend_gpus
        millis = self.cpu_millis
        amounts = {
            "cpu": str(millis // 1000) if millis % 1000 == 0 else f"{millis}m",
            "memory": f"{self.memory // 1024}Ki",
            "ephemeral-storage": f"{_disk(self._settings.state) // 1024}Ki",
            "pods": str(self._settings.pods_per_node),
        }
        return amounts | ({GPU: str(count)} if count else {})

    def allocatable(self) -> dict[str, Decimal]:
        return {"cpu": Decimal(self.cpu_millis) / 1000, "memory": Decimal(self.memory)}


class _TaintedSpec(Struct):
    taints: list[Json] = field(default_factory=list)


class _TaintedNode(Struct):
    """A Node with complete taints, to change one of them."""

    resource: ClassVar[Resource] = Node.resource

    metadata: ObjectMeta
    spec: _TaintedSpec = field(default_factory=_TaintedSpec)


class NodeRegistrar:
    def __init__(self, client: Client, settings: Settings, machine: Machine, notes: Sequence[str]) -> None:
        self._client = client
        self._settings = settings
        self._machine = machine
        self._notes = notes
        self._boot_id = _read("/proc/sys/kernel/random/boot_id")
        self._entries: dict[str, NodeEntry] = {}
        self._heartbeats: dict[str, tuple[asyncio.Task[None], asyncio.Event]] = {}

    async def registered(self) -> list[str]:
        """Return the names of the Nodes that this or an earlier agent has registered."""
        nodes = await self._client.list(Node, labels=f"{LOCAL_NODE}=true")
        return [node.metadata.name for node in nodes.items]

    async def exists(self, name: str) -> bool:
        """Return True if there is a Node of this name, whoever registered it."""
        try:
            await self._client.get(Node, name)
        except NotFound:
            return False
        return True

    def start(self, entry: NodeEntry, group: asyncio.TaskGroup) -> None:
        """Register a node and renew it until `stop`."""
        self._entries[entry.name] = entry
        if entry.name not in self._heartbeats:
            stopping = asyncio.Event()
            task = group.create_task(self._maintain(entry.name, stopping))
            self._heartbeats[entry.name] = (task, stopping)

    async def stop(self, name: str) -> None:
        """Stop renewing a node; waits for requests that were sent, which would renew or register it."""
        if name in self._heartbeats:
            task, stopping = self._heartbeats.pop(name)
            stopping.set()
            await asyncio.wait((task,))

    async def delete(self, name: str) -> None:
        """Delete a node that has been stopped, with its Lease."""
        with suppress(NotFound):
            await self._client.delete(Node, name)
        with suppress(NotFound):
            await self._client.delete(Lease, name, _LEASE_NAMESPACE)

    async def announce(self, entry: NodeEntry) -> None:
        """Announce the end of a node as its entry says, or withdraw that."""
        self._entries[entry.name] = entry
        with suppress(NotFound):  # it is announced when the Node is registered
            await self._write_announcement(entry)

    async def _maintain(self, name: str, stopping: asyncio.Event) -> None:
        """Register a node, then renew it. Errors of the API server are retried soon."""
        written, since = 0.0, _now()
        loop = asyncio.get_running_loop()
        while not stopping.is_set():
            pause = self._settings.heartbeat
            try:
                if loop.time() - written > _STATUS_SECONDS or written == 0.0:
                    await self._register(self._entries[name], since)
                    written = loop.time()
                await self._renew(name)
            except NotFound:
                written, pause = 0.0, 0.2
            except ApiError as error:
                log.warning("a heartbeat failed", node=name, error=str(error))
                written, pause = 0.0, min(1.0, pause)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stopping.wait()

    async def _register(self, entry: NodeEntry, since: str) -> None:
        body: Json = {
            "metadata": {
                "name": entry.name,
                "labels": self._labels(entry),
                "annotations": {NODE_LIMITATIONS: "; ".join(self._notes)},
            }
        }
        exists = False
        try:
            await self._client.create(Node, body)
        except AlreadyExists:
            exists = True
            await self._client.patch(Node, entry.name, {"metadata": body["metadata"]})
        if exists or entry.reclaim_at is not None:
            await self._write_announcement(entry)
        status = self._status(entry, since)
        await self._client.patch(
            Node, entry.name, {"status": status}, type=PatchType.STRATEGIC, subresource="status"
        )

    async def _write_announcement(self, entry: NodeEntry) -> None:
        """Write the deadline of a node and its taint, or remove those of an earlier rehearsal."""
        marks: Json = {TERMINATION_DEADLINE: None, TERMINATION_SOURCE: None}
        taint: list[Json] = []
        if entry.reclaim_at is not None:
            marks = {TERMINATION_DEADLINE: _text(entry.reclaim_at), TERMINATION_SOURCE: REHEARSAL}
            taint = [{"key": TERMINATION_TAINT, "value": REHEARSAL, "effect": "NoSchedule"}]
        while True:
            node = await self._client.get(_TaintedNode, entry.name)
            if not taint and node.metadata.annotations.get(TERMINATION_SOURCE) != REHEARSAL:
                return
            taints = [item for item in node.spec.taints if item["key"] != TERMINATION_TAINT] + taint
            metadata = {"resourceVersion": node.metadata.resource_version, "annotations": marks}
            try:
                await self._client.patch(
                    Node, entry.name, {"metadata": metadata, "spec": {"taints": taints or None}}
                )
                return
            except Conflict:
                continue

    async def _renew(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Json = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self._client.patch(Lease, name, {"spec": spec}, _LEASE_NAMESPACE)
        except NotFound:
            await self._client.create(Lease, {"metadata": {"name": name}, "spec": spec}, _LEASE_NAMESPACE)

    def _labels(self, entry: NodeEntry) -> dict[str, str]:
        labels = {
            "kubernetes.io/hostname": entry.name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
            LOCAL_NODE: "true",
        }
        return labels | ({"nvidia.com/gpu.present": "true"} if GPU in self._machine.capacity(entry) else {})

    def _status(self, entry: NodeEntry, since: str) -> Json:
        now, capacity = _now(), self._machine.capacity(entry)
        states = {
            "MemoryPressure": (
                "False",
                "KubeletHasSufficientMemory",
                "the node has sufficient memory available",
            ),
            "DiskPressure": ("False", "KubeletHasNoDiskPressure", "the node has no disk pressure"),
            "PIDPressure": ("False", "KubeletHasSufficientPID", "the node has sufficient PIDs available"),
            "Ready": ("True", "KubeletReady", "; ".join(["the node runs pods", *self._notes])),
        }
        return {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {
                    "type": kind,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": since,
                }
                for kind, (status, reason, message) in states.items()
            ],
            "addresses": [
                {"type": "InternalIP", "address": self._settings.gateway},
                {"type": "Hostname", "address": entry.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": _read("/etc/machine-id") or self._boot_id.replace("-", ""),
                "systemUUID": self._boot_id,
                "bootID": self._boot_id,
                "kernelVersion": platform.release(),
                "osImage": _os_name(),
                "containerRuntimeVersion": f"argosy://{__version__}",
                "kubeletVersion": f"v{__version__}",
                "kubeProxyVersion": f"v{__version__}",
                "operatingSystem": "linux",
                "architecture": _architecture(),
            },
        }


def _now() -> str:
    return _text(datetime.now(UTC))


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _os_name() -> str:
    exists = Path("/etc/os-release").exists()
    return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux") if exists else ""


def _disk(folder: Path) -> int:
    usage = os.statvfs(folder)
    return usage.f_blocks * usage.f_frsize


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
