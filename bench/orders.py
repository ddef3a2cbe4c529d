"""Orders to save a checkpoint: from a notice to the pods, and from an acknowledgement to the Record.

It runs on a real kube-apiserver if one has been built, else on Argosy's own. No node runs the pods: this
benchmark writes the statuses of pods and node itself, and runs the sidecars as threads, so that times are
known.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.kubeconfig import Connection
from argosy.helper.endpoint import Endpoint
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.trainingrun import TrainingRun
from bench.figures import Figure
from bench.latency import release_threads
from bench.load import per_second
from bench.operator import any_server, prepare
from bench.processes import operator, running
from tests.support.servers import Server
from tests.support.waiting import until

NAMESPACE = "default"
IN_FLIGHT = 64
DIGEST = f"sha256:{1:064x}"


class Sizes(Struct, frozen=True):
    pods: int = 500
    """Pods of the large job, all of which get the order."""
    rounds: int = 2


class Round(Struct, frozen=True):
    ordered: float
    """Seconds from the change of the node until the last pod of the job has the order."""
    acknowledged: float
    """Seconds from when the first pod acknowledges its checkpoint until the status shows it."""
    write: float
    """Seconds from the start of a write until a watch shows it."""


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, any_server(Path(folder)) as server:
        yield from measure_on(server, Sizes())


def measure_on(server: Server, sizes: Sizes) -> Iterator[Figure]:
    asyncio.run(prepare(server))
    with operator(server, "--no-leader-elect"):
        one = [asyncio.run(_order(server, 1, turn)) for turn in range(sizes.rounds)]
        many = [asyncio.run(_order(server, sizes.pods, turn)) for turn in range(sizes.rounds)]
    writes = median(found.write for found in one)
    bound_is = "two writes, each seen by a watch"
    ordered = median(found.ordered for found in one)
    yield Figure("notice_order_s", ordered, "s", 2 * writes, bound_is, 1.0)
    acknowledged = median(found.acknowledged for found in one)
    yield Figure("checkpoint_ack_s", acknowledged, "s", 2 * writes, bound_is, 1.0)
    bound = min(release_threads(sizes.pods) for _ in range(sizes.rounds))
    bound_is = f"{sizes.pods} threads released through sockets"
    ordered = median(found.ordered for found in many)
    yield Figure(f"notice_order_{sizes.pods}_s", ordered, "s", bound, bound_is, 3.0)


async def _order(server: Server, pods: int, turn: int) -> Round:
    name = f"saves-{pods}-{turn}"
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await client.apply(Node, {"metadata": {"name": name}}, force=True)
        await client.patch(Node, name, {"status": {"conditions": [_READY]}}, subresource="status")
        await client.create(TrainingRun, _job(name, pods), NAMESPACE)
        names = [f"{name}-worker-{index}" for index in range(pods)]
        await until(lambda: _count(client, name, pods), "all pods exist", 120)
        await per_second(pods, lambda number: _set_running(client, names[number]), IN_FLIGHT)
        job = _WatchedJob(client, name)
        async with asyncio.timeout(180):
            await job.wait_for(lambda run: run.status.phase == "Running")
        environment = await _sidecar_environment(client, names[0])
        command = [sys.executable, "-m", "bench.order_listeners", str(pods)]
        with running(command, stdout=subprocess.PIPE, environment=environment) as listeners:
            assert listeners.stdout is not None
            line = await asyncio.to_thread(listeners.stdout.readline)
            assert line == b"waiting\n", line
            write = await _write_and_watch(client, name)
            start = time.monotonic()
            deadline = (datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds")
            annotations = {labels.TERMINATION_DEADLINE: deadline}
            await client.patch(Node, name, {"metadata": {"annotations": annotations}})
            times = (await asyncio.to_thread(listeners.stdout.read)).split()
        assert len(times) == pods, f"only {len(times)} pods got the order"
        acknowledged = await _acknowledge(client, job, names[0], environment)
        await job.close()
        await client.delete(TrainingRun, name, NAMESPACE)
        await per_second(pods, lambda number: _delete(client, names[number]), IN_FLIGHT)
        await client.delete(Node, name)
    return Round(max(map(float, times)) - start, acknowledged, write)


_READY = {"type": "Ready", "status": "True", "reason": "Bench"}


def _job(name: str, pods: int) -> Mapping[str, object]:
    container = {"name": "main", "image": "local", "command": ["train"]}
    template = {"spec": {"containers": [container], "automountServiceAccountToken": False, "nodeName": name}}
    worker = {"replicas": pods, "template": template}
    checkpoint = {"store": "file:///tmp/bench"}
    spec = {"framework": "custom", "roles": {"worker": worker}, "checkpoint": checkpoint}
    return {"metadata": {"name": name}, "spec": spec}


async def _write_and_watch(client: Client, node: str) -> float:
    """Return the seconds from the start of a write until a watch shows it."""
    value = str(time.monotonic())
    watched = Cache(client, Node)
    seen = asyncio.Event()

    def changed(change: Change[Node]) -> None:
        if change.new is not None and change.new.metadata.annotations.get("bench") == value:
            seen.set()

    watched.subscribe(changed)
    watching = asyncio.create_task(watched.run())
    await watched.wait_synced()
    start = time.monotonic()
    await client.patch(Node, node, {"metadata": {"annotations": {"bench": value}}})
    await seen.wait()
    seconds = time.monotonic() - start
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return seconds


async def _acknowledge(client: Client, job: "_WatchedJob", pod: str, environment: Mapping[str, str]) -> float:
    """Acknowledge a checkpoint as a sidecar does; return the seconds until the job's status shows it."""
    uid = (await client.get(Pod, pod, NAMESPACE)).metadata.uid
    created = datetime.now(UTC).isoformat(timespec="seconds")
    epoch = job.order_epoch
    body = {"pod": pod, "uid": uid, "step": 7, "epoch": epoch, "digest": DIGEST, "created": created}
    start = time.monotonic()
    posted = asyncio.create_task(
        asyncio.to_thread(Endpoint.from_environment(environment).post_json, "checkpoints/ack", body, 30.0)
    )
    await job.wait_for(lambda run: run.status.checkpoint is not None and run.status.checkpoint.last_step == 7)
    seconds = time.monotonic() - start
    problem = await posted
    assert not problem, problem
    return seconds


