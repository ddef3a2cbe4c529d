"""How soon others hear of what happened: pods that wait for a role, and the status of jobs on a lost node.

Against a real kube-apiserver where one has been built, else against our own. Nobody runs the pods: their
statuses, and the node's, are written here, so that the moment of each is known.
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
from bench.parts import operator, running
from tests.support.servers import Server
from tests.support.waiting import until

Kind = type[TrainingRun] | type[AresJob]
KINDS: dict[str, Kind] = {"release_s": TrainingRun, "release_ares_s": AresJob}
NAMESPACE = "default"
NODE = "lost"


class Sizes(Struct, frozen=True):
    waiting: int = 500
    """Pods that wait for a role at once."""
    jobs: int = 100
    """Jobs with a pod on the node that is lost."""
    rounds: int = 3


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, any_server(Path(folder)) as where:
        yield from measured(where, Sizes())


def measured(where: Server, sizes: Sizes) -> Iterator[Figure]:
    asyncio.run(prepare(where))
    turns = range(sizes.rounds)
    with operator(where, "--no-leader-elect"):
        released = {
            name: median(asyncio.run(_released(where, kind, sizes.waiting, turn)) for turn in turns)
            for name, kind in KINDS.items()
        }
        told = median(asyncio.run(_told(where, sizes.jobs, turn)) for turn in turns)
    bound = min(_bare_release(sizes.waiting) for _ in range(sizes.rounds))
    bound_is = f"{sizes.waiting} threads let go by bare sockets"
    for name, took in released.items():
        yield Figure(name, took, "s", bound, bound_is, 0.5)
    bound = asyncio.run(_bare_writes(where, sizes.jobs))
    bound_is = f"{sizes.jobs} statuses written by a bare client"
    yield Figure("node_down_s", told, "s", bound, bound_is, 1.0)


async def _released(where: Server, kind: Kind, waiting: int, turn: int) -> float:
    """Seconds from when the last pod of a role runs to when the last of those that wait for it is let go."""
    name = f"{kind.resource.kind.lower()}-{turn}"
    async with Client(Connection.from_kubeconfig(where.kubeconfig)) as client:
        await client.create(kind, {"metadata": {"name": name}, "spec": _waiting(kind, waiting)}, NAMESPACE)
        await until(lambda: _exist(client, name, waiting + 2), "all pods are there", 120)
        helper = await _helper(client, f"{name}-then-0")
        await _runs(client, f"{name}-first-0")
        command = [sys.executable, "-m", "bench.waiters", str(waiting), *helper.arguments]
        with running(command, stdout=subprocess.PIPE, environment=helper.environment) as waiters:
            assert waiters.stdout is not None
            line = await asyncio.to_thread(waiters.stdout.readline)
            assert line == b"waiting\n", line
            await _runs(client, f"{name}-first-1")
            began = time.monotonic()
            moments = (await asyncio.to_thread(waiters.stdout.read)).split()
        assert len(moments) == waiting, f"only {len(moments)} were let go"
        await client.delete(kind, name, NAMESPACE)
        await client.request("DELETE", f"{Pod.resource.path(None, NAMESPACE)}?gracePeriodSeconds=0")
    return max(map(float, moments)) - began


def _waiting(kind: Kind, waiting: int) -> dict[str, object]:
    first: dict[str, object] = {"replicas": 2, "template": _template()}
    then: dict[str, object] = {"replicas": waiting, "template": _template()}
    if kind is AresJob:
        then["dependence"] = {"roleNames": ["first"]}
        return {"frameworkType": "custom", "roleSpecs": {"first": first, "then": then}}
    then["dependsOn"] = [{"role": "first"}]
    return {"framework": "custom", "roles": {"first": first, "then": then}}


async def _told(where: Server, jobs: int, turn: int) -> float:
    """Seconds from the change of a node's condition to when the last job with a pod on it has told so."""
    names = {f"lost-{turn}-{number}" for number in range(jobs)}
    told: dict[str, float] = {}

    def changed(change: Change[TrainingRun]) -> None:
        run = change.new
        if run is not None and run.metadata.name in names and "does not answer" in run.status.message:
            told.setdefault(run.metadata.name, time.monotonic())

    async with Client(Connection.from_kubeconfig(where.kubeconfig)) as client:
        await client.apply(Node, {"metadata": {"name": NODE}}, force=True)
        await _ready(client, "True")
        await asyncio.gather(*(client.create(TrainingRun, _on_node(name), NAMESPACE) for name in names))
        await asyncio.gather(*(_runs(client, f"{name}-worker-0") for name in names))
        await until(lambda: _running(client, names), "all jobs run", 120)
        watched = Cache(client, TrainingRun, namespace=NAMESPACE)
        watched.subscribe(changed)
        watching = asyncio.create_task(watched.run())
        await watched.wait_synced()
        await _ready(client, "Unknown")
        began = time.monotonic()
        await until(lambda: _is(len(told) == jobs), "all jobs have told", 60)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return max(told.values()) - began


