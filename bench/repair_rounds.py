"""Rounds of W3: running jobs lose one worker each, and the operator or the baseline client replaces it."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from msgspec import Struct

from bench.job_apis import WORKERS, BenchApi
from bench.namespace import Namespace, WatchedPod, worker_of
from bench.processes import Usage
from bench.rig import Rig


class RepairRound(Struct, frozen=True):
    """A round of W3."""

    seconds: tuple[float, ...]
    """For each pod, the time from the response to its deletion until its replacement ran."""
    usage: Usage = Usage()


class RunningJobs(Struct, frozen=True):
    """The jobs of W3: those of the operator, and the same pods of the baseline client."""

    api: BenchApi
    jobs: int
    operator: Namespace
    baseline: Namespace


@contextlib.asynccontextmanager
async def running_jobs(rig: Rig, api: BenchApi, count: int) -> AsyncIterator[RunningJobs]:
    """Start jobs by the operator, and the same pods by the baseline client."""
    jobs = api.jobs(count, WORKERS)
    async with rig.namespace(api) as by_operator, rig.namespace(api) as by_baseline:
        with rig.operator():
            await by_operator.submit(jobs)
            await by_operator.wait_for_phase("Running", count)
        with rig.baseline(api.pods(jobs, by_baseline.name)) as baseline:
            baseline.start()
            await by_baseline.wait_for_pods(count * api.pod_count(WORKERS))
        yield RunningJobs(api, count, by_operator, by_baseline)
        await by_operator.clear()
        await by_baseline.clear()


async def repair_by_operator(rig: Rig, running: RunningJobs, worker: int) -> RepairRound:
    namespace = running.operator
    with rig.operator() as process:
        await asyncio.to_thread(process.wait_until_reconciled, running.jobs)
        await rig.collect_garbage()
        before, versions = process.usage(), _versions(namespace)
        seconds = await _delete_one_of_each(namespace, running.jobs, worker)
        await namespace.wait_until(
            lambda: not _versions(namespace) & versions, "every job has recorded the lost pod"
        )
        await asyncio.sleep(rig.settle_seconds)
        return RepairRound(seconds, process.usage().since(before))


async def repair_by_baseline(rig: Rig, running: RunningJobs, worker: int) -> RepairRound:
    namespace = running.baseline
    lost = {pod.metadata.name for pod in _pods_of_worker(namespace, worker)}
    pods = running.api.pods(running.api.jobs(running.jobs, WORKERS), namespace.name)
    with rig.baseline([pod for pod in pods if pod.name in lost], "--repair") as baseline:
        baseline.start()
        await rig.collect_garbage()
        return RepairRound(await _delete_one_of_each(namespace, running.jobs, worker))


async def _delete_one_of_each(namespace: Namespace, jobs: int, worker: int) -> tuple[float, ...]:
    """Delete the same worker of every job at once; return for how long each job had one worker less."""
    pods = {_job_of(pod): pod.metadata.name for pod in _pods_of_worker(namespace, worker)}
    assert len(pods) == jobs, f"{len(pods)} of {jobs} workers {worker} exist"
    start = time.perf_counter()

    async def delete(name: str) -> float:
        await namespace.client.delete(WatchedPod, name, namespace.name)
        return time.perf_counter()

    deleted_at = await asyncio.gather(*(delete(name) for name in pods.values()))
    await namespace.wait_until(
        lambda: all(namespace.worker_running[job] > start for job in pods),
        "all deleted pods are replaced",
    )
    return tuple(
        namespace.worker_running[job] - deleted for job, deleted in zip(pods, deleted_at, strict=True)
    )


def _pods_of_worker(namespace: Namespace, worker: int) -> list[WatchedPod]:
    return [pod for pod in namespace.pods if (worker_of(pod) or ("", ""))[1] == str(worker)]


def _job_of(pod: WatchedPod) -> str:
    return (worker_of(pod) or ("", ""))[0]


def _versions(namespace: Namespace) -> set[str]:
    return {job.metadata.resource_version for job in namespace.jobs}
