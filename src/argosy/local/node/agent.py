"""The agent: pods, names and services of this machine, over one connection to the API server.

It holds nothing that matters: addresses and pods are in the state folder, wishes in the API. Killed and
started again it finds every pod as it is. Pods whose object is gone are ended when it starts. Logs are served
before anything is reported: who reads that a pod has failed may delete it, and must still get its last lines.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.quantity import parse_quantity
from argosy.local.agent_token import agent_token
from argosy.local.networking import EndpointSlice, Service
from argosy.local.node import cgroups, dns, kubelet_server, network
from argosy.local.node.addresses import Addresses
from argosy.local.node.claim_folders import Claims
from argosy.local.node.etc_files import hosts_file, parse_resolver, resolver_file
from argosy.local.node.kinds import ConfigMap, Pod, Secret
from argosy.local.node.node_status import GPU, Machine, gpu_devices
from argosy.local.node.pod_plan import Place, hostname, plan_launch
from argosy.local.node.pod_worker import Worker
from argosy.local.node.proxy import Listener, Proxy, control_plane_socket, listeners
from argosy.local.node.runspec import Launch
from argosy.local.node.service_backends import SERVICE_LABEL, Directory
from argosy.local.node.settings import Settings
from argosy.local.node.shim_manager import Pods, cgroup_of, reap
from argosy.local.node.volume_content import Content
from argosy.local.node.volumes import VolumeError
from argosy.local.storage import PersistentVolumeClaim

log = Logger(__name__)

_TOGETHER = 5.0


class Agent:
    def __init__(
        self, client: Client, settings: Settings, outside: socket.socket | None, machine: Machine
    ) -> None:
        self._client = client
        self._settings = settings
        self._outside = outside
        self._recorder = Recorder(client, "kubelet")
        self._machine = machine
        self._own = set(settings.node_names())
        self._pods = Pods(settings.pods, settings.state / "logs" / "zygote.log", settings.log_patience)
        self._addresses = Addresses(settings.pod_network, self._pods.addresses())
        self._workers: dict[str, Worker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._gpus: dict[str, tuple[str, list[int]]] = {}
        self._host_resolver = _read(Path("/etc/resolv.conf"))
        self._cgroup = cgroup_of(settings.pods)
        self._hierarchy = None if settings.rootless else cgroups.find_usable(self._cgroup)
        self.pods = Cache(client, Pod, indexes={"namespace": _namespace})
        self.services = Cache(client, Service)
        self.slices = Cache(client, EndpointSlice, indexes={"service": _service_of})
        self.config_maps = Cache(client, ConfigMap)
        self.secrets = Cache(client, Secret)
        self.claims = Cache(client, PersistentVolumeClaim)
        self._claim_folders = Claims(client, self.claims, settings.state / "volumes")
        self.directory = Directory(
            self.services.get,
            lambda namespace, name: self.slices.by("service", f"{namespace}/{name}"),
            lambda namespace: self.pods.by("namespace", namespace),
        )
        self._content = Content(client, self.config_maps, self.secrets, settings.state / "pki" / "ca.crt")
        self._proxy = Proxy(settings.bridge, self._endpoints)
        self._services_changed = asyncio.Event()
        self.ready = asyncio.Event()
        """Set when pods can be run and asked for their logs."""
        self._listening = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. Pods are left running."""
        network.ensure_bridge(
            self._settings.bridge, self._settings.gateway, self._settings.pod_network.prefixlen
        )
        upstream = await dns.open_upstream(self._outside, parse_resolver(self._host_resolver)[0])
        zone = dns.Zone(self.directory, self._settings.cluster_domain, self._name_of)
        self.services.subscribe(lambda _: self._services_changed.set())
        self.config_maps.subscribe(self._content_changed)
        self.secrets.subscribe(self._content_changed)
        caches = (self.services, self.slices, self.config_maps, self.secrets, self.claims, self.pods)
        async with asyncio.TaskGroup() as group:
            state = self._settings.state
            socket_path, token = state / "agent.sock", agent_token(state)
            group.create_task(kubelet_server.serve(socket_path, token, self, self._listening))
            await _listened(state / "apiserver.sock")
            for cache in caches:
                group.create_task(cache.run())
            group.create_task(self._serve_services())
            group.create_task(self._reap())
            group.create_task(dns.serve(dns.Responder(zone, upstream), self._settings.gateway))
            for cache in caches:
                await cache.wait_synced()
            await self._listening.wait()
            await self._claim_folders.remove_unclaimed()
            self.claims.subscribe(self._claim_changed)
            for pod in self.pods:
                self._pod_changed(Change(None, pod))
            self.pods.subscribe(self._pod_changed)
            self._end_strays()
            self.ready.set()

    @property
    def starting(self) -> bool:
        return not self.ready.is_set()

    def find(self, namespace: str, name: str, uid: str) -> kubelet_server.Found | None:
        """Where the server finds a pod's logs and socket, and its containers."""
        launch = self._pods.launch_of(uid)
        if launch is not None and (launch["namespace"], launch["name"]) == (namespace, name):
            return kubelet_server.Found(self._pods.of(uid), [plan["name"] for plan in launch["containers"]])
        pod = self.pods.get(namespace, name)
        if pod is None or pod.metadata.uid != uid or pod.spec.node_name not in self._own:
            return None
        named = [container.name for container in [*pod.spec.containers, *pod.spec.init_containers]]
        return kubelet_server.Found(self._pods.of(uid), named)

    async def prepare(self, pod: Pod) -> Launch:
        """Address, files, volumes and the launch record of a pod."""
        uid = pod.metadata.uid
        folder = self._pods.of(uid)
        address = self._settings.gateway if pod.spec.host_network else self._addresses.of(uid)
        (folder / "etc").mkdir(parents=True, exist_ok=True)
        domain = self._settings.cluster_domain
        (folder / "etc" / "hosts").write_text(hosts_file(pod, address, domain))
        (folder / "etc" / "hostname").write_text(hostname(pod) + "\n")
        (folder / "etc" / "resolv.conf").write_text(
            resolver_file(pod, self._settings.gateway, domain, self._host_resolver)
        )
        sources = await self._content.sources(
            pod, self.services, self._settings.gateway, address, self._machine.allocatable()
        )
        await self._content.write_volumes(pod, folder, sources)
        indexes = self._assign_gpus(pod)
        place = Place(
            folder=folder,
            address=address,
            gpus={name: gpu_devices(numbers) for name, numbers in indexes.items()},
            gpu_indexes=indexes,
            claims=await self._claim_folders.folders(pod),
            cgroup=f"{self._cgroup}/{uid}" if self._hierarchy else "",
        )
        self._warn(pod)
        return plan_launch(pod, place, sources, self._settings)

    async def refresh(self, pod: Pod) -> float:
        sources = await self._content.sources(
            pod, self.services, self._settings.gateway, pod.status.pod_ip, self._machine.allocatable()
        )
        return await self._content.write_volumes(pod, self._pods.of(pod.metadata.uid), sources)

    def release(self, uid: str) -> None:
        self._addresses.release(uid)
        self._gpus.pop(uid, None)
        self._content.forget(uid)
        if self._hierarchy and not cgroups.remove(self._hierarchy, f"{self._cgroup}/{uid}"):
            raise OSError(f"the cgroup of pod {uid} cannot be removed yet")

    def _warn(self, pod: Pod) -> None:
        """Say what is asked for and not done."""
        asked = [c.name for c in pod.spec.containers if any(m.mount_propagation for m in c.volume_mounts)]
        if asked:
            self._recorder.event(
                pod, "Warning", "Unsupported", f"mountPropagation of {', '.join(asked)} is ignored"
            )
        if pod.spec.host_pid:
            self._recorder.event(
                pod, "Warning", "Unsupported", "hostPID is ignored: a pod has its own processes"
            )

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            gone = change.old
            worker = self._workers.get(gone.metadata.uid) if gone else None
            if worker:
                worker.vanish()
            return
        if pod.spec.node_name not in self._own:
            return
        worker = self._workers.get(pod.metadata.uid)
        if worker:
            worker.update(pod)
            return
        worker = Worker(
            pod, self._client, self._recorder, self._pods, self, self._settings.gateway, self.pods.put
        )
        self._workers[pod.metadata.uid] = worker
        self._spawn(worker)

    def _spawn(self, worker: Worker) -> None:
        task = asyncio.get_running_loop().create_task(worker.run())
        self._tasks.add(task)

        def done(finished: asyncio.Task[None]) -> None:
            self._tasks.discard(finished)
            self._workers.pop(worker.uid, None)
            if not finished.cancelled() and (error := finished.exception()):
                log.error("a pod's worker failed", pod=worker.pod.metadata.name, exc_info=error)

        task.add_done_callback(done)

    def _end_strays(self) -> None:
        """Pods that have a folder but no object any more, or one on a node that is not ours."""
        known = {pod.metadata.uid for pod in self.pods if pod.spec.node_name in self._own}
        for uid in self._pods.known():
            launch = self._pods.launch_of(uid)
            if uid not in known and launch is not None:
                log.info("ending a pod whose object is gone", pod=f"{launch['namespace']}/{launch['name']}")
                self._spawn(_stray(uid, launch, self))

    def worker_for(self, pod: Pod) -> Worker:
        return Worker(
            pod, self._client, self._recorder, self._pods, self, self._settings.gateway, lambda _: None
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
                worker.content_changed()

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
        """The service or pod behind an address, for reverse lookups."""
        for service in self.services:
            if service.spec.cluster_ip == address:
                return f"{service.metadata.name}.{service.metadata.namespace}.svc"
        for pod in self.pods:
            if pod.status.pod_ip == address and pod.spec.subdomain and pod.spec.hostname:
                return f"{pod.spec.hostname}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc"
        return None

    def _assign_gpus(self, pod: Pod) -> dict[str, list[int]]:
        """Real GPUs for each container that asks; nothing for pretend ones."""
        node, uid = pod.spec.node_name, pod.metadata.uid
        if not self._machine.gpus.get(node):
            return {}
        taken = {i for other, (_, held) in self._gpus.items() if other != uid for i in held}
        free = [index for index in self._machine.gpus[node] if index not in taken]
        given: dict[str, list[int]] = {}
        for container in pod.spec.containers:
            count = int(parse_quantity(container.resources.limits.get(GPU, 0)))
            if count > len(free):
                raise VolumeError(f"{count} GPUs asked for, {len(free)} free on {node}")
            given[container.name], free = free[:count], free[count:]
        self._gpus[uid] = (node, [index for held in given.values() for index in held])
        return given

    async def _reap(self) -> None:
        while True:
            reap()
            await asyncio.sleep(1.0)


async def _listened(path: Path) -> None:
    """Until somebody listens there, within reason: both start together, and a failed watch pauses longer."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TOGETHER):
            while True:
                try:
                    _, writer = await asyncio.open_unix_connection(path)
                except OSError:
                    await asyncio.sleep(0.01)
                else:
                    writer.close()
                    return


def _stray(uid: str, launch: Launch, agent: Agent) -> Worker:
    meta = ObjectMeta(name=launch["name"], namespace=launch["namespace"], uid=uid)
    worker = agent.worker_for(Pod(metadata=meta))
    worker.vanish()
    return worker


def _namespace(pod: Pod) -> Iterator[str]:
    yield pod.metadata.namespace


def _service_of(one: EndpointSlice) -> Iterable[str]:
    name = one.metadata.labels.get(SERVICE_LABEL)
    return [f"{one.metadata.namespace}/{name}"] if name else []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
