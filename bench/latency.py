"""Latency from an event to its effect: release of pods that wait for a role, status of jobs on a lost node.

It runs on a real kube-apiserver if one has been built, else on Argosy's own. No node runs the pods: this
benchmark writes the statuses of pods and node itself, so that their times are known.
"""

import asyncio
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.trainingrun import TrainingRun
from bench.figures import Figure
from bench.load import per_second
from bench.operator import any_server, prepare
from bench.processes import operator, running
from tests.support.servers import Server
from tests.support.waiting import until

Kind = type[TrainingRun] | type[AresJob]
KINDS: dict[str, Kind] = {"release_s": TrainingRun, "release_ares_s": AresJob}
NAMESPACE = "default"
NODE = "lost"


class Sizes(Struct, frozen=True):
    waiting_pods: int = 500
    """Pods that wait for the same role."""
    jobs: int = 100
    """Jobs with a pod on the lost node."""
    rounds: int = 3


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, any_server(Path(folder)) as server:
        yield from measure_on(server, Sizes())


def measure_on(server: Server, sizes: Sizes) -> Iterator[Figure]:
    asyncio.run(prepare(server))
    turns = range(sizes.rounds)
    with operator(server, "--no-leader-elect"):
        released = {
            name: median(asyncio.run(_release(server, kind, sizes.waiting_pods, turn)) for turn in turns)
            for name, kind in KINDS.items()
        }
        reported = median(asyncio.run(_lose_node(server, sizes.jobs, turn)) for turn in turns)
    bound = min(release_threads(sizes.waiting_pods) for _ in range(sizes.rounds))
    bound_is = f"{sizes.waiting_pods} threads released through sockets"
    for name, seconds in released.items():
        yield Figure(name, seconds, "s", bound, bound_is, 0.5)
    bound = asyncio.run(_write_statuses(server, sizes.jobs))
    bound_is = f"{sizes.jobs} statuses written by a baseline client"
    yield Figure("node_down_s", reported, "s", bound, bound_is, 1.0)


async def _release(server: Server, kind: Kind, waiting: int, turn: int) -> float:
    """Return the seconds from when the last pod of a role runs until the last waiting pod is released."""
    name = f"{kind.resource.kind.lower()}-{turn}"
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await client.create(
            kind, {"metadata": {"name": name}, "spec": _waiting_spec(kind, waiting)}, NAMESPACE
        )
        await until(lambda: _has_pods(client, name, waiting + 2), "all pods exist", 120)
        helper = await _helper(client, f"{name}-then-0")
        await _set_running(client, f"{name}-first-0")
        command = [sys.executable, "-m", "bench.waiters", str(waiting), *helper.arguments]
        with running(command, stdout=subprocess.PIPE, environment=helper.environment) as waiters:
            assert waiters.stdout is not None
            line = await asyncio.to_thread(waiters.stdout.readline)
            assert line == b"waiting\n", line
            await _set_running(client, f"{name}-first-1")
            start = time.monotonic()
            times = (await asyncio.to_thread(waiters.stdout.read)).split()
        assert len(times) == waiting, f"only {len(times)} pods were released"
        await client.delete(kind, name, NAMESPACE)
        await client.request("DELETE", f"{Pod.resource.path(None, NAMESPACE)}?gracePeriodSeconds=0")
    return max(map(float, times)) - start


def _waiting_spec(kind: Kind, waiting: int) -> dict[str, object]:
    first: dict[str, object] = {"replicas": 2, "template": _template()}
    then: dict[str, object] = {"replicas": waiting, "template": _template()}
    if kind is AresJob:
        then["dependence"] = {"roleNames": ["first"]}
        return {"frameworkType": "custom", "roleSpecs": {"first": first, "then": then}}
    then["dependsOn"] = [{"role": "first"}]
    return {"framework": "custom", "roles": {"first": first, "then": then}}


async def _lose_node(server: Server, jobs: int, turn: int) -> float:
    """Return the seconds from a change of the node's condition until the last of its jobs reports it."""
    names = {f"lost-{turn}-{number}" for number in range(jobs)}
    reported: dict[str, float] = {}

    def changed(change: Change[TrainingRun]) -> None:
        run = change.new
        if run is not None and run.metadata.name in names and "unreachable" in run.status.message:
            reported.setdefault(run.metadata.name, time.monotonic())

    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await client.apply(Node, {"metadata": {"name": NODE}}, force=True)
        await _set_node_ready(client, "True")
        await asyncio.gather(*(client.create(TrainingRun, _on_node(name), NAMESPACE) for name in names))
        await asyncio.gather(*(_set_running(client, f"{name}-worker-0") for name in names))
        await until(lambda: _all_running(client, names), "all jobs run", 120)
        watched = Cache(client, TrainingRun, namespace=NAMESPACE)
        watched.subscribe(changed)
        watching = asyncio.create_task(watched.run())
        await watched.wait_synced()
        await _set_node_ready(client, "Unknown")
        start = time.monotonic()
        await until(lambda: _is(len(reported) == jobs), "all jobs report the lost node", 60)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return max(reported.values()) - start