def _on_node(name: str) -> dict[str, object]:
    policy = {"failed": "AnyPod", "nodeDownAsFailed": True}
    worker = {"replicas": 1, "policy": policy, "template": _template(nodeName=NODE)}
    return {"metadata": {"name": name}, "spec": {"framework": "custom", "roles": {"worker": worker}}}


def _template(**more: object) -> dict[str, object]:
    container = {"name": "main", "image": "local", "command": ["train"]}
    return {"spec": {"containers": [container], "automountServiceAccountToken": False, **more}}


async def _runs(client: Client, pod: str) -> None:
    await until(lambda: _there(client, pod), f"{pod} is there", 120)
    body = {"status": {"phase": "Running"}}
    await client.patch(Pod, pod, body, NAMESPACE, subresource="status")


async def _ready(client: Client, status: str) -> None:
    conditions = [{"type": "Ready", "status": status, "reason": "Bench"}]
    await client.patch(Node, NODE, {"status": {"conditions": conditions}}, subresource="status")


async def _there(client: Client, pod: str) -> bool:
    found = await client.list(Pod, NAMESPACE, fields=f"metadata.name={pod}")
    return bool(found.items)


async def _exist(client: Client, job: str, count: int) -> bool:
    return len((await client.list(Pod, NAMESPACE, labels=f"argosy.dev/job={job}")).items) == count


async def _running(client: Client, names: Iterable[str]) -> bool:
    runs = {run.metadata.name: run.status.phase for run in (await client.list(TrainingRun, NAMESPACE)).items}
    return all(runs.get(name) == "Running" for name in names)


async def _is(fact: bool) -> bool:
    return fact


async def _helper(client: Client, pod: str) -> "_Helper":
    """What runs in the pod's init container."""
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
        return {one.name: self._expanded(one.value) for one in self.env}

    @property
    def arguments(self) -> list[str]:
        """What follows the helper itself."""
        begin = next(at for at, word in enumerate(self.command) if word in ("wait", "cache"))
        return [self._expanded(word) for word in self.command[begin:]]

    def _expanded(self, text: str) -> str:
        """As the kubelet would hand it on."""
        for one in self.env:
            text = text.replace(f"$({one.name})", one.value)
        return text


class _HelpedSpec(Struct, rename="camel"):
    init_containers: list[_Helper]


class _HelpedPod(Struct):
    spec: _HelpedSpec


def _bare_release(count: int) -> float:
    """The bound: as many threads that wait for a byte, and one that sends it to each."""
    pairs = [socket.socketpair() for _ in range(count)]
    released: list[float] = []

    def wait(end: socket.socket) -> None:
        end.recv(1)
        released.append(time.monotonic())

    threads = [threading.Thread(target=wait, args=(ours,)) for ours, _ in pairs]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for _, theirs in pairs:
        theirs.send(b"x")
    for thread in threads:
        thread.join()
    for pair in pairs:
        for end in pair:
            end.close()
    return max(released) - began


async def _bare_writes(where: Server, jobs: int) -> float:
    """The bound: as many statuses, written by a client that has nothing to find out."""
    async with Client(Connection.from_kubeconfig(where.kubeconfig)) as client:
        names = [run.metadata.name for run in (await client.list(TrainingRun, NAMESPACE)).items][:jobs]
        body = {"status": {"message": "its node does not answer"}}
        write = lambda number: client.patch(  # noqa: E731
            TrainingRun, names[number], body, NAMESPACE, subresource="status"
        )
        return len(names) / await per_second(len(names), write, 64)
