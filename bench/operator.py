"""The operator: CPU for each pod while 1,000 jobs of 8 come up, and what it writes when all is well.

Against a real kube-apiserver where one has been built, else against our own; nodes are simulated.
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
from bench.parts import Operator, cpu_seconds, install, operator, simulator, summed
from tests.support.assets import MissingAsset, find
from tests.support.servers import Server, local_apiserver, real_apiserver

JOBS, PODS = int(os.environ.get("BENCH_JOBS", "1000")), 8
ROUNDS = 4
WRITES = r'argosy_api_requests_total{.*method="(?:POST|PUT|PATCH|DELETE)"'
LEAST_WRITES = PODS + 4
LEAST_WRITES_ARE = "its pods, a service, an event, and a status before and after"


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, any_server(Path(folder)) as server:
        asyncio.run(prepare(server))
        with simulator(server):
            spent, bounds = [], []
            with operator(server, "--no-leader-elect") as process:
                for number in range(ROUNDS):
                    bounds.append(asyncio.run(_bare(server, number)))
                    before = cpu_seconds(process.pid)
                    asyncio.run(_bring_up(server, JOBS * number // ROUNDS, JOBS * (number + 1) // ROUNDS))
                    spent.append((cpu_seconds(process.pid) - before) / (JOBS // ROUNDS * PODS) * 1000)
                writes = summed(process.metrics(), WRITES) / JOBS
            bound_is = f"a bare client creating pods; cheapest of {ROUNDS} rounds in turn"
            yield Figure("operator_cpu_ms_per_pod", min(spent), "ms", min(bounds), bound_is, 1.5)
            yield Figure("operator_writes_per_job", writes, "", LEAST_WRITES, LEAST_WRITES_ARE, 14)
            with operator(server, "--no-leader-elect") as process:
                writes = _writes_of_a_pass(process)
            yield Figure("second_pass_writes", writes, "", 0, "nothing", 0)


@contextlib.contextmanager
def any_server(folder: Path) -> Iterator[Server]:
    """A real kube-apiserver where one has been built, else our own."""
    try:
        find("kube-apiserver")
    except MissingAsset as missing:
        print(f"against our own API server, for {missing}", file=sys.stderr)
        with local_apiserver(folder) as server:
            yield server
    else:
        with real_apiserver(folder) as server:
            yield server


async def prepare(server: Server) -> None:
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await install(client)
        await client.apply(ServiceAccount, {"metadata": {"name": "default"}}, "default", force=True)


async def _bare(server: Server, turn: int) -> float:
    """Milliseconds of CPU that a plain client spends on creating a pod and seeing it once."""
    bodies = [pod(f"bare-{turn}-{number}") for number in range(500)]
    for body in bodies:
        body["metadata"]["labels"] = {"bare": str(turn)}  # type: ignore[index]  # none of the operator's
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        began = time.process_time()
        await asyncio.gather(*(client.create(Pod, body, "default") for body in bodies))
        await client.list(Pod, "default", labels=f"bare={turn}")
        return (time.process_time() - began) / len(bodies) * 1000


async def _bring_up(server: Server, first: int, end: int) -> None:
    """Make jobs of these numbers, and wait until all that there are say Running."""
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


def _writes_of_a_pass(process: Operator) -> float:
    """Writes of an operator that starts with every job as it should be; its Lease and keys are its own."""
    process.until_passed(JOBS)
    time.sleep(2)
    return summed(process.metrics(), WRITES)
