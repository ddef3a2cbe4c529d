"""The operator: CPU time per pod while 1,000 jobs of 8 pods start, and its writes per job.

It runs on a real kube-apiserver if one has been built, else on Argosy's own; nodes are simulated.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Pod, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from bench.figures import Figure
from bench.load import pod
from bench.processes import Operator, cpu_seconds, install, operator, simulator, sum_metrics
from tests.support.assets import MissingAsset, find
from tests.support.servers import Server, local_apiserver, real_apiserver

JOBS, PODS = int(os.environ.get("BENCH_JOBS", "1000")), 8
ROUNDS = 4
WRITES = r'argosy_api_requests_total{.*method="(?:POST|PUT|PATCH|DELETE)"'
MIN_WRITES = PODS + 4
MIN_WRITES_ARE = "its pods, a service, an event, and a status before and after"


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, any_server(Path(folder)) as server:
        asyncio.run(prepare(server))
        with simulator(server):
            costs, bounds = [], []
            with operator(server, "--no-leader-elect") as process:
                for number in range(ROUNDS):
                    bounds.append(asyncio.run(_baseline(server, number)))
                    before = cpu_seconds(process.pid)
                    asyncio.run(_start_jobs(server, JOBS * number // ROUNDS, JOBS * (number + 1) // ROUNDS))
                    costs.append((cpu_seconds(process.pid) - before) / (JOBS // ROUNDS * PODS) * 1000)
                writes = sum_metrics(process.metrics(), WRITES) / JOBS
            bound_is = f"a baseline client creating pods; cheapest of {ROUNDS} alternating rounds"
            yield Figure("operator_cpu_ms_per_pod", min(costs), "ms", min(bounds), bound_is, 1.5)
            yield Figure("operator_writes_per_job", writes, "", MIN_WRITES, MIN_WRITES_ARE, 14)
            with operator(server, "--no-leader-elect") as process:
                writes = _writes_after_restart(process)
            yield Figure("second_pass_writes", writes, "", 0, "none", 0)


@contextlib.contextmanager
def any_server(folder: Path) -> Iterator[Server]:
    """Start a real kube-apiserver if one has been built, else Argosy's own."""
    try:
        find("kube-apiserver")
    except MissingAsset as missing:
        print(f"using Argosy's own API server: {missing}", file=sys.stderr)
        with local_apiserver(folder) as server:
            yield server
    else:
        with real_apiserver(folder) as server:
            yield server


async def prepare(server: Server) -> None:
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await install(client)
        await client.apply(ServiceAccount, {"metadata": {"name": "default"}}, "default", force=True)


async def _baseline(server: Server, turn: int) -> float:
    """Return the milliseconds of CPU that a client uses to create a pod and read it once."""
    bodies = [pod(f"baseline-{turn}-{number}") for number in range(500)]
    for body in bodies:
        body["metadata"]["labels"] = {"baseline": str(turn)}  # type: ignore[index]  # without the operator's labels
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        start = time.process_time()
        await asyncio.gather(*(client.create(Pod, body, "default") for body in bodies))
        await client.list(Pod, "default", labels=f"baseline={turn}")
        return (time.process_time() - start) / len(bodies) * 1000


async def _start_jobs(server: Server, first: int, end: int) -> None:
    """Create the jobs of these numbers, and wait until all jobs are Running."""
    container = {"name": "main", "image": "local", "command": ["train"]}
    template = {"spec": {"containers": [container], "automountServiceAccountToken": False}}
    spec = {"framework": "custom", "roles": {"worker": {"replicas": PODS, "template": template}}}
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        bodies = [{"metadata": {"name": f"job-{number}"}, "spec": spec} for number in range(first, end)]
        await asyncio.gather(*(client.create(TrainingRun, body, "default") for body in bodies))
        async with asyncio.timeout(600):
            while True:
                runs = (await client.list(TrainingRun, "default", resource_version="0")).items
                if sum(run.status.phase == "Running" for run in runs) == end:
                    return
                await asyncio.sleep(1)


def _writes_after_restart(process: Operator) -> float:
    """Return the writes of an operator that starts when every job is as it should be."""
    process.wait_until_reconciled(JOBS)
    time.sleep(2)
    return sum_metrics(process.metrics(), WRITES)
