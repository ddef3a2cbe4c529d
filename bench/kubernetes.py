"""The operator on a real kube-apiserver, compared with a baseline client that only creates the same pods.

docs/contributors/benchmarks.md describes the workloads W1 to W4 and the figures. W1 to W3 run for every job
API. Rounds of operator and baseline alternate on the same core with the same simulated nodes. Each figure is
the median of its rounds; a ratio is the median of the ratios of neighbouring rounds, because the load of the
machine changes from minute to minute.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import TypeVar

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.loop import loop_factory
from argosy.kinds.meta import Json
from bench.figures import Figure
from bench.idle_rounds import list_by_baseline, many_jobs, start_operator_with_jobs
from bench.job_apis import JOB_APIS, WORKERS, BenchApi
from bench.processes import install, simulator
from bench.repair_rounds import repair_by_baseline, repair_by_operator, running_jobs
from bench.rig import Rig
from bench.start_rounds import (
    BaselineRound,
    OperatorRound,
    baseline_alone,
    start_by_baseline,
    start_by_operator,
)
from tests.support.assets import MissingAsset, find
from tests.support.servers import Server, real_apiserver

A = TypeVar("A")
B = TypeVar("B")

BASELINE = "baseline client, 64 in flight"
REPAIR_BASELINE = "baseline client that watches"
LISTS = "baseline client that reads both lists"
CORE = min(os.sched_getaffinity(0))


class Sizes(Struct, frozen=True):
    """Sizes of the workloads, and how many rounds of each are run."""

    rounds: int = 3
    baseline_pods: int = 1000
    job_workers: tuple[int, ...] = (512, 2000)
    """W1: workers of the single job."""
    burst_jobs: int = 200
    """W2: jobs submitted at once."""
    repaired_jobs: int = 100
    """W3: running jobs that lose one worker each."""
    finished_jobs: int = 10_000
    running_jobs: int = 500
    """W4."""
    settle_seconds: float = 2.5
    """How long to wait for late writes of the operator before its usage is read."""
    idle_seconds: float = 10.0
    workloads: tuple[str, ...] = ("w1", "w2", "w3", "w4")
    apis: tuple[str, ...] = tuple(api.name for api in JOB_APIS)

    @classmethod
    def from_environment(cls) -> "Sizes":
        """Read BENCH_ROUNDS=1, BENCH_SCALE=0.1 (a tenth of the jobs), BENCH_WORKLOADS=w2,w3, BENCH_APIS=….

        The names of APIs are those of JOB_APIS.
        """
        full = cls()
        scale = float(os.environ.get("BENCH_SCALE", "1"))
        workloads, apis = os.environ.get("BENCH_WORKLOADS"), os.environ.get("BENCH_APIS")

        def scaled(size: int) -> int:
            return max(1, round(size * scale))

        return cls(
            rounds=int(os.environ.get("BENCH_ROUNDS", full.rounds)),
            baseline_pods=scaled(full.baseline_pods),
            job_workers=tuple(map(scaled, full.job_workers)),
            burst_jobs=scaled(full.burst_jobs),
            repaired_jobs=scaled(full.repaired_jobs),
            finished_jobs=scaled(full.finished_jobs),
            running_jobs=scaled(full.running_jobs),
            workloads=tuple(workloads.split(",")) if workloads else full.workloads,
            apis=tuple(apis.split(",")) if apis else full.apis,
        )


def measure(sizes: Sizes | None = None) -> Iterator[Figure]:
    try:
        find("etcd")
        find("kube-apiserver")
    except MissingAsset as missing:
        print(f"kubernetes: skipped: {missing}", file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        real_apiserver(Path(folder)) as server,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        figures = measure_on(server, sizes or Sizes.from_environment())
        while (figure := runner.run(anext(figures, None))) is not None:
            yield figure


async def measure_on(server: Server, sizes: Sizes) -> AsyncIterator[Figure]:
    """Yield all figures, measured on an API server without other clients."""
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await install(client)
        rig = Rig(server, client, CORE, sizes.settle_seconds)
        created, ran = await baseline_alone(rig, sizes.baseline_pods)
        yield Figure("baseline_pods_created_per_s", created, "1/s", created, "itself", None, "higher")
        yield Figure("simulator_pods_per_s", ran, "1/s", created, BASELINE, None, "higher")
        with simulator(server):
            for api in JOB_APIS:
                if api.name not in sizes.apis:
                    continue
                for workload, figures in WORKLOADS.items():
                    if workload in sizes.workloads:
                        async for figure in figures(rig, api, sizes):
                            yield figure
            if "w4" in sizes.workloads:
                async for figure in _w4(rig, JOB_APIS[0], sizes):
                    yield figure


async def _w1(rig: Rig, api: BenchApi, sizes: Sizes) -> AsyncIterator[Figure]:
    """One large job."""
    for workers in sizes.job_workers:
        pods, jobs = api.pod_count(workers), api.jobs(1, workers)
        operator, baseline = await _start(rig, api, sizes.rounds, jobs, pods)
        name = f"w1_{api.name}_{workers}"
        for figure in _start_figures(name, api, pods, operator, baseline, api.start_ratio):
            yield figure


async def _w2(rig: Rig, api: BenchApi, sizes: Sizes) -> AsyncIterator[Figure]:
    """Many jobs at once. Their pods end when all run; how long the jobs then take is measured apart."""
    pods = sizes.burst_jobs * api.pod_count(WORKERS)
    jobs = api.jobs(sizes.burst_jobs, WORKERS, until_released=True)
    ending = sizes.burst_jobs * api.ending_count(WORKERS)
    operator, baseline = await _start(rig, api, sizes.rounds, jobs, pods, ending=ending)
    name = f"w2_{api.name}"
    for figure in _start_figures(name, api, pods, operator, baseline, api.burst_ratio, max_rss_mb=80):
        yield figure
    completed, bound = _median(operator, lambda r: r.completed), _median(baseline, lambda r: r.completed)
    yield Figure(f"{name}_completed_s", completed, "s", bound, "all pods of the baseline client", None)
    ratio = median(b.completed / o.completed for o, b in zip(operator, baseline, strict=True))
    yield Figure(f"{name}_completed_ratio", ratio, "", 1, "all pods of the baseline client", None, "higher")
    writes = _median(operator, lambda r: r.status_writes) / sizes.burst_jobs
    yield Figure(f"{name}_status_writes_per_job", writes, "", 2, "a status before and after", None)
    events = _median(operator, lambda r: r.events) / sizes.burst_jobs
    yield Figure(f"{name}_events_per_job", events, "", 2, "an event at start and at end", None)


async def _start(
    rig: Rig, api: BenchApi, count: int, jobs: list[Json], pods: int, *, ending: int = 0
) -> tuple[list[OperatorRound], list[BaselineRound]]:
    return await _alternate(
        count,
        lambda _: start_by_operator(rig, api, jobs, pods, release=ending > 0),
        lambda _: start_by_baseline(rig, api, jobs, pods, ending=ending),
    )


def _start_figures(
    name: str,
    api: BenchApi,
    pods: int,
    operator: Sequence[OperatorRound],
    baseline: Sequence[BaselineRound],
    ratio_target: float | None,
    max_rss_mb: float | None = None,
) -> Iterator[Figure]:
    bound = _median(baseline, lambda r: r.running)
    times: dict[str, Callable[[OperatorRound], float]] = {
        "created": lambda r: r.created,
        "running": lambda r: r.running,
        "reported": lambda r: r.reported,
    }
    for word, value in times.items():
        yield Figure(f"{name}_{word}_s", _median(operator, value), "s", bound, BASELINE, None)
    yield Figure(f"{name}_baseline_s", bound, "s", bound, "itself", None)
    ratio = median(b.running / o.running for o, b in zip(operator, baseline, strict=True))
    yield Figure(f"{name}_ratio", ratio, "", 1, BASELINE, ratio_target, "higher")
    cpu = _median(operator, lambda r: r.usage.cpu) / pods * 1000
    bound_cpu = _median(baseline, lambda r: r.cpu) / pods * 1000
    yield Figure(f"{name}_cpu_ms_per_pod", cpu, "ms", bound_cpu, BASELINE, api.max_cpu_ms_per_pod)
    rss, bound_rss = max(r.rss_mb for r in operator), max(r.rss_mb for r in baseline)
    yield Figure(f"{name}_rss_mb", rss, "MB", bound_rss, BASELINE, max_rss_mb)
    requests = _median(operator, lambda r: r.usage.request_count) / pods
    yield Figure(f"{name}_requests_per_pod", requests, "", 1, BASELINE, api.max_requests_per_pod)
    yield Figure(f"{name}_errors", max(r.usage.errors for r in operator), "", 0, "none", 0)


async def _w3(rig: Rig, api: BenchApi, sizes: Sizes) -> AsyncIterator[Figure]:
    """One lost worker of every running job at once."""
    async with running_jobs(rig, api, sizes.repaired_jobs) as running:
        operator, baseline = await _alternate(
            sizes.rounds,
            lambda number: repair_by_operator(rig, running, number % WORKERS),
            lambda number: repair_by_baseline(rig, running, number % WORKERS),
        )
    name, jobs = f"w3_{api.name}", sizes.repaired_jobs
    for word, percent in (("p50", 50), ("p99", 99), ("max", 100)):
        value, bound = (
            _median(both, lambda r, percent=percent: _percentile(r.seconds, percent))  # type: ignore[misc]
            for both in (operator, baseline)
        )
        yield Figure(f"{name}_repair_{word}_s", value, "s", bound, REPAIR_BASELINE, None)
    ratio = median(max(b.seconds) / max(o.seconds) for o, b in zip(operator, baseline, strict=True))
    yield Figure(f"{name}_ratio", ratio, "", 1, REPAIR_BASELINE, None, "higher")
    cpu = _median(operator, lambda r: r.usage.cpu) / jobs * 1000
    yield Figure(f"{name}_cpu_ms_per_repair", cpu, "ms", cpu, "itself", None)
    requests = _median(operator, lambda r: r.usage.request_count) / jobs
    yield Figure(f"{name}_requests_per_repair", requests, "", 1, REPAIR_BASELINE, None)
    yield Figure(f"{name}_errors", max(r.usage.errors for r in operator), "", 0, "none", 0)


async def _w4(rig: Rig, api: BenchApi, sizes: Sizes) -> AsyncIterator[Figure]:
    """The operator starts with many jobs, idles, and gets one more."""
    async with many_jobs(rig, api, sizes.finished_jobs, sizes.running_jobs) as namespace:
        operator, baseline = await _alternate(
            sizes.rounds,
            lambda number: start_operator_with_jobs(rig, api, namespace, number, sizes.idle_seconds),
            lambda number: list_by_baseline(rig, api, namespace, number),
        )
    listed, new = _median(baseline, lambda r: r.listed), _median(baseline, lambda r: r.new_running)
    yield Figure("w4_synced_s", _median(operator, lambda r: r.synced), "s", listed, LISTS, None)
    yield Figure("w4_reconciled_s", _median(operator, lambda r: r.reconciled), "s", listed, LISTS, None)
    idle = _median(operator, lambda r: r.idle_cpu_percent)
    yield Figure("w4_idle_cpu_percent", idle, "%", 0, "none", 1)
    rss, bound_rss = max(r.rss_mb for r in operator), max(r.rss_mb for r in baseline)
    yield Figure("w4_rss_mb", rss, "MB", bound_rss, LISTS, 250)
    yield Figure("w4_new_running_s", _median(operator, lambda r: r.new_running), "s", new, BASELINE, None)
    yield Figure("w4_new_reported_s", _median(operator, lambda r: r.new_reported), "s", new, BASELINE, None)


WORKLOADS: dict[str, Callable[[Rig, BenchApi, Sizes], AsyncIterator[Figure]]] = {
    "w1": _w1,
    "w2": _w2,
    "w3": _w3,
}
"""The workloads that run for every API."""


async def _alternate(
    count: int, operator: Callable[[int], Awaitable[A]], baseline: Callable[[int], Awaitable[B]]
) -> tuple[list[A], list[B]]:
    """Run pairs of rounds; each side goes first in turn, so that neither profits from a warm machine."""
    pairs: list[tuple[A, B]] = []
    for number in range(count):
        if number % 2:
            second = await baseline(number)
            pairs.append((await operator(number), second))
        else:
            pairs.append((await operator(number), await baseline(number)))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _median(results: Sequence[A], value: Callable[[A], float]) -> float:
    return median(value(result) for result in results)


def _percentile(values: Sequence[float], percent: int) -> float:
    if len(values) < 2 or percent == 100:
        return max(values)
    return quantiles(values, n=100, method="inclusive")[percent - 1]