async def _count(client: Client, job: str, pods: int) -> bool:
    return len((await client.list(Pod, NAMESPACE, labels=f"{labels.JOB}={job}")).items) == pods


async def _set_running(client: Client, pod: str) -> None:
    await client.patch(Pod, pod, {"status": {"phase": "Running"}}, NAMESPACE, subresource="status")


async def _delete(client: Client, pod: str) -> None:
    with contextlib.suppress(NotFound):
        await client.delete(Pod, pod, NAMESPACE, grace_seconds=0)


async def _sidecar_environment(client: Client, pod: str) -> Mapping[str, str]:
    """Return the variables of a pod's sidecar that have a value."""
    body = await client.request("GET", Pod.resource.path(pod, NAMESPACE))
    containers = msgspec.json.decode(body, type=_SidecarPod).spec.init_containers
    sidecar = next(found for found in containers if found.name == labels.CHECKPOINT_CONTAINER)
    return {variable.name: variable.value for variable in sidecar.env if variable.value}


class _Variable(Struct):
    name: str
    value: str = ""


class _Sidecar(Struct):
    name: str
    env: list[_Variable] = []


class _SidecarSpec(Struct, rename="camel"):
    init_containers: list[_Sidecar]


class _SidecarPod(Struct):
    spec: _SidecarSpec


class _WatchedJob:
    """The status of one job, watched."""

    def __init__(self, client: Client, name: str) -> None:
        self._name = name
        self._cache = Cache(client, TrainingRun, namespace=NAMESPACE)
        self._changed = asyncio.Event()
        self._cache.subscribe(lambda _: self._changed.set())
        self._watching = asyncio.create_task(self._cache.run())

    async def wait_for(self, condition: Callable[[TrainingRun], bool]) -> None:
        while (run := self._cache.get(NAMESPACE, self._name)) is None or not condition(run):
            self._changed.clear()
            await self._changed.wait()

    @property
    def order_epoch(self) -> int:
        run = self._cache.get(NAMESPACE, self._name)
        order = run.status.argosy.get("order") if run else None
        return int(order["epoch"]) if isinstance(order, dict) else 0

    async def close(self) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
