"""The operator over 1,000 jobs of 8 simulated pods: its CPU per pod, and that a second finds nothing to do.

The operator runs in a process of its own, so that its CPU is told apart from that of the simulator and of the
API server. The bound is the CPU of a client that only creates as many pods and reads their events.
"""

import asyncio
import contextlib
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import aiohttp

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists
from argosy.engine.kubeconfig import Connection
from argosy.kinds.catalog import OURS
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Pod, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.testing.builders import run
from argosy.testing.servers import Server, free_port, local_apiserver
from argosy.testing.simulator import Simulator
from bench.figures import Figure
from bench.load import pod

JOBS, PODS = 1000, 8
DEADLINE = 600.0
PASSES = r"argosy_passes_total\{[^}]*\} (\S+)"
WRITES = r'argosy_requests_total\{[^}]*verb="(?!GET)\w+"\} (\S+)'

OPERATOR = """
import sys
from pathlib import Path
from argosy.engine.loop import run as run_loop
from argosy.operator.main import run
from argosy.operator.settings import Settings
run_loop(run(Settings(kubeconfig=Path(sys.argv[1]), endpoint="", health=f"127.0.0.1:{sys.argv[2]}",
                      leader_elect=False, log_level="error")))
"""


def measure(jobs: int = JOBS) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, local_apiserver(Path(folder)) as server:
        bound = asyncio.run(_bound(server))
        spent = asyncio.run(_bring_up(server, jobs))
        per_pod = 1000 * spent / (jobs * PODS)
        yield Figure("operator_cpu_ms_per_pod", per_pod, "ms", bound, "creating and watching alone", 1.5)
        writes = asyncio.run(_second_pass(server, jobs))
        yield Figure("second_pass_writes", writes, "writes", 0, "nothing changed", 0)


async def _bound(server: Server, pods: int = 500) -> float:
    """Milliseconds of CPU per pod of a loop that creates pods and reads them back from a watch."""
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await _prepare(client)
        cache = Cache(client, Pod, namespace="default")
        watching = asyncio.create_task(cache.run())
        await cache.wait_synced()
        before = time.process_time()
        for start in range(0, pods, 50):
            bodies = [pod(f"bound-{number}") for number in range(start, start + 50)]
            await asyncio.gather(*(client.create(Pod, body, "default") for body in bodies))
        await _until(lambda: len(cache) >= pods)
        spent = time.process_time() - before
        watching.cancel()
        for name in [one.metadata.name for one in cache]:
            await client.delete(Pod, name, "default", grace_seconds=0)
    return 1000 * spent / pods


async def _bring_up(server: Server, jobs: int) -> float:
    """Seconds of CPU the operator spends until every job is Running."""
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        runs = Cache(client, TrainingRun, namespace="default")
        async with _operator(server) as (process, _), Simulator(client, 20, schedule=True):
            watching = asyncio.create_task(runs.run())
            before = _cpu(process.pid)
            await _submit(client, jobs)
            await _until(lambda: sum(one.status.phase == "Running" for one in runs) >= jobs)
            await asyncio.sleep(2.0)  # counts that are held back for a second belong to the price
            watching.cancel()
            return _cpu(process.pid) - before


async def _second_pass(server: Server, jobs: int) -> float:
    """Writes of an operator that starts over jobs which another has brought to rest."""
    async with _operator(server) as (_, port):
        async with asyncio.timeout(DEADLINE):
            while _sum(await _metrics(port), PASSES) < jobs:  # noqa: ASYNC110 - it happens elsewhere
                await asyncio.sleep(0.2)
        return _sum(await _metrics(port), WRITES)


async def _submit(client: Client, jobs: int) -> None:
    for start in range(0, jobs, 32):
        made = (run(f"job-{number}").role("worker", PODS) for number in range(start, min(start + 32, jobs)))
        await asyncio.gather(*(client.create(TrainingRun, one.build(), "default") for one in made))


@contextlib.asynccontextmanager
async def _operator(server: Server) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", OPERATOR, str(server.kubeconfig), str(port)
    )
    try:
        async with asyncio.timeout(30):
            while not await _ready(port):  # noqa: ASYNC110 - it happens elsewhere
                await asyncio.sleep(0.05)
        yield process, port
    finally:
        process.terminate()
        await process.wait()


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():  # noqa: ASYNC110 - it happens elsewhere
            await asyncio.sleep(0.05)


async def _prepare(client: Client) -> None:
    for kind in OURS:
        await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
    with contextlib.suppress(AlreadyExists):
        await client.create(ServiceAccount, {"metadata": {"name": "default"}}, "default")


async def _ready(port: int) -> bool:
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/readyz") as answer,
        ):
            return answer.status == 200
    return False


async def _metrics(port: int) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        return await answer.text()


def _sum(text: str, pattern: str) -> float:
    return sum(map(float, re.findall(pattern, text)))


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
