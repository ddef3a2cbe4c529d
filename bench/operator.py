"""The operator: CPU for each pod while 1,000 jobs of 8 come up, and what it writes when all is well.

Against a real kube-apiserver where one has been built, else against our own; nodes are simulated.
"""

import asyncio
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.catalog import OURS
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, Pod, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.testing.assets import MissingAsset, find
from argosy.testing.servers import Server, free_port, local_apiserver, real_apiserver
from bench.figures import Figure
from bench.load import pod

JOBS, PODS = int(os.environ.get("BENCH_JOBS", "1000")), 8
ROUNDS = 4
TICKS = os.sysconf("SC_CLK_TCK")
WRITES = r'argosy_requests_total{.*verb="(?:POST|PUT|PATCH|DELETE)"'
LEAST_WRITES = PODS + 4
LEAST_WRITES_ARE = "its pods, a service, an event, and a status before and after"


def measure() -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, _server(Path(folder)) as server:
        asyncio.run(_prepare(server))
        health = f"127.0.0.1:{free_port()}"
        with _simulator(server):
            spent, bounds = [], []
            with _operator(server, health) as process:
                for number in range(ROUNDS):
                    bounds.append(asyncio.run(_bare(server, number)))
                    before = _cpu(process.pid)
                    asyncio.run(_bring_up(server, JOBS * number // ROUNDS, JOBS * (number + 1) // ROUNDS))
                    spent.append((_cpu(process.pid) - before) / (JOBS // ROUNDS * PODS) * 1000)
                writes = _sum(_metrics(health), WRITES) / JOBS
            bound_is = f"a bare client creating pods; cheapest of {ROUNDS} rounds in turn"
            yield Figure("operator_cpu_ms_per_pod", min(spent), "ms", min(bounds), bound_is, 1.5)
            yield Figure("operator_writes_per_job", writes, "", LEAST_WRITES, LEAST_WRITES_ARE, 14)
            with _operator(server, health):
                writes = _writes_of_a_pass(health)
            yield Figure("second_pass_writes", writes, "", 0, "nothing", 0)


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[Server]:
    try:
        find("kube-apiserver")
    except MissingAsset as missing:
        print(f"against our own API server, for {missing}", file=sys.stderr)
        with local_apiserver(folder) as server:
            yield server
    else:
        with real_apiserver(folder) as server:
            yield server


async def _prepare(server: Server) -> None:
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        for kind in OURS:
            await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
        await client.apply(Namespace, {"metadata": {"name": "argosy-system"}}, force=True)
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


def _writes_of_a_pass(health: str) -> float:
    """Writes of an operator that starts with every job as it should be; its Lease and keys are its own."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        text = _metrics(health)
        if _sum(text, r"argosy_passes_total{.*} ") >= JOBS:
            time.sleep(2)
            text = _metrics(health)
            return _sum(text, WRITES)
        time.sleep(0.2)
    raise TimeoutError("the operator did not look at every job")


def _metrics(health: str) -> str:
    with urllib.request.urlopen(f"http://{health}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def _sum(text: str, pattern: str) -> float:
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


@contextlib.contextmanager
def _operator(server: Server, health: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "argosy", "operator", "--kubeconfig", str(server.kubeconfig)]
    command += ["--endpoint", f"127.0.0.1:{free_port()}", "--health", health, "--no-leader-elect"]
    with _running(command, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{health}/readyz", timeout=5):
                break
            time.sleep(0.05)
        yield process


@contextlib.contextmanager
def _simulator(server: Server) -> Iterator[None]:
    command = [sys.executable, "-m", "argosy.testing.simulate", "--kubeconfig", str(server.kubeconfig)]
    with _running(
        [*command, "--nodes", "100", "--schedule"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield


@contextlib.contextmanager
def _running(command: list[str], **pipes: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        command,
        stdin=pipes.get("stdin"),
        stdout=pipes.get("stdout", subprocess.DEVNULL),
        stderr=pipes.get("stderr"),
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _cpu(pid: int) -> float:
    """Seconds of CPU that a process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS
