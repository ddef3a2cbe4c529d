"""Registers the Nodes of this machine and renews their Leases and statuses.

Each node offers all CPUs and an equal part of the memory. Simulated GPUs exist only if requested; real ones
are assigned to the nodes in turn.
"""

import asyncio
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Final

from argosy import __version__
from argosy.engine.client import Client, PatchType
from argosy.engine.errors import AlreadyExists, ApiError, NotFound
from argosy.engine.logs import Logger
from argosy.kinds.kubernetes import Lease, Node
from argosy.kinds.labels import DOMAIN, NODE_LIMITATIONS
from argosy.kinds.meta import Json
from argosy.local.node.settings import Settings

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
        names = settings.node_names()
        self.gpus: dict[str, list[int]] = {
            name: gpus[number :: len(names)] for number, name in enumerate(names)
        }

    def capacity(self, node: str) -> dict[str, str]:
        count = len(self.gpus[node]) or self._settings.pretend_gpus
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


class NodeRegistrar:
    def __init__(self, client: Client, settings: Settings, machine: Machine, notes: Sequence[str]) -> None:
        self._client = client
        self._settings = settings
        self._machine = machine
        self._notes = notes
        self._boot_id = _read("/proc/sys/kernel/random/boot_id")
        self._since: dict[str, str] = {}

    async def run(self) -> None:
        await asyncio.gather(*(self._maintain(name) for name in self._settings.node_names()))

    async def _maintain(self, name: str) -> None:
        """Register a node, then renew it for ever. Errors of the API server are retried soon."""
        written = 0.0
        loop = asyncio.get_running_loop()
        while True:
            pause = self._settings.heartbeat
            try:
                if loop.time() - written > _STATUS_SECONDS or written == 0.0:
                    await self._register(name)
                    written = loop.time()
                await self._renew(name)
            except NotFound:
                written, pause = 0.0, 0.2
            except ApiError as error:
                log.warning("a heartbeat failed", node=name, error=str(error))
                written, pause = 0.0, min(1.0, pause)
            await asyncio.sleep(pause)

    async def _register(self, name: str) -> None:
        body: Json = {
            "metadata": {
                "name": name,
                "labels": self._labels(name),
                "annotations": {NODE_LIMITATIONS: "; ".join(self._notes)},
            }
        }
        try:
            await self._client.create(Node, body)
        except AlreadyExists:
            await self._client.patch(Node, name, {"metadata": body["metadata"]})
        await self._client.patch(
            Node, name, {"status": self._status(name)}, type=PatchType.STRATEGIC, subresource="status"
        )

    async def _renew(self, name: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Json = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now}
        try:
            await self._client.patch(Lease, name, {"spec": spec}, _LEASE_NAMESPACE)
        except NotFound:
            await self._client.create(Lease, {"metadata": {"name": name}, "spec": spec}, _LEASE_NAMESPACE)

    def _labels(self, name: str) -> dict[str, str]:
        labels = {
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": _architecture(),
            f"{DOMAIN}/local": "true",
        }
        return labels | ({"nvidia.com/gpu.present": "true"} if GPU in self._machine.capacity(name) else {})

    def _status(self, name: str) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        since = self._since.setdefault(name, now)
        capacity = self._machine.capacity(name)
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
                {"type": "Hostname", "address": name},
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


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())


def _os_name() -> str:
    known = Path("/etc/os-release").exists()
    return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux") if known else ""


def _disk(folder: Path) -> int:
    usage = os.statvfs(folder)
    return usage.f_blocks * usage.f_frsize


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
