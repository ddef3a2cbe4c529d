"""Elastic TrainingJobs on a real kube-apiserver: how soon host lists are current, and what scaling costs.

Nodes are simulated. Commands in their containers run nothing, and launchers acknowledge host lists as their
sidecars do. docs/contributors/benchmarks.md describes the figures.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from statistics import median

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.loop import loop_factory
from argosy.kinds.trainingjob import TrainingJob
from bench.elastic_rounds import BurstRound, LargeRound, scale_large_job, scale_many_jobs
from bench.figures import Figure
from bench.job_apis import JOB_APIS, WORKERS
from bench.processes import install, simulator
from bench.rig import Rig
from bench.start_rounds import start_by_baseline, start_by_operator
from tests.support.assets import MissingAsset, find
from tests.support.servers import Server, real_apiserver

API = next(api for api in JOB_APIS if api.api.kind is TrainingJob)
CORE = min(os.sched_getaffinity(0))
MAX_LIST_SECONDS = 1.0
MAX_BURST_SECONDS = 10.0
"""Beyond the time in which the new pods start, where the API server is fast enough for that."""
MAX_BURST_RATIO = 1.25
"""The same where it is not: a multiple of the time of a bare client for as many status writes."""
MIN_REQUESTS = {"scale_out": 12, "scale_in": 15}
"""Requests that one scale needs whatever the operator does; docs/contributors/benchmarks.md lists them."""
MAX_CPU_RATIO = 2.0
"""CPU of a scale, as a multiple of that of as many requests when plain jobs start in the same run."""


class Sizes(Struct, frozen=True):
    """Sizes of the workloads, and how many rounds of each are run."""

    rounds: int = 3
    added_workers: int = 100
    lost_workers: int = 10
    jobs: int = 200
    plain_jobs: int = 100
    """TrainingRuns of eight workers, whose start tells the CPU of a request in this run."""
    settle_seconds: float = 2.5
    """How long to wait for late writes of the operator before its usage is read."""


def measure(sizes: Sizes | None = None) -> Iterator[Figure]:
    try:
        find("etcd")
        find("kube-apiserver")
    except MissingAsset as missing:
        print(f"elastic: skipped: {missing}", file=sys.stderr)
        return
    rounds = int(os.environ.get("BENCH_ROUNDS", Sizes().rounds))
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        real_apiserver(Path(folder)) as server,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        figures = measure_on(server, sizes or Sizes(rounds=rounds))
        while (figure := runner.run(anext(figures, None))) is not None:
            yield figure


async def measure_on(server: Server, sizes: Sizes) -> AsyncIterator[Figure]:
    """Yield all figures, measured on an API server without other clients."""
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await install(client)
        rig = Rig(server, client, CORE, sizes.settle_seconds)
        with simulator(server):
            large = [
                await scale_large_job(rig, API, sizes.added_workers, sizes.lost_workers)
                for _ in range(sizes.rounds)
            ]
            for figure in _large_figures(large, sizes.added_workers):
                yield figure
            bursts = [await scale_many_jobs(rig, API, sizes.jobs) for _ in range(sizes.rounds)]
            pods = await _start_bare_pods(rig, sizes.jobs)
            request_cpu = await _request_cpu(rig, sizes.plain_jobs)
    yield Figure("start_cpu_ms_per_request", request_cpu, "ms", request_cpu, "itself", None)
    added, removed = zip(*bursts, strict=True)
    for name, rounds in (("scale_out", added), ("scale_in", removed)):
        floor = MIN_REQUESTS[name] * request_cpu
        for figure in _burst_figures(f"{name}_{sizes.jobs}", rounds, sizes.jobs, pods, floor):
            yield figure


def _large_figures(rounds: Sequence[LargeRound], workers: int) -> Iterator[Figure]:
    listed, commands = median(r.listed for r in rounds), median(r.commands for r in rounds)
    bound_is = f"a command in each of {workers} pods by a bare client"
    yield Figure(f"scale_out_{workers}_listed_s", listed, "s", commands, bound_is, MAX_LIST_SECONDS)
    cpu = median(r.usage.cpu for r in rounds) / workers * 1000
    yield Figure(f"scale_out_{workers}_cpu_ms_per_worker", cpu, "ms", cpu, "itself", None)
    requests = median(r.usage.request_count for r in rounds) / workers
    yield Figure(f"scale_out_{workers}_requests_per_worker", requests, "", 2, "a pod and a Service", None)
    lost, writes = [seconds for r in rounds for seconds in r.lost], median(r.writes for r in rounds)
    bound_is = "three writes, each seen by a watch"
    yield Figure("lost_worker_unlisted_p50_s", median(lost), "s", writes, bound_is, None)
    yield Figure("lost_worker_unlisted_max_s", max(lost), "s", writes, bound_is, MAX_LIST_SECONDS)


def _burst_figures(
    name: str, rounds: Sequence[BurstRound], jobs: int, bare_pods: float, min_cpu: float
) -> Iterator[Figure]:
    bound_is = "as many pods by a baseline client"
    yield Figure(f"{name}_done_s", median(r.done for r in rounds), "s", bare_pods, bound_is, None)
    if any(r.running for r in rounds):
        yield Figure(f"{name}_running_s", median(r.running for r in rounds), "s", bare_pods, bound_is, None)
    beyond = median(r.done - r.running for r in rounds)
    writes = median(r.usage.request_count / r.writes_per_second for r in rounds)
    writes_are = "as many status writes by a bare client"
    target = max(MAX_BURST_SECONDS, MAX_BURST_RATIO * writes)
    yield Figure(f"{name}_beyond_pods_s", beyond, "s", writes, writes_are, target)
    cpu = median(r.usage.cpu for r in rounds) / jobs * 1000
    bound_is = "the requests that are needed, at the cost of those of plain jobs"
    yield Figure(f"{name}_cpu_ms_per_scale", cpu, "ms", min_cpu, bound_is, MAX_CPU_RATIO * min_cpu)
    requests = median(r.usage.request_count for r in rounds) / jobs
    yield Figure(f"{name}_requests_per_scale", requests, "", 1, "a scaler", None)
    yield Figure(f"{name}_errors", max(r.usage.errors for r in rounds), "", 0, "none", 0)


async def _start_bare_pods(rig: Rig, count: int) -> float:
    """Return the seconds in which a baseline client starts as many pods."""
    plain = JOB_APIS[0]
    jobs = -(-count // WORKERS)
    round_ = await start_by_baseline(rig, plain, plain.jobs(jobs, WORKERS), jobs * WORKERS)
    return round_.running


async def _request_cpu(rig: Rig, jobs: int) -> float:
    """Return the CPU of the operator per request while plain jobs start, in milliseconds."""
    plain = JOB_APIS[0]
    round_ = await start_by_operator(rig, plain, plain.jobs(jobs, WORKERS), jobs * WORKERS)
    return round_.usage.cpu / round_.usage.request_count * 1000
