"""The node agent: runs the pods of this machine's nodes and serves their DNS, services and logs.

The agent keeps no state of its own: pods and their addresses are in the state folder, the desired state is in
the API. When a node is attached, also after a restart, it continues with every pod of the node as it is, and
removes pods whose object was deleted. Logs are served before any status is written: a client that sees a
failed pod may delete it, and must still be able to read its last lines.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from argosy.checkpoint.drivers import criu
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.kinds.meta import ObjectMeta
from argosy.local.node import cgroups, dns, kubelet_server, network
from argosy.local.node.addresses import AddressPool
from argosy.local.node.checkpoint_images import CheckpointImages
from argosy.local.node.claim_folders import ClaimFolders
from argosy.local.node.etc_files import parse_resolv_conf, render_hosts, render_resolv_conf
from argosy.local.node.gpu_pool import GpuPool
from argosy.local.node.node_status import Machine, gpu_devices
from argosy.local.node.pod_types import ConfigMap, Pod, PodSpec, Secret
from argosy.local.node.pod_worker import PodWorker
from argosy.local.node.proxy import Listener, Proxy, control_plane_socket, listeners
from argosy.local.node.runspec import RunSpec
from argosy.local.node.runspec_builder import Allocation, build_runspec, hostname
from argosy.local.node.service_backends import SERVICE_LABEL, ServiceDirectory
from argosy.local.node.settings import Settings
from argosy.local.node.shim_manager import ShimManager, pods_cgroup, reap
from argosy.local.node.shim_socket import ShimRequest
from argosy.local.node.volume_content import VolumeContent
from argosy.local.service_types import EndpointSlice, PersistentVolumeClaim, Service
from argosy.wire.messages import HttpError

log = Logger(__name__)

_API_WAIT_SECONDS = 5.0
_ERASE_ATTEMPTS = 500


class Agent:
    def __init__(
        self, client: Client, settings: Settings, outside: socket.socket | None, machine: Machine
    ) -> None:
        self._client = client
        self._settings = settings
        self._host_socket = outside
        self._recorder = Recorder(client, "kubelet")
        self._machine = machine
        self._attached: set[str] = set()
        self.unreachable: set[str] = set()
        """Nodes of this machine that do not answer requests for logs."""
        self._shims = ShimManager(
            settings.pods, settings.state / "logs" / "zygote.log", settings.log_retention
        )
        self._addresses = AddressPool(settings.pod_network, self._shims.addresses())
        self._workers: dict[str, PodWorker] = {}
        self._running: dict[asyncio.Task[None], PodWorker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gpus = GpuPool(machine)
        self._host_resolver = _read(Path("/etc/resolv.conf"))
        self._cgroup = pods_cgroup(settings.pods)
        self._hierarchy = None if settings.rootless else cgroups.find_usable_hierarchy(self._cgroup)
        self.pods = Cache(client, Pod, indexes={"namespace": _namespace})
        self.services = Cache(client, Service)
        self.slices = Cache(client, EndpointSlice, indexes={"service": _service_of})
        self.config_maps = Cache(client, ConfigMap)
        self.secrets = Cache(client, Secret)
        self.claims = Cache(client, PersistentVolumeClaim)
        self._claim_folders = ClaimFolders(client, self.claims, settings.state / "volumes")
        self.directory = ServiceDirectory(
            self.services.get,
            lambda namespace, name: self.slices.by("service", f"{namespace}/{name}"),
            lambda namespace: self.pods.by("namespace", namespace),
        )
        self._content = VolumeContent(
            client, self.config_maps, self.secrets, settings.state / "pki" / "ca.crt"
        )
        self._images = CheckpointImages(settings, outside, self.secrets.get)
        self._proxy = Proxy(settings.bridge, self._endpoints)
        self._services_changed = asyncio.Event()
        self.ready = asyncio.Event()
        """Set when pods can be run and asked for their logs."""
        self.listening = asyncio.Event()
        """Set by the server of logs."""

    async def run(self) -> None:
        """Run until cancelled. Pods keep running."""
        network.bring_up_loopback()
        network.ensure_bridge(
            self._settings.bridge, self._settings.gateway, self._settings.pod_network.prefixlen
        )
        upstream = await dns.open_upstream(self._host_socket, parse_resolv_conf(self._host_resolver)[0])
        zone = dns.Zone(self.directory, self._settings.cluster_domain, self._name_of)
        self.services.subscribe(lambda _: self._services_changed.set())
        self.config_maps.subscribe(self._content_changed)
        self.secrets.subscribe(self._content_changed)
        caches = (self.services, self.slices, self.config_maps, self.secrets, self.claims, self.pods)
        async with asyncio.TaskGroup() as group:
            await _wait_for_listener(self._settings.state / "apiserver.sock")
            for cache in caches:
                group.create_task(cache.run())
            group.create_task(self._serve_services())
            group.create_task(self._reap())
            group.create_task(dns.serve(dns.Responder(zone, upstream), self._settings.gateway))
            for cache in caches:
                await cache.wait_synced()
            await self.listening.wait()
            await self._claim_folders.remove_orphaned()
            self.claims.subscribe(self._claim_changed)
            self.pods.subscribe(self._pod_changed)
            self.ready.set()

    def attach(self, node: str) -> None:
        """Run the pods of a node: continue with those that run, and end those whose object was deleted."""
        if node in self._attached:
            return
        self._attached.add(node)
        self.unreachable.discard(node)
        for pod in self.pods:
            if pod.spec.node_name == node:
                self._pod_changed(Change(None, pod))
        self._remove_orphans(node)

    async def detach(self, node: str) -> None:
        """Leave the pods of a node as they are: nothing is reported of them, and no change reaches them."""
        self._attached.discard(node)
        self.unreachable.add(node)
        tasks = [task for task, worker in self._running.items() if worker.pod.spec.node_name == node]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def power_off(self, node: str) -> None:
        """Kill all pods of a node at once; their files stay."""
        await self.detach(node)
        await self._shims.kill(self._shims.pods_by_node().get(node, []))

    async def erase(self, node: str) -> None:
        """Kill all pods of a node at once and remove their files, as if the machine was gone."""
        await self.power_off(node)
        for uid in self._shims.pods_by_node().get(node, []):
            await self._erase_pod(uid)
        self.unreachable.discard(node)

    async def _erase_pod(self, uid: str) -> None:
        for _ in range(_ERASE_ATTEMPTS):
            try:
                self.release(uid)
                await self._shims.clear(uid, keep_logs=False)
                return
            except OSError:  # the kernel has not ended a process or mount yet
                await asyncio.sleep(0.02)
        log.warning("the files of a pod could not be removed", uid=uid)

    def nodes_with_pods(self) -> list[str]:
        """Return the names of the nodes whose pods have files here."""
        return list(self._shims.pods_by_node())

    async def signal(self, pod: Pod, number: int) -> list[str]:
        """Send a signal to the first process of each running container; return the names of these."""
        return await self._shims.signal(pod.metadata.uid, number)

    @property
    def starting(self) -> bool:
        return not self.ready.is_set()

    def find(self, namespace: str, name: str, uid: str) -> kubelet_server.LocatedPod | None:
        """Locate a pod's folder, which has its logs and socket, and name its containers."""
        runspec, pod = self._shims.runspec_of(uid), self.pods.get(namespace, name)
        if runspec is not None and (runspec["namespace"], runspec["name"]) == (namespace, name):
            node, containers = runspec["node"], [config["name"] for config in runspec["containers"]]
        elif pod is not None and pod.metadata.uid == uid and self._knows(pod.spec.node_name):
            node, containers = pod.spec.node_name, [container.name for container in pod.every_container]
        else:
            return None
        if node in self.unreachable:
            raise HttpError(503, f"node {node} does not answer")
        return kubelet_server.LocatedPod(self._shims.pod_folder(uid), containers)

    def find_pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod of this machine's nodes; raises 503 if its node is silenced."""
        pod = self.pods.get(namespace, name)
        if pod is None or not self._knows(pod.spec.node_name):
            return None
        if pod.spec.node_name in self.unreachable:
            raise HttpError(503, f"node {pod.spec.node_name} does not answer")
        return pod

    async def checkpoint(self, uid: str, request: ShimRequest) -> str:
        """Have a pod's shim write the checkpoint of a container; return the problem, or nothing."""
        return await self._shims.checkpoint(uid, request)

    def _knows(self, node: str) -> bool:
        return node in self._attached or node in self.unreachable

    async def prepare(self, pod: Pod) -> RunSpec:
        """Allocate an address, write the files and volumes of a pod, and build its run spec."""
        uid = pod.metadata.uid
        folder = self._shims.pod_folder(uid)
        address = self._settings.gateway if pod.spec.host_network else self._addresses.allocate(uid)
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        domain = self._settings.cluster_domain
        (folder / "etc" / "hosts").write_text(render_hosts(pod, address, domain))
        (folder / "etc" / "hostname").write_text(hostname(pod) + "\n")
        (folder / "etc" / "resolv.conf").write_text(
            render_resolv_conf(pod, self._settings.gateway, domain, self._host_resolver)
        )
        sources = await self._content.fetch_sources(
            pod, self.services, self._settings.gateway, address, self._machine.allocatable()
        )
        await self._content.write_volumes(pod, folder, sources)
        indexes = self._gpus.assign(pod)
        place = Allocation(
            folder=folder,
            address=address,
            gpus={name: gpu_devices(numbers) for name, numbers in indexes.items()},
            gpu_indexes=indexes,
            claims=await self._claim_folders.folders(pod),
            cgroup=f"{self._cgroup}/{uid}" if self._hierarchy else "",
            restores=await self._images.sources(pod, folder),
            criu=str(criu.find_prefix() or ""),
        )
        self._warn_unsupported(pod)
        return build_runspec(pod, place, sources, self._settings)

    async def refresh(self, pod: Pod) -> float:
        sources = await self._content.fetch_sources(
            pod, self.services, self._settings.gateway, pod.status.pod_ip, self._machine.allocatable()
        )
        return await self._content.write_volumes(pod, self._shims.pod_folder(pod.metadata.uid), sources)

    def release(self, uid: str) -> None:
        self._addresses.release(uid)
        self._gpus.release(uid)
        self._content.forget_tokens(uid)
        if self._hierarchy and not cgroups.remove(self._hierarchy, f"{self._cgroup}/{uid}"):
            raise OSError(f"the cgroup of pod {uid} cannot be removed yet")

    def _warn_unsupported(self, pod: Pod) -> None:
        """Record an event for each requested feature that is ignored."""
        ignored = [c.name for c in pod.spec.containers if any(m.mount_propagation for m in c.volume_mounts)]
        if ignored:
            self._recorder.event(
                pod, "Warning", "Unsupported", f"mountPropagation of {', '.join(ignored)} is ignored"
            )
        if pod.spec.host_pid:
            self._recorder.event(
                pod, "Warning", "Unsupported", "hostPID is ignored: a pod has its own processes"
            )

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            deleted = change.old
            worker = self._workers.get(deleted.metadata.uid) if deleted else None
            if worker:
                worker.mark_deleted()
            return
        if pod.spec.node_name not in self._attached:
            return
        worker = self._workers.get(pod.metadata.uid)
        if worker:
            worker.update(pod)
            return
        worker = PodWorker(
            pod, self._client, self._recorder, self._shims, self, self._settings.gateway, self.pods.put
        )
        self._workers[pod.metadata.uid] = worker
        self._run_worker(worker)

    def _run_worker(self, worker: PodWorker) -> None:
        task = asyncio.get_running_loop().create_task(worker.run())
        self._running[task] = worker

        def done(finished: asyncio.Task[None]) -> None:
            del self._running[finished]
            if self._workers.get(worker.uid) is worker:
                del self._workers[worker.uid]
            if not finished.cancelled() and (error := finished.exception()):
                log.error("a pod's worker failed", pod=worker.pod.metadata.name, exc_info=error)

        task.add_done_callback(done)

    def _remove_orphans(self, node: str) -> None:
        """Remove pods of a node that have a folder but no object."""
        uids = {pod.metadata.uid for pod in self.pods if pod.spec.node_name == node}
        for uid in self._shims.pods_by_node().get(node, []):
            runspec = self._shims.runspec_of(uid)
            if uid not in uids and runspec is not None:
                log.info("ending a pod whose object is gone", pod=f"{runspec['namespace']}/{runspec['name']}")
                self._run_worker(_orphan_worker(uid, runspec, self))

    def worker_for(self, pod: Pod) -> PodWorker:
        return PodWorker(
            pod, self._client, self._recorder, self._shims, self, self._settings.gateway, lambda _: None
        )

    def _claim_changed(self, change: Change[PersistentVolumeClaim]) -> None:
        self._content_changed(change)
        if change.new is None:
            task = asyncio.get_running_loop().create_task(self._claim_folders.claim_changed(change))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _content_changed(
        self, change: Change[ConfigMap] | Change[Secret] | Change[PersistentVolumeClaim]
    ) -> None:
        changed = change.new or change.old
        if changed is None:
            return
        for worker in self._workers.values():
            if worker.pod.metadata.namespace == changed.metadata.namespace and worker.pod.spec.volumes:
                worker.refresh_volumes()

    async def _serve_services(self) -> None:
        try:
            while True:
                await self._services_changed.wait()
                self._services_changed.clear()
                await self._proxy.update(listeners(self.services))
        finally:
            self._proxy.close()

    def _endpoints(self, listener: Listener) -> list[tuple[str, int] | Path]:
        service = self.services.get(listener.namespace, listener.service)
        if service is None:
            return []
        if own := control_plane_socket(service):
            return [self._settings.state / own]
        return [
            (backend.address, backend.ports[listener.name])
            for backend in self.directory.backends(service)
            if backend.ports.get(listener.name)
        ]

    def _name_of(self, address: str) -> str | None:
        """Return the name of the service or pod with this address, for reverse lookups."""
        for service in self.services:
            if service.spec.cluster_ip == address:
                return f"{service.metadata.name}.{service.metadata.namespace}.svc"
        for pod in self.pods:
            if pod.status.pod_ip == address and pod.spec.subdomain and pod.spec.hostname:
                return f"{pod.spec.hostname}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc"
        return None

    async def _reap(self) -> None:
        while True:
            reap()
            await asyncio.sleep(1.0)


async def _wait_for_listener(path: Path) -> None:
    """Wait briefly until the API server listens: both start together, and a failed watch backs off longer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_API_WAIT_SECONDS):
            while True:
                try:
                    _, writer = await asyncio.open_unix_connection(path)
                except OSError:
                    await asyncio.sleep(0.01)
                else:
                    writer.close()
                    return


def _orphan_worker(uid: str, runspec: RunSpec, agent: Agent) -> PodWorker:
    meta = ObjectMeta(name=runspec["name"], namespace=runspec["namespace"], uid=uid)
    worker = agent.worker_for(Pod(metadata=meta, spec=PodSpec(node_name=runspec["node"])))
    worker.mark_deleted()
    return worker


def _namespace(pod: Pod) -> Iterator[str]:
    yield pod.metadata.namespace


def _service_of(endpoint_slice: EndpointSlice) -> Iterable[str]:
    name = endpoint_slice.metadata.labels.get(SERVICE_LABEL)
    return [f"{endpoint_slice.metadata.namespace}/{name}"] if name else []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
