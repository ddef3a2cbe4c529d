"""The workloads of `bench.kubernetes`, each once by the operator or once by the bare client."""

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence

import msgspec
from msgspec import Struct

from argosy.engine.client import Client
from argosy.kinds.trainingrun import TrainingRun
from bench.load import per_second
from bench.parts import (
    Operator,
    Reading,
    cpu_seconds,
    operator,
    peak_rss_mb,
    running,
    simulator,
    starting_operator,
)
from bench.raw import RawPod
from bench.scene import ROLE, Scene, SeenPod, last, raw_pods, run, runs, scene
from tests.support.scheduler_objects import Json
from tests.support.servers import Server


class Ours(Struct, frozen=True):
    """One round of a workload by the operator; times in seconds since the first job was submitted."""

    exist: float
    run: float
    told: float
    ended: float
    unseen: int
    """Jobs that were never seen to be Running, though they were to be."""
    spent: Reading
    rss: float


class Bare(Struct, frozen=True):
    """One round of the same by the bare client."""

    run: float
    cpu: float
    rss: float


class Stage:
    """The API server with its simulated nodes, and the core that operator and bare client take turns on."""

    def __init__(self, server: Server, client: Client, core: int, late_seconds: float) -> None:
        self.server = server
        self.client = client
        self.core = core
        self.late_seconds = late_seconds
        self._numbers = itertools.count()
        self._description = server.folder / "server.json"
        self._description.write_bytes(msgspec.json.encode(server, enc_hook=str))

    def namespace(self) -> str:
        return f"bench-{next(self._numbers)}"

    async def settle(self) -> None:
        """Have the API server collect what earlier rounds have left: no round pays for another."""
        await self.client.request("GET", "/debug/pprof/heap?gc=1")

    def operator(self) -> contextlib.AbstractContextManager[Operator]:
        return operator(self.server, core=self.core)

    @contextlib.contextmanager
    def bare(self, pods: Sequence[RawPod], *options: str) -> Iterator["BareClient"]:
        file = self.server.folder / "raw-pods.json"
        file.write_bytes(msgspec.json.encode(pods))
        with self.bare_process(str(file), *options) as process:
            client = BareClient(process)
            client.hear("ready")
            yield client

    def bare_process(self, *options: str) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "bench.raw", str(self._description), *options]
        return running(command, core=self.core, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


class BareClient:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def hear(self, word: str) -> None:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode().strip()
        if said != word:
            raise RuntimeError(f"the bare client said {said!r}, not {word!r}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def spent(self, seconds: float) -> Bare:
        self.hear("done")
        return Bare(seconds, cpu_seconds(self.process.pid), peak_rss_mb(self.process.pid))


async def alone(stage: Stage, count: int) -> tuple[float, float]:
    """Pods a second that the bare client makes with nobody beside it, and that the simulator then runs."""
    namespace = stage.namespace()
    async with scene(stage.client, namespace) as shown:
        with stage.bare(raw_pods(runs(1, count), namespace)) as bare:
            began = time.perf_counter()
            bare.go()
            await shown.until(lambda: len(shown.existed) >= count, f"{count} pods exist")
        made = count / last(shown.existed, began)
        with simulator(stage.server):
            began = time.perf_counter()
            await shown.until(lambda: len(shown.ran) >= count, f"{count} pods run")
        await shown.clear()
    return made, count / last(shown.ran, began)


async def by_operator(stage: Stage, jobs: Sequence[Json], pods: int, *, end: bool = False) -> Ours:
    """W1 and W2: submit all jobs at once, and wait until they run, or until they have succeeded."""
    async with scene(stage.client, stage.namespace()) as shown:
        with stage.operator() as process:
            await stage.settle()
            before = process.reading()
            began = await shown.submit(jobs)
            await shown.until(lambda: len(shown.ran) >= pods, f"{pods} pods run")
            await shown.until_phase("Succeeded" if end else "Running", len(jobs))
            await asyncio.sleep(stage.late_seconds)
            spent, rss = process.reading().since(before), peak_rss_mb(process.pid)
        await shown.clear()
    ended = last(shown.phases["Succeeded"], began) if end else 0.0
    seen = shown.phases["Running"]
    told = last(seen, began)
    unseen = len(jobs) - len(seen)
    return Ours(last(shown.existed, began), last(shown.ran, began), told, ended, unseen, spent, rss)


async def by_bare_client(stage: Stage, jobs: Sequence[Json], pods: int) -> Bare:
    """The same pods, with nothing but the pods."""
    namespace = stage.namespace()
    async with scene(stage.client, namespace) as shown:
        with stage.bare(raw_pods(jobs, namespace)) as bare:
            await stage.settle()
            began = time.perf_counter()
            bare.go()
            await shown.until(lambda: len(shown.ran) >= pods, f"{pods} pods run")
            spent = bare.spent(last(shown.ran, began))
        await shown.clear()
    return spent


class Repair(Struct, frozen=True):
    """One round of W3: seconds from when the deletion of each pod was taken to when its replacement ran."""

    seconds: tuple[float, ...]
    spent: Reading = Reading()


class Running(Struct, frozen=True):
    """W3's jobs: the operator's, and pods just like them of the bare client's."""

    jobs: int
    ours: Scene
    bare: Scene


@contextlib.asynccontextmanager
async def running_jobs(stage: Stage, jobs: int, workers: int) -> AsyncIterator[Running]:
    pods = jobs * workers
    bodies = runs(jobs, workers)
    async with (
        scene(stage.client, stage.namespace()) as ours,
        scene(stage.client, stage.namespace()) as bare,
    ):
        with stage.operator():
            await ours.submit(bodies)
            await ours.until_phase("Running", jobs)
        with stage.bare(raw_pods(bodies, bare.namespace)) as client:
            client.go()
            await bare.until(lambda: len(bare.ran) >= pods, f"{pods} pods run")
        yield Running(jobs, ours, bare)
        await ours.clear()
        await bare.clear()


async def repaired_by_operator(stage: Stage, there: Running, worker: int) -> Repair:
    with stage.operator() as process:
        await asyncio.to_thread(process.until_passed, there.jobs)
        await stage.settle()
        before, untold = process.reading(), _versions(there.ours)
        seconds = await _lose(there.ours, there.jobs, worker)
        await there.ours.until(
            lambda: not _versions(there.ours) & untold, "every job has told who took its pod"
        )
        await asyncio.sleep(stage.late_seconds)
        return Repair(seconds, process.reading().since(before))


async def repaired_by_bare_client(stage: Stage, there: Running, worker: int) -> Repair:
    pods = raw_pods(runs(there.jobs, worker + 1), there.bare.namespace)
    lost = set(_names(there.jobs, worker))
    with stage.bare([pod for pod in pods if pod.name in lost], "--repair") as client:
        client.go()
        await stage.settle()
        return Repair(await _lose(there.bare, there.jobs, worker))


async def _lose(shown: Scene, jobs: int, worker: int) -> tuple[float, ...]:
    """Delete one worker of each job at one moment; how long after its deletion was taken each was missed."""
    names = _names(jobs, worker)
    began = time.perf_counter()

    async def delete(name: str) -> float:
        await shown.client.delete(SeenPod, name, shown.namespace)
        return time.perf_counter()

    lost = await asyncio.gather(*(delete(name) for name in names))
    await shown.until(
        lambda: all(shown.ran_at_place[name] > began for name in names), "all lost pods are replaced"
    )
    return tuple(shown.ran_at_place[name] - since for name, since in zip(names, lost, strict=True))


def _versions(shown: Scene) -> set[str]:
    return {job.metadata.resource_version for job in shown.runs}


def _names(jobs: int, worker: int) -> list[str]:
    return [f"job-{number}-{ROLE}-{worker}" for number in range(jobs)]


class Kept(Struct, frozen=True):
    """One round of W4 by the operator."""

    synced: float
    """Seconds from the start of the process until its caches were filled and it led."""
    looked: float
    """The same until it had looked at every job."""
    idle_percent: float
    rss: float
    new_run: float
    """Seconds until the pods of a new job ran."""
    new_told: float


@contextlib.asynccontextmanager
async def many_jobs(stage: Stage, finished: int, jobs: int, workers: int) -> AsyncIterator[Scene]:
    """Jobs that have ended, with nothing left of them but themselves, and jobs that run."""
    async with scene(stage.client, stage.namespace()) as shown:
        with stage.operator():
            await shown.submit([run("sample", workers, 0.0)])
            await shown.until_phase("Succeeded", 1)
            await shown.client.request("DELETE", SeenPod.resource.path(None, shown.namespace))
            path = TrainingRun.resource.path("sample", shown.namespace)
            sample = msgspec.json.decode(await shown.client.request("GET", path), type=_Ended)
            await shown.submit(runs(jobs, workers))
            await shown.until(
                lambda: len(shown.phases["Running"].keys() - {"sample"}) >= jobs, f"{jobs} jobs are Running"
            )
        await per_second(finished - 1, lambda number: _put_ended(shown, sample, f"ended-{number}"), 64)
        await shown.until_phase("Succeeded", finished)
        yield shown


class _Ended(Struct):
    spec: msgspec.Raw
    status: msgspec.Raw


class _Meta(Struct, rename="camel"):
    resource_version: str


class _Made(Struct):
    metadata: _Meta


async def _put_ended(shown: Scene, sample: _Ended, name: str) -> None:
    """A job that ended as the sample did."""
    head = {"apiVersion": TrainingRun.resource.api_version, "kind": TrainingRun.resource.kind}
    body: Json = {**head, "metadata": {"name": name}, "spec": sample.spec}
    collection = TrainingRun.resource.path(None, shown.namespace)
    made = msgspec.json.decode(await shown.client.request("POST", collection, body=body), type=_Made)
    metadata = {"name": name, "resourceVersion": made.metadata.resource_version}
    status = msgspec.Raw(bytes(sample.status).replace(b"=sample,", f"={name},".encode()))
    await shown.client.request(
        "PUT",
        TrainingRun.resource.path(name, shown.namespace, "status"),
        body={**body, "metadata": metadata, "status": status},
    )


async def kept_by_operator(stage: Stage, shown: Scene, number: int, idle_seconds: float) -> Kept:
    await stage.settle()
    began = time.perf_counter()
    with starting_operator(stage.server, core=stage.core) as process:
        await asyncio.to_thread(process.until_ready)
        await asyncio.to_thread(process.until_leading)
        synced = time.perf_counter() - began
        await asyncio.to_thread(process.until_passed, len(shown.runs))
        looked = time.perf_counter() - began
        await asyncio.sleep(stage.late_seconds)
        before = cpu_seconds(process.pid)
        await asyncio.sleep(idle_seconds)
        idle = (cpu_seconds(process.pid) - before) / idle_seconds * 100
        new = run(f"new-{number}", 8)
        there = len(shown.ran)
        submitted = await shown.submit([new])
        await shown.until(lambda: len(shown.ran) >= there + 8, "the new job's pods run")
        new_run = time.perf_counter() - submitted
        await shown.until(lambda: f"new-{number}" in shown.phases["Running"], "the new job is Running")
        told = shown.phases["Running"][f"new-{number}"] - submitted
        return Kept(synced, looked, idle, peak_rss_mb(process.pid), new_run, told)


class Read(Struct, frozen=True):
    """One round of W4 by the bare client."""

    read: float
    """Seconds from the start of the process until it has read all jobs and pods, for nothing."""
    new_run: float
    rss: float


async def read_by_bare_client(stage: Stage, shown: Scene, number: int) -> Read:
    paths = [kind.resource.path(None, None) for kind in (TrainingRun, SeenPod)]
    await stage.settle()
    began = time.perf_counter()
    with stage.bare_process("--list", *paths) as process:
        await asyncio.to_thread(BareClient(process).hear, "done")
        read, rss = time.perf_counter() - began, peak_rss_mb(process.pid)
    there = len(shown.ran)
    with stage.bare(raw_pods([run(f"bare-{number}", 8)], shown.namespace)) as client:
        began = time.perf_counter()
        client.go()
        await shown.until(lambda: len(shown.ran) >= there + 8, "the pods run")
        return Read(read, last(shown.ran, began), rss)
