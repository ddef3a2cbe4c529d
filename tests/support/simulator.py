"""Simulates the kubelets of any number of nodes, for tests with thousands of pods.

It registers nodes and renews their leases; pods bound to them become Running with an address, ready
containers and the usual conditions; they end when an annotation says so, and vanish when they are deleted.
On an API server without a scheduler it can also bind pods itself, round robin. A pod costs two small
writes, or three with binding.

Annotations of a pod:
    simulator.argosy.dev/start-seconds   seconds from bound to Running (default 0)
    simulator.argosy.dev/run-seconds     seconds from Running to its end (default: it does not end)
    simulator.argosy.dev/exit-code       exit code of its containers then (default 0)
    simulator.argosy.dev/until-released  it runs until its namespace has the annotation
                                         simulator.argosy.dev/released
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import IPv4Address
from itertools import count, cycle
from typing import ClassVar

from msgspec import Struct, field

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.engine.objects import key_of
from argosy.engine.queue import Queue
from argosy.kinds.kubernetes import Lease, Namespace, Node
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

Json = dict[str, object]

START_SECONDS = "simulator.argosy.dev/start-seconds"
RUN_SECONDS = "simulator.argosy.dev/run-seconds"
EXIT_CODE = "simulator.argosy.dev/exit-code"
UNTIL_RELEASED = "simulator.argosy.dev/until-released"
RELEASED = "simulator.argosy.dev/released"
LEASE_NAMESPACE = "kube-node-lease"
BEATS = 10
"""Groups of nodes that renew their leases together."""


class _Container(Struct, rename="camel"):
    name: str = ""
    restart_policy: str = ""


class _Spec(Struct, rename="camel"):
    node_name: str = ""
    containers: list[_Container] = field(default_factory=list)
    init_containers: list[_Container] = field(default_factory=list)


class _Status(Struct, rename="camel"):
    phase: str = "Pending"
    start_time: datetime | None = None
    pod_ip: str = field(default="", name="podIP")


class Pod(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


class Remove(Struct, frozen=True):
    """Remove the pod: its containers have ended."""


class Bind(Struct, frozen=True):
    """The pod has no node yet."""


class Become(Struct, frozen=True):
    phase: str
    exit_code: int = 0


class Later(Struct, frozen=True):
    seconds: float


def next_step(
    pod: Pod, now: datetime, *, schedule: bool, released: bool = False
) -> Remove | Bind | Become | Later | None:
    """Return what a kubelet would do about the pod now; `released` is true if its namespace is. Pure."""
    meta, phase, notes = pod.metadata, pod.status.phase, pod.metadata.annotations
    over = phase in ("Succeeded", "Failed")
    if not pod.spec.node_name:
        return Bind() if schedule and meta.deletion_timestamp is None else None
    if meta.deletion_timestamp is not None:
        if not over and meta.finalizers:
            return Become("Failed", 137)
        return Remove() if meta.deletion_grace_period_seconds else None
    if phase == "Pending":
        return _when(now, meta.creation_timestamp, notes.get(START_SECONDS, "0"), Become("Running"))
    code = int(notes.get(EXIT_CODE, "0"))
    end = Become("Failed" if code else "Succeeded", code)
    if over:
        return None
    if UNTIL_RELEASED in notes:
        return end if released else None
    if RUN_SECONDS not in notes:
        return None
    return _when(now, pod.status.start_time, notes[RUN_SECONDS], end)


def _when(now: datetime, since: datetime | None, seconds: str, step: Become) -> Become | Later:
    left = ((since or now) + timedelta(seconds=float(seconds)) - now).total_seconds()
    return Later(left) if left > 0 else step


class Simulator:
    """`async with Simulator(client, 10): …` simulates ten nodes and their pods during the block."""

    def __init__(
        self,
        client: Client,
        nodes: int | Sequence[str],
        *,
        allocatable: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        schedule: bool = False,
        exec_port: int = 0,
        heartbeat: float = 10.0,
        clock: Clock = SystemClock(),
    ) -> None:
        """`exec_port`: where an `ExecServer` answers commands in the containers of all nodes; 0 for none."""
        names = [f"sim-{number}" for number in range(nodes)] if isinstance(nodes, int) else list(nodes)
        self.nodes: dict[str, bool] = dict.fromkeys(names, True)
        """The nodes; False if the node is unreachable."""
        self._client = client
        self._allocatable = {"cpu": "64", "memory": "256Gi", "pods": "500"} | dict(allocatable or {})
        self._labels = dict(labels or {})
        self._schedule = schedule
        self._exec_port = exec_port
        self._heartbeat = heartbeat
        self._clock = clock
        self._pods = Cache(client, Pod)
        # No cooldown: a kubelet does not wait between two steps of a pod.
        self._controller: Controller[Key] = Controller(
            "simulator", self._step, concurrency=64, queue=Queue(max_cooldown=0.0)
        )
        self._addresses = (IPv4Address("10.88.1.0") + number for number in count())
        self._turn = cycle(names)
        self._tasks: list[asyncio.Task[None]] = []
        self._namespaces = Cache(client, Namespace)
        self._pods.subscribe(self._changed)
        self._namespaces.subscribe(self._namespace_changed)

    async def __aenter__(self) -> "Simulator":
        await self._register()
        self._tasks = [
            asyncio.create_task(work)
            for work in (self._pods.run(), self._namespaces.run(), self._controller.run(), self._beat())
        ]
        await self._pods.wait_synced()
        await self._namespaces.wait_synced()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def silence(self, node: str) -> None:
        """Make the node unreachable: it renews no lease and its pods do not change."""
        self.nodes[node] = False

    async def revive(self, node: str) -> None:
        """Make an unreachable node ready again; its pods continue."""
        self.nodes[node] = True
        await self._say_ready(node)
        await self._renew(node)
        for pod in self._pods:
            if pod.spec.node_name == node:
                self._controller.enqueue(Key(pod.metadata.namespace, pod.metadata.name))

    async def remove(self) -> None:
        """Delete the nodes and their leases."""
        await _settle(self._client.delete(Node, name) for name in self.nodes)
        await _settle(self._client.delete(Lease, name, LEASE_NAMESPACE) for name in self.nodes)

    def _changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is not None and self._mine(pod):
            self._controller.enqueue(key_of(pod))

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        """End the waiting pods of a namespace that was released."""
        if change.new is None or RELEASED not in change.new.metadata.annotations:
            return
        for pod in self._pods:
            meta = pod.metadata
            if meta.namespace == change.new.metadata.name and UNTIL_RELEASED in meta.annotations:
                self._controller.enqueue(key_of(pod))

    def _is_released(self, namespace: str) -> bool:
        existing = self._namespaces.get("", namespace)
        return existing is not None and RELEASED in existing.metadata.annotations

    def _mine(self, pod: Pod) -> bool:
        if not pod.spec.node_name:
            return self._schedule
        return self.nodes.get(pod.spec.node_name, False)

    async def _step(self, key: Key) -> Requeue | None:
        pod = self._pods.get(*key)
        if pod is None or not self._mine(pod):
            return None
        now = self._clock.now()
        step = next_step(pod, now, schedule=self._schedule, released=self._is_released(key.namespace))
        try:
            match step:
                case Later(seconds):
                    return Requeue(after=seconds)
                case Bind():
                    await self._bind(pod)
                case Remove():
                    await self._client.delete(
                        Pod, key.name, key.namespace, uid=pod.metadata.uid, grace_seconds=0
                    )
                case Become(phase, code):
                    await self._become(pod, phase, code, now)
        except (NotFound, Conflict):
            return None
        return None

    async def _bind(self, pod: Pod) -> None:
        meta = pod.metadata
        target = {"apiVersion": "v1", "kind": "Node", "name": next(self._turn)}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta.name}, "target": target}
        await self._client.request("POST", Pod.resource.path(meta.name, meta.namespace, "binding"), body=body)

    async def _become(self, pod: Pod, phase: str, code: int, now: datetime) -> None:
        address = pod.status.pod_ip or str(next(self._addresses))
        started = pod.status.start_time or now
        patch = {
            "metadata": {"uid": pod.metadata.uid},
            "status": pod_status(pod, phase, code, address, started, now),
        }
        meta = pod.metadata
        written = await self._client.patch(Pod, meta.name, patch, meta.namespace, subresource="status")
        self._pods.put(written)

    async def _register(self) -> None:
        try:
            await self._client.create(Namespace, {"metadata": {"name": LEASE_NAMESPACE}})
        except AlreadyExists:
            pass
        await asyncio.gather(*(self._register_one(name) for name in self.nodes))

    async def _register_one(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"} | self._labels
        try:
            await self._client.create(Node, {"metadata": {"name": name, "labels": labels}})
        except AlreadyExists:
            pass
        await self._say_ready(name)
        await self._renew(name)

    async def _say_ready(self, name: str) -> None:
        status = node_status(name, self._allocatable, self._clock.now(), self._exec_port)
        await self._client.patch(Node, name, {"status": status}, subresource="status")

    async def _beat(self) -> None:
        """Renew the leases in groups, as nodes that started at different times do."""
        for turn in count():
            await asyncio.sleep(self._heartbeat / BEATS)
            due = list(self.nodes)[turn % BEATS :: BEATS]
            await _settle(self._renew(name) for name in due if self.nodes[name])

    async def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _precise(self._clock.now())}
        try:
            await self._client.patch(Lease, name, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            await self._client.create(Lease, {"metadata": {"name": name}, "spec": spec}, LEASE_NAMESPACE)


def node_status(name: str, allocatable: Mapping[str, str], now: datetime, exec_port: int = 0) -> Json:
    """The status of a healthy node."""
    reachable: Json = {"addresses": [{"type": "Hostname", "address": name}]}
    if exec_port:
        reachable = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": exec_port}},
        }
    return {
        "allocatable": dict(allocatable),
        "capacity": dict(allocatable),
        **reachable,
        "conditions": [
            _node_condition("MemoryPressure", "False", "KubeletHasSufficientMemory", now),
            _node_condition("DiskPressure", "False", "KubeletHasNoDiskPressure", now),
            _node_condition("PIDPressure", "False", "KubeletHasSufficientPID", now),
            _node_condition("Ready", "True", "KubeletReady", now),
        ],
    }


def pod_status(pod: Pod, phase: str, code: int, address: str, started: datetime, now: datetime) -> Json:
    """The status of a pod in this phase."""
    running = phase == "Running"
    ready = "True" if running else "False"
    ended = "" if running else ("PodCompleted" if phase == "Succeeded" else "PodFailed")
    return {
        "phase": phase,
        "podIP": address,
        "podIPs": [{"ip": address}],
        "hostIP": "127.0.0.1",
        "startTime": _whole(started),
        "conditions": [
            _condition("PodScheduled", "True", started),
            _condition("Initialized", "True", started),
            _condition("ContainersReady", ready, now, ended),
            _condition("Ready", ready, now, ended),
        ],
        "containerStatuses": [
            _container_status(container.name, running, code, started, now)
            for container in pod.spec.containers
        ],
        "initContainerStatuses": [
            _container_status(container.name, sidecar and running, 0, started, now)
            for container in pod.spec.init_containers
            for sidecar in [container.restart_policy == "Always"]
        ],
    }


def _container_status(name: str, running: bool, code: int, started: datetime, now: datetime) -> Json:
    if running:
        state: Json = {"running": {"startedAt": _whole(started)}}
    else:
        times = {"startedAt": _whole(started), "finishedAt": _whole(now)}
        reason = "Error" if code else "Completed"
        state = {"terminated": {"exitCode": code, "reason": reason, **times}}
    return {
        "name": name,
        "image": "simulated",
        "imageID": "",
        "ready": running,
        "started": running,
        "restartCount": 0,
        "state": state,
    }


def _condition(type: str, status: str, since: datetime, reason: str = "") -> Json:
    return {"type": type, "status": status, "lastTransitionTime": _whole(since), "reason": reason}


def _node_condition(type: str, status: str, reason: str, now: datetime) -> Json:
    times = {"lastHeartbeatTime": _whole(now), "lastTransitionTime": _whole(now)}
    return {"type": type, "status": status, "reason": reason, "message": f"simulated: {reason}", **times}


def _whole(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def _precise(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def _settle(work: Iterable[Awaitable[object]]) -> None:
    """Await all; errors of the API server are ignored, other errors are raised."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ApiError):
            raise result
