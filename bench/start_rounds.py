"""Rounds of W1 and W2: jobs start, by the operator or as bare pods by the baseline client."""

import asyncio
import time
from collections.abc import Sequence

from msgspec import Struct

from argosy.kinds.meta import Json
from bench.job_apis import JOB_APIS, BenchApi
from bench.namespace import seconds_to_last
from bench.processes import Usage, cpu_seconds, peak_rss_mb, simulator
from bench.rig import Rig


class OperatorRound(Struct, frozen=True):
    """A round of W1 or W2 by the operator; times in seconds since the first job was submitted."""

    created: float
    """All pods exist."""
    running: float
    """All pods run."""
    reported: float
    """All jobs have the phase Running."""
    completed: float
    """Seconds from the release of the pods until all jobs have the phase Succeeded; 0 without a release."""
    status_writes: float
    events: float
    usage: Usage
    rss_mb: float


class BaselineRound(Struct, frozen=True):
    """The same round by the baseline client."""

    running: float
    completed: float
    """Seconds from the release of the pods until all that end are Succeeded; 0 without a release."""
    cpu: float
    rss_mb: float


async def baseline_alone(rig: Rig, count: int) -> tuple[float, float]:
    """Return pods per second of the baseline client without a simulator, and of the simulator after it."""
    api = JOB_APIS[0]
    async with rig.namespace(api) as namespace:
        with rig.baseline(api.pods(api.jobs(1, count), namespace.name)) as baseline:
            start = time.perf_counter()
            baseline.start()
            await namespace.wait_until(lambda: len(namespace.created) >= count, f"{count} pods exist")
        created_per_second = count / seconds_to_last(namespace.created, start)
        with simulator(rig.server):
            start = time.perf_counter()
            await namespace.wait_for_pods(count)
        await namespace.clear()
    return created_per_second, count / seconds_to_last(namespace.running, start)


async def start_by_operator(
    rig: Rig, api: BenchApi, jobs: Sequence[Json], pods: int, *, release: bool = False
) -> OperatorRound:
    """W1 and W2: submit all jobs at once and wait until all run; then release them, if asked to."""
    async with rig.namespace(api) as namespace:
        with rig.operator() as process:
            writes_before = await rig.writes(api.api.resource)
            await rig.collect_garbage()
            before = process.usage()
            start = await namespace.submit(jobs)
            await namespace.wait_for_pods(pods)
            await namespace.wait_for_phase("Running", len(jobs))
            completed = 0.0
            if release:
                released = await namespace.release()
                await namespace.wait_for_phase("Succeeded", len(jobs))
                completed = seconds_to_last(namespace.phases["Succeeded"], released)
            await asyncio.sleep(rig.settle_seconds)
            usage, rss_mb = process.usage().since(before), peak_rss_mb(process.pid)
            status_writes, events = await rig.writes(api.api.resource)
        await namespace.clear()
    return OperatorRound(
        created=seconds_to_last(namespace.created, start),
        running=seconds_to_last(namespace.running, start),
        reported=seconds_to_last(namespace.phases["Running"], start),
        completed=completed,
        status_writes=status_writes - writes_before[0],
        events=events - writes_before[1],
        usage=usage,
        rss_mb=rss_mb,
    )


async def start_by_baseline(
    rig: Rig, api: BenchApi, jobs: list[Json], pods: int, *, ending: int = 0
) -> BaselineRound:
    """Create the same pods and nothing else; then release them, if some of them end then."""
    async with rig.namespace(api) as namespace:
        with rig.baseline(api.pods(jobs, namespace.name)) as baseline:
            await rig.collect_garbage()
            start = time.perf_counter()
            baseline.start()
            await namespace.wait_for_pods(pods)
            baseline.wait_for("done")
            cpu, rss_mb = cpu_seconds(baseline.process.pid), peak_rss_mb(baseline.process.pid)
        completed = 0.0
        if ending:
            released = await namespace.release()
            await namespace.wait_until(lambda: len(namespace.succeeded) >= ending, f"{ending} pods succeed")
            completed = seconds_to_last(namespace.succeeded, released)
        await namespace.clear()
    return BaselineRound(seconds_to_last(namespace.running, start), completed, cpu, rss_mb)
