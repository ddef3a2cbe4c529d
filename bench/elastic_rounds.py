"""Rounds of the elastic benchmark: a large ScaleOut, lost workers, and many jobs that are scaled at once.

A host list counts as current when the launcher has acknowledged it, which its sidecar does after it has
written the files. All times are taken by one watcher.
"""

import asyncio
import time
from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import Json
from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.kinds.trainingjob import TrainingJob
from argosy.workload.hosts import SETTLE_SECONDS
from bench.baseline_client import IN_FLIGHT
from bench.elastic_namespace import ElasticNamespace, Scaler, elastic_namespace, scaler_name
from bench.job_apis import BenchApi
from bench.load import per_second
from bench.namespace import seconds_to_last
from bench.processes import Operator, Usage
from bench.rig import Rig

JOB = "job-0"
START_WORKERS = 2
"""Workers of each job before it is scaled."""
STATUS_WRITES = 5
"""How often the bare client writes the status of each job."""


class LargeRound(Struct, frozen=True):
    """One job that gets many workers at once, and then loses some of them one after the other."""

    listed: float
    """Seconds from when the last new worker runs until the launcher has the list with all of them."""
    lost: tuple[float, ...]
    """For each lost worker, seconds from the change of its status until the launcher has a new list."""
    commands: float
    """Bound of `listed`: seconds in which a bare client runs a command in as many pods."""
    writes: float
    """Bound of `lost`: seconds of three writes, each seen by a watch: status, list, acknowledgement."""
    usage: Usage


class BurstRound(Struct, frozen=True):
    """Many jobs that are scaled at the same moment."""

    done: float
    """Seconds from the first scaler until every scaler has succeeded and every launcher has its list."""
    running: float
    """Seconds from the first scaler until all new pods run; 0 for a ScaleIn."""
    usage: Usage
    writes_per_second: float
    """Statuses of such jobs that a bare client writes, when the operator has ended."""


async def scale_large_job(rig: Rig, api: BenchApi, workers: int, losses: int) -> LargeRound:
    async with elastic_namespace(rig, api) as namespace:
        with rig.operator() as process:
            await namespace.start(api, 1, START_WORKERS)
            await asyncio.sleep(SETTLE_SECONDS)
            await rig.collect_garbage()
            before, lists = process.usage(), dict(namespace.acknowledged)
            await namespace.scale(ScaleOut, workers, [JOB])
            await namespace.plain.wait_for_pods(1 + START_WORKERS + workers)
            await namespace.wait_for_new_lists(lists)
            usage = process.usage().since(before)
            listed = namespace.acknowledged[JOB][1] - max(namespace.plain.running.values())
            assert len(await namespace.hosts(JOB)) == START_WORKERS + workers, "the list lacks workers"
            lost = [await _lose_worker(namespace) for _ in range(losses)]
            commands = await _run_commands(namespace, workers)
            writes = 3 * await _write_and_watch(namespace)
        await namespace.clear()
    return LargeRound(listed, tuple(lost), commands, writes, usage)


async def _lose_worker(namespace: ElasticNamespace) -> float:
    """Let a worker fail; return the seconds until the launcher has a list without it."""
    before, worker = dict(namespace.acknowledged), max(namespace.workers(JOB))
    patch = {"status": {"phase": "Failed"}}
    await namespace.client.patch(Pod, worker, patch, namespace.name, subresource="status")
    start = time.perf_counter()
    await namespace.wait_for_new_lists(before)
    assert worker not in await namespace.hosts(JOB), "the list has the lost worker"
    return namespace.acknowledged[JOB][1] - start


async def _run_commands(namespace: ElasticNamespace, count: int) -> float:
    """Return the seconds in which a bare client runs a command in each of the workers."""
    workers = (namespace.workers(JOB) * 2)[:count]
    run = lambda number: namespace.client.exec(workers[number], namespace.name, ["true"])  # noqa: E731
    return len(workers) / await per_second(len(workers), run, IN_FLIGHT)


async def _write_and_watch(namespace: ElasticNamespace) -> float:
    """Return the seconds from a write until a watch shows it."""
    name, value = namespace.workers(JOB)[0], str(time.perf_counter())

    def is_seen() -> bool:
        pod = namespace.plain.pods.get(namespace.name, name)
        return pod is not None and pod.metadata.annotations.get("bench") == value

    start = time.perf_counter()
    await namespace.client.patch(Pod, name, {"metadata": {"annotations": {"bench": value}}}, namespace.name)
    await namespace.plain.wait_until(is_seen, "the watch shows a write")
    return time.perf_counter() - start


async def scale_many_jobs(rig: Rig, api: BenchApi, jobs: int) -> tuple[BurstRound, BurstRound]:
    """Add a worker to every job at the same moment; then remove one of each."""
    async with elastic_namespace(rig, api) as namespace:
        with rig.operator() as process:
            await namespace.start(api, jobs, START_WORKERS)
            names = [f"job-{number}" for number in range(jobs)]
            added = await _scale_all(rig, namespace, process, ScaleOut, names)
            removed = await _scale_all(rig, namespace, process, ScaleIn, names)
        rate = await _status_writes_per_second(rig, namespace)
        await namespace.clear()
    return replace(added, writes_per_second=rate), replace(removed, writes_per_second=rate)


async def _status_writes_per_second(rig: Rig, namespace: ElasticNamespace) -> float:
    """Write the status of every job several times by a bare client; return writes per second."""
    await rig.collect_garbage()
    path = TrainingJob.resource.path(None, namespace.name)
    jobs: list[dict[str, Json]] = msgspec.json.decode(await namespace.client.request("GET", path))["items"]

    async def write(number: int) -> None:
        for at in range(STATUS_WRITES):
            job = {**jobs[number], "metadata": {**jobs[number]["metadata"]}}
            job["status"] = {**job["status"], "lastReconcileTime": f"2026-01-01T00:00:0{at}Z"}
            name = f"{path}/{job['metadata']['name']}/status"
            body = msgspec.json.encode(job)
            jobs[number] = msgspec.json.decode(await namespace.client.request("PUT", name, body=body))

    return STATUS_WRITES * await per_second(len(jobs), write, IN_FLIGHT)


async def _scale_all(
    rig: Rig, namespace: ElasticNamespace, process: Operator, kind: Scaler, jobs: Sequence[str]
) -> BurstRound:
    await asyncio.sleep(SETTLE_SECONDS)
    await rig.collect_garbage()
    before, lists, pods = process.usage(), dict(namespace.acknowledged), dict(namespace.plain.running)
    start = await namespace.scale(kind, 1, jobs)
    await namespace.wait_until_scaled(scaler_name(kind, job) for job in jobs)
    await namespace.wait_for_new_lists(lists)
    await asyncio.sleep(rig.settle_seconds)
    new = {uid: at for uid, at in namespace.plain.running.items() if uid not in pods}
    acknowledged = {job: at for job, (_, at) in namespace.acknowledged.items()}
    return BurstRound(
        done=max(seconds_to_last(namespace.scaled, start), seconds_to_last(acknowledged, start)),
        running=seconds_to_last(new, start),
        usage=process.usage().since(before),
        writes_per_second=0.0,
    )
