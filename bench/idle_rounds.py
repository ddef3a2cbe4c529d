"""Rounds of W4: the operator starts with many jobs and idles; the baseline client reads the same lists."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import msgspec
from msgspec import Struct

from argosy.kinds.meta import Json
from argosy.kinds.resource import Resource
from bench.baseline_client import IN_FLIGHT
from bench.job_apis import WORKERS, BenchApi
from bench.load import per_second
from bench.namespace import Namespace, WatchedPod, seconds_to_last
from bench.processes import cpu_seconds, peak_rss_mb, starting_operator
from bench.rig import Baseline, Rig


class IdleRound(Struct, frozen=True):
    """A round of W4 by the operator."""

    synced: float
    """Seconds from the start of the process until its caches are synced and it is leader."""
    reconciled: float
    """Seconds from the start of the process until it has reconciled every job."""
    idle_cpu_percent: float
    rss_mb: float
    new_running: float
    """Seconds until the pods of a new job run."""
    new_reported: float
    """Seconds until the new job has the phase Running."""


@contextlib.asynccontextmanager
async def many_jobs(rig: Rig, api: BenchApi, finished: int, running: int) -> AsyncIterator[Namespace]:
    """Prepare W4: finished jobs without pods, and running jobs."""
    async with rig.namespace(api) as namespace:
        with rig.operator():
            await namespace.submit([api.job("sample", WORKERS, until_released=True)])
            await namespace.wait_for_phase("Running", 1)
            await namespace.release()
            await namespace.wait_for_phase("Succeeded", 1)
            await namespace.client.request("DELETE", WatchedPod.resource.path(None, namespace.name))
            path = api.api.resource.path("sample", namespace.name)
            sample = msgspec.json.decode(await namespace.client.request("GET", path), type=_FinishedJob)
            await namespace.submit(api.jobs(running, WORKERS))
            await namespace.wait_until(
                lambda: len(namespace.phases["Running"].keys() - {"sample"}) >= running,
                f"{running} jobs are Running",
            )
        await per_second(
            finished - 1,
            lambda number: _create_finished(namespace, api.api.resource, sample, f"finished-{number}"),
            IN_FLIGHT,
        )
        await namespace.wait_for_phase("Succeeded", finished)
        yield namespace


class _FinishedJob(Struct):
    spec: msgspec.Raw
    status: msgspec.Raw


class _Meta(Struct, rename="camel"):
    resource_version: str


class _Created(Struct):
    metadata: _Meta


async def _create_finished(namespace: Namespace, resource: Resource, sample: _FinishedJob, name: str) -> None:
    """Create a job with the spec and the status of the sample."""
    body: Json = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": sample.spec,
    }
    collection = resource.path(None, namespace.name)
    created = msgspec.json.decode(
        await namespace.client.request("POST", collection, body=body), type=_Created
    )
    metadata = {"name": name, "resourceVersion": created.metadata.resource_version}
    status = msgspec.Raw(bytes(sample.status).replace(b"=sample,", f"={name},".encode()))
    await namespace.client.request(
        "PUT",
        resource.path(name, namespace.name, "status"),
        body={**body, "metadata": metadata, "status": status},
    )


async def start_operator_with_jobs(
    rig: Rig, api: BenchApi, namespace: Namespace, number: int, idle_seconds: float
) -> IdleRound:
    """W4: start an operator, let it idle, then submit one more job."""
    await rig.collect_garbage()
    start = time.perf_counter()
    with starting_operator(rig.server, core=rig.core) as process:
        await asyncio.to_thread(process.wait_until_ready)
        await asyncio.to_thread(process.wait_until_leader)
        synced = time.perf_counter() - start
        await asyncio.to_thread(process.wait_until_reconciled, len(namespace.jobs))
        reconciled = time.perf_counter() - start
        await asyncio.sleep(rig.settle_seconds)
        before = cpu_seconds(process.pid)
        await asyncio.sleep(idle_seconds)
        idle_cpu_percent = (cpu_seconds(process.pid) - before) / idle_seconds * 100
        name, pods = f"new-{number}", len(namespace.running)
        submitted = await namespace.submit([api.job(name, WORKERS)])
        await namespace.wait_for_pods(pods + WORKERS)
        new_running = time.perf_counter() - submitted
        await namespace.wait_until(lambda: name in namespace.phases["Running"], "the new job is Running")
        return IdleRound(
            synced=synced,
            reconciled=reconciled,
            idle_cpu_percent=idle_cpu_percent,
            rss_mb=peak_rss_mb(process.pid),
            new_running=new_running,
            new_reported=namespace.phases["Running"][name] - submitted,
        )


class ListRound(Struct, frozen=True):
    """A round of W4 by the baseline client."""

    listed: float
    """Seconds from the start of the process until it has read all jobs and pods."""
    new_running: float
    rss_mb: float


async def list_by_baseline(rig: Rig, api: BenchApi, namespace: Namespace, number: int) -> ListRound:
    """Read all jobs and pods, then create the pods of one more job."""
    paths = [resource.path(None, None) for resource in (api.api.resource, WatchedPod.resource)]
    await rig.collect_garbage()
    start = time.perf_counter()
    with rig.baseline_process("--list", *paths) as process:
        await asyncio.to_thread(Baseline(process).wait_for, "done")
        listed, rss_mb = time.perf_counter() - start, peak_rss_mb(process.pid)
    pods = len(namespace.running)
    jobs = [api.job(f"baseline-{number}", WORKERS)]
    with rig.baseline(api.pods(jobs, namespace.name)) as baseline:
        start = time.perf_counter()
        baseline.start()
        await namespace.wait_for_pods(pods + WORKERS)
        return ListRound(listed, seconds_to_last(namespace.running, start), rss_mb)