def _on_node(name: str) -> dict[str, object]:
    policy = {"failed": "AnyPod", "nodeDownAsFailed": True}
    worker = {"replicas": 1, "policy": policy, "template": _template(nodeName=NODE)}
    return {"metadata": {"name": name}, "spec": {"framework": "custom", "roles": {"worker": worker}}}


def _template(**more: object) -> dict[str, object]:
    container = {"name": "main", "image": "local", "command": ["train"]}
    return {"spec": {"containers": [container], "automountServiceAccountToken": False, **more}}


async def _set_running(client: Client, pod: str) -> None:
    await until(lambda: _exists(client, pod), f"{pod} exists", 120)
    body = {"status": {"phase": "Running"}}
    await client.patch(Pod, pod, body, NAMESPACE, subresource="status")


async def _set_node_ready(client: Client, status: str) -> None:
    conditions = [{"type": "Ready", "status": status, "reason": "Bench"}]
    await client.patch(Node, NODE, {"status": {"conditions": conditions}}, subresource="status")


async def _exists(client: Client, pod: str) -> bool:
    return bool((await client.list(Pod, NAMESPACE, fields=f"metadata.name={pod}")).items)


async def _has_pods(client: Client, job: str, count: int) -> bool:
    return len((await client.list(Pod, NAMESPACE, labels=f"argosy.dev/job={job}")).items) == count


async def _all_running(client: Client, names: Iterable[str]) -> bool:
    runs = {run.metadata.name: run.status.phase for run in (await client.list(TrainingRun, NAMESPACE)).items}
    return all(runs.get(name) == "Running" for name in names)


async def _is(condition: bool) -> bool:
    return condition


async def _helper(client: Client, pod: str) -> "_Helper":
    """Return the pod's init container."""
    body = await client.request("GET", Pod.resource.path(pod, NAMESPACE))
    (container,) = msgspec.json.decode(body, type=_HelpedPod).spec.init_containers
    return container


class _Variable(Struct):
    name: str
    value: str = ""


class _Helper(Struct):
    env: list[_Variable]
    command: list[str]

    @property
    def environment(self) -> Mapping[str, str]:
        return {variable.name: self._expand(variable.value) for variable in self.env}

    @property
    def arguments(self) -> list[str]:
        """Return the arguments of the helper."""
        first = next(at for at, word in enumerate(self.command) if word in ("wait", "cache"))
        return [self._expand(word) for word in self.command[first:]]

    def _expand(self, text: str) -> str:
        """Expand references to variables as the kubelet does."""
        for variable in self.env:
            text = text.replace(f"$({variable.name})", variable.value)
        return text


class _HelpedSpec(Struct, rename="camel"):
    init_containers: list[_Helper]


class _HelpedPod(Struct):
    spec: _HelpedSpec


def release_threads(count: int) -> float:
    """Return the bound: the time until as many threads, each waiting for a byte, have received it."""
    pairs = [socket.socketpair() for _ in range(count)]
    released: list[float] = []

    def wait(end: socket.socket) -> None:
        end.recv(1)
        released.append(time.monotonic())

    threads = [threading.Thread(target=wait, args=(receiver,)) for receiver, _ in pairs]
    for thread in threads:
        thread.start()
    start = time.monotonic()
    for _, sender in pairs:
        sender.send(b"x")
    for thread in threads:
        thread.join()
    for pair in pairs:
        for end in pair:
            end.close()
    return max(released) - start


async def _write_statuses(server: Server, jobs: int) -> float:
    """Return the bound: the time to write as many statuses."""
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        names = [run.metadata.name for run in (await client.list(TrainingRun, NAMESPACE)).items][:jobs]
        body = {"status": {"message": "its node is unreachable"}}
        write = lambda number: client.patch(  # noqa: E731
            TrainingRun, names[number], body, NAMESPACE, subresource="status"
        )
        return len(names) / await per_second(len(names), write, 64)
