"""The operator against a real kube-apiserver, beside a bare client that makes the same pods.

What the workloads are and how to read the ratios is told in docs/benchmarks.md. Rounds of the two alternate,
on the same core, with the same simulated nodes; each figure is the median of its rounds, and a ratio that of
neighbouring rounds: what else the machine does changes from minute to minute.
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
from bench import kubernetes_runs as runs
from bench.figures import Figure
from bench.kubernetes_runs import Bare, Ours, Stage
from bench.parts import install, simulator
from bench.scene import runs as jobs_of
from tests.support.assets import MissingAsset, find
from tests.support.scheduler_objects import Json
from tests.support.servers import Server, real_apiserver

A = TypeVar("A")
B = TypeVar("B")

VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")
BARE = "a bare client, 64 in flight"
CORE = min(os.sched_getaffinity(0))


class Sizes(Struct, frozen=True):
    """How much of everything, and how often."""

    rounds: int = 5
    alone: int = 1000
    big: tuple[int, ...] = (512, 2000)
    """W1: workers of one job."""
    jobs: int = 200
    """W2: jobs submitted at once, of 8 workers each."""
    broken: int = 100
    """W3: running jobs that lose a worker each."""
    finished: int = 10_000
    kept: int = 500
    """W4: jobs that have ended, and that run."""
    run_seconds: float = 5.0
    """W2: how long the pods of a job run after the last of them has come up."""
    late_seconds: float = 2.5
    """How long is waited for what the operator still writes after the last thing that was waited for."""
    idle_seconds: float = 10.0
    workloads: tuple[str, ...] = ("w1", "w2", "w3", "w4")

    @classmethod
    def from_environment(cls) -> "Sizes":
        """BENCH_WORKLOADS=w2,w3 for some of them; BENCH_SCALE=0.1 for a tenth of the jobs; BENCH_ROUNDS=1."""
        full = cls()
        scale = float(os.environ.get("BENCH_SCALE", "1"))
        given = os.environ.get("BENCH_WORKLOADS")
        return cls(
            rounds=int(os.environ.get("BENCH_ROUNDS", full.rounds)),
            alone=max(1, round(full.alone * scale)),
            big=full.big if scale == 1 else tuple(max(1, round(size * scale)) for size in full.big),
            jobs=max(1, round(full.jobs * scale)),
            broken=max(1, round(full.broken * scale)),
            finished=max(1, round(full.finished * scale)),
            kept=max(1, round(full.kept * scale)),
            workloads=tuple(given.split(",")) if given else full.workloads,
        )


WORKERS = 8


def measure(sizes: Sizes | None = None) -> Iterator[Figure]:
    try:
        find("etcd")
        find("kube-apiserver")
    except MissingAsset as missing:
        print(f"kubernetes: left out, for {missing}", file=sys.stderr)
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        real_apiserver(Path(folder)) as server,
        asyncio.Runner(loop_factory=loop_factory()) as runner,
    ):
        figures = measured(server, sizes or Sizes.from_environment())
        while (figure := runner.run(anext(figures, None))) is not None:
            yield figure


async def measured(server: Server, sizes: Sizes) -> AsyncIterator[Figure]:
    """All figures, of a server that nobody else uses."""
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await install(client)
        stage = Stage(server, client, CORE, sizes.late_seconds)
        made, ran = await runs.alone(stage, sizes.alone)
        yield Figure("bare_pods_made_per_s", made, "1/s", made, "itself", None, "higher")
        yield Figure("simulator_pods_per_s", ran, "1/s", made, "made by the bare client", None, "higher")
        with simulator(server):
            for workload, figures in WORKLOADS.items():
                if workload in sizes.workloads:
                    async for figure in figures(stage, sizes):
                        yield figure


async def _w1(stage: Stage, sizes: Sizes) -> AsyncIterator[Figure]:
    for workers in sizes.big:
        ours, bare = await _started(stage, sizes.rounds, jobs_of(1, workers), workers)
        for figure in _starts(f"w1_{workers}", workers, ours, bare, rss=None):
            yield figure


async def _w2(stage: Stage, sizes: Sizes) -> AsyncIterator[Figure]:
    pods, bodies = sizes.jobs * WORKERS, jobs_of(sizes.jobs, WORKERS, sizes.run_seconds)
    ours, bare = await _started(stage, sizes.rounds, bodies, pods, end=True)
    for figure in _starts("w2", pods, ours, bare, rss=80):
        yield figure
    least = _median(bare, lambda one: one.run) + sizes.run_seconds
    ended = _median(ours, lambda one: one.ended)
    yield Figure("w2_succeeded_s", ended, "s", least, f"{BARE}, and {sizes.run_seconds:g} s", None)


async def _started(
    stage: Stage, rounds: int, bodies: list[Json], pods: int, *, end: bool = False
) -> tuple[list[Ours], list[Bare]]:
    return await _alternating(
        rounds,
        lambda _: runs.by_operator(stage, bodies, pods, end=end),
        lambda _: runs.by_bare_client(stage, bodies, pods),
    )


def _starts(
    name: str, pods: int, ours: Sequence[Ours], bare: Sequence[Bare], rss: float | None
) -> Iterator[Figure]:
    """What is told of jobs that come up."""
    limit = _median(bare, lambda one: one.run)
    run = _median(ours, lambda one: one.run)
    yield Figure(f"{name}_exist_s", _median(ours, lambda one: one.exist), "s", limit, BARE, None)
    yield Figure(f"{name}_run_s", run, "s", limit, BARE, None)
    yield Figure(f"{name}_told_s", _median(ours, lambda one: one.told), "s", limit, BARE, None)
    yield Figure(f"{name}_raw_s", limit, "s", limit, "itself", None)
    ratio = median(least.run / one.run for one, least in zip(ours, bare, strict=True))
    yield Figure(f"{name}_ratio", ratio, "", 1, BARE, 0.8, "higher")
    cpu = _median(ours, lambda one: one.spent.cpu) / pods * 1000
    least = _median(bare, lambda one: one.cpu) / pods * 1000
    yield Figure(f"{name}_cpu_ms_per_pod", cpu, "ms", least, BARE, 1.5)
    held, least = (max(one.rss for one in both) for both in (ours, bare))
    yield Figure(f"{name}_rss_mb", held, "MB", least, BARE, rss)
    every = _median(ours, lambda one: sum(one.spent.by_verb.values())) / pods
    yield Figure(f"{name}_requests_per_pod", every, "", 1, BARE, 2)
    for verb in VERBS:
        count = median(one.spent.by_verb.get(verb, 0.0) for one in ours) / pods
        yield Figure(f"{name}_{verb.lower()}_per_pod", count, "", float(verb == "POST"), BARE, None)
    yield Figure(f"{name}_unseen_running", max(one.unseen for one in ours), "", 0, "nothing", 0)
    yield Figure(f"{name}_refused", max(one.spent.refused for one in ours), "", 0, "nothing", 0)


async def _w3(stage: Stage, sizes: Sizes) -> AsyncIterator[Figure]:
    async with runs.running_jobs(stage, sizes.broken, WORKERS) as there:
        ours, bare = await _alternating(
            sizes.rounds,
            lambda number: runs.repaired_by_operator(stage, there, number % WORKERS),
            lambda number: runs.repaired_by_bare_client(stage, there, number % WORKERS),
        )
    for word, share, target in (("p50", 50, 0.5), ("p99", 99, 2.0)):
        value, limit = (median(_percentile(one.seconds, share) for one in both) for both in (ours, bare))
        yield Figure(f"w3_repair_{word}_s", value, "s", limit, "a bare client that watches", target)
    value, limit = (median(max(one.seconds) for one in both) for both in (ours, bare))
    yield Figure("w3_repair_s", value, "s", limit, "a bare client that watches", None)
    ratio = median(max(least.seconds) / max(one.seconds) for one, least in zip(ours, bare, strict=True))
    yield Figure("w3_ratio", ratio, "", 1, "a bare client that watches", None, "higher")
    pods = sizes.broken
    cpu = _median(ours, lambda one: one.spent.cpu) / pods * 1000
    yield Figure("w3_cpu_ms_per_repair", cpu, "ms", cpu, "itself", None)
    every = _median(ours, lambda one: sum(one.spent.by_verb.values())) / pods
    yield Figure("w3_requests_per_repair", every, "", 1, "a bare client that watches", None)
    yield Figure("w3_refused", max(one.spent.refused for one in ours), "", 0, "nothing", 0)


async def _w4(stage: Stage, sizes: Sizes) -> AsyncIterator[Figure]:
    async with runs.many_jobs(stage, sizes.finished, sizes.kept, WORKERS) as shown:
        ours, bare = await _alternating(
            sizes.rounds,
            lambda number: runs.kept_by_operator(stage, shown, number, sizes.idle_seconds),
            lambda number: runs.read_by_bare_client(stage, shown, number),
        )
    read, new = _median(bare, lambda one: one.read), _median(bare, lambda one: one.new_run)
    yield Figure("w4_synced_s", _median(ours, lambda one: one.synced), "s", read, "both lists read", 3)
    yield Figure("w4_looked_s", _median(ours, lambda one: one.looked), "s", read, "both lists read", None)
    yield Figure("w4_idle_cpu_percent", _median(ours, lambda one: one.idle_percent), "%", 0, "nothing", 1)
    held, least = max(one.rss for one in ours), max(one.rss for one in bare)
    yield Figure("w4_rss_mb", held, "MB", least, "both lists read", 250)
    yield Figure("w4_new_run_s", _median(ours, lambda one: one.new_run), "s", new, BARE, None)
    yield Figure("w4_new_told_s", _median(ours, lambda one: one.new_told), "s", new, BARE, None)


WORKLOADS: dict[str, Callable[[Stage, Sizes], AsyncIterator[Figure]]] = {
    "w1": _w1,
    "w2": _w2,
    "w3": _w3,
    "w4": _w4,
}


async def _alternating(
    rounds: int, ours: Callable[[int], Awaitable[A]], bare: Callable[[int], Awaitable[B]]
) -> tuple[list[A], list[B]]:
    """Each goes first in turn: a machine that warms up, or tires, favours neither."""
    pairs: list[tuple[A, B]] = []
    for number in range(rounds):
        if number % 2:
            second = await bare(number)
            pairs.append((await ours(number), second))
        else:
            pairs.append((await ours(number), await bare(number)))
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _median(rounds: Sequence[A], value: Callable[[A], float]) -> float:
    return median(value(one) for one in rounds)


def _percentile(values: Sequence[float], share: int) -> float:
    if len(values) < 2:
        return values[0]
    return quantiles(values, n=100, method="inclusive")[share - 1]
