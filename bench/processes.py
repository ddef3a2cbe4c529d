"""Starts operator and node simulator as processes, and reads what they use: CPU, memory, requests."""

import contextlib
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.resource import Resource
from argosy.operator.apis.registry import CUSTOM_RESOURCES
from tests.support.servers import Server, free_port
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
TIMEOUT_SECONDS = 120.0
_REQUESTS = re.compile(r'argosy_api_requests_total\{code="(\w+)",method="(\w+)"\} (\S+)')


APIS = ("argosy", "ares", "et")
"""The APIs that are served: those whose jobs are measured. What others watch would be measured with them."""


class Operator(Struct, frozen=True):
    """A running operator process."""

    pid: int
    health: str

    def usage(self) -> "Usage":
        """Return what the operator has used since its start."""
        text = self.metrics()
        requests = {
            (verb, code): float(value) for code, verb, value in _REQUESTS.findall(text) if verb != "WATCH"
        }
        failed_reconciles = sum_metrics(text, r'argosy_reconcile_total{.*result="error"')
        return Usage(cpu_seconds(self.pid), requests, failed_reconciles)

    def wait_until_ready(self) -> None:
        _wait_until(self._is_ready, "the operator is ready")

    def wait_until_leader(self) -> None:
        _wait_until(lambda: sum_metrics(self.metrics(), "argosy_is_leader ") == 1.0, "the operator is leader")

    def wait_until_reconciled(self, jobs: int) -> None:
        """Wait until as many reconciles succeeded as there were jobs when the operator started."""
        succeeded = r'argosy_reconcile_total{.*result="success"'
        description = f"the operator has reconciled {jobs} jobs"
        _wait_until(lambda: sum_metrics(self.metrics(), succeeded) >= jobs, description, poll_seconds=0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.health}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.health}/metrics", timeout=10) as response:
            text: str = response.read().decode()
        return text


class Usage(Struct, frozen=True):
    """CPU time and requests of an operator, since its start or between two readings."""

    cpu: float = 0.0
    requests: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Number of requests by verb and status code, without watches."""
    failed_reconciles: float = 0.0

    def since(self, before: "Usage") -> "Usage":
        requests = {key: count - before.requests.get(key, 0.0) for key, count in self.requests.items()}
        return Usage(self.cpu - before.cpu, requests, self.failed_reconciles - before.failed_reconciles)

    @property
    def request_count(self) -> float:
        return sum(self.requests.values())

    @property
    def by_verb(self) -> Mapping[str, float]:
        verbs: dict[str, float] = {}
        for (verb, _), count in self.requests.items():
            verbs[verb] = verbs.get(verb, 0.0) + count
        return verbs

    @property
    def errors(self) -> float:
        """Requests without a 2xx response, and reconciles that failed."""
        failed = sum(count for (_, code), count in self.requests.items() if not code.startswith("2"))
        return failed + self.failed_reconciles


@contextlib.contextmanager
def operator(server: Server, *options: str, core: int | None = None) -> Iterator[Operator]:
    """Run an operator, pinned to a core if one is given; yield it when its caches are synced and it leads."""
    with starting_operator(server, *options, core=core) as process:
        process.wait_until_ready()
        if "--no-leader-elect" not in options:
            process.wait_until_leader()
        yield process


@contextlib.contextmanager
def starting_operator(server: Server, *options: str, core: int | None = None) -> Iterator[Operator]:
    """Run an operator; yield it as soon as its process has started."""
    health = f"127.0.0.1:{free_port()}"
    apis = [f"--api={name}" for name in APIS]
    kubeconfig = ("--kubeconfig", str(server.kubeconfig))
    command = [sys.executable, "-m", "argosy", "operator", *kubeconfig, *apis, *options]
    endpoint = _endpoint_port(server)
    command += ["--endpoint", f"127.0.0.1:{endpoint}", "--advertise-url", f"https://localhost:{endpoint}"]
    command += ["--metrics-bind-address", health, "--health-probe-bind-address", health]
    log = server.folder / "logs" / "operator.log"
    with log.open("ab") as output, running(command, stderr=output.fileno(), core=core) as process:
        yield Operator(process.pid, health)


def _endpoint_port(server: Server) -> int:
    """Return the port of the endpoint: always the same, because pods that run have its address."""
    file = server.folder / "operator-endpoint"
    if not file.exists():
        file.write_text(str(free_port()))
    return int(file.read_text())


def _wait_until(condition: Callable[[], bool], description: str, poll_seconds: float = 0.02) -> None:
    """Poll a condition. Conditions that read metrics poll less often, because they cost the operator CPU."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timeout: {description}")
        time.sleep(poll_seconds)


async def install(client: Client) -> None:
    """Create the CRDs and the namespace of the operator, and wait until the CRDs are served."""
    for kind in CUSTOM_RESOURCES:
        await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
    await client.apply(Namespace, {"metadata": {"name": OPERATOR_NAMESPACE}}, force=True)
    for kind in CUSTOM_RESOURCES:
        await until(lambda kind=kind: _is_served(client, kind.resource), "the CRDs are served")  # type: ignore[misc]


async def _is_served(client: Client, resource: Resource) -> bool:
    try:
        await client.request("GET", f"{resource.path(None, None)}?limit=1")
    except NotFound:
        return False
    return True


@contextlib.contextmanager
def simulator(server: Server, nodes: int = 100) -> Iterator[None]:
    """Run the node simulator as two processes: one binds pods and sets their statuses, the other answers
    commands in containers and runs the sidecars of launchers."""
    connection = ("--kubeconfig", str(server.kubeconfig))
    containers = [sys.executable, "-m", "tests.support.simulate_containers", *connection]
    kubelets = [sys.executable, "-m", "tests.support.simulate", *connection, "--nodes", str(nodes)]
    with running(containers, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        port = process.stdout.readline().decode().strip()
        kubelets += ["--schedule", "--exec-port", port]
        with running(kubelets, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            yield


@contextlib.contextmanager
def running(
    command: list[str],
    core: int | None = None,
    environment: Mapping[str, str] | None = None,
    **pipes: int,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process during a with block, pinned to a core if one is given."""
    with subprocess.Popen(
        command,
        stdin=pipes.get("stdin"),
        stdout=pipes.get("stdout", subprocess.DEVNULL),
        stderr=pipes.get("stderr"),
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
    ) as process:
        try:
            if core is not None:
                os.sched_setaffinity(process.pid, {core})
            yield process
        finally:
            process.terminate()
            process.wait(30)


def sum_metrics(text: str, pattern: str) -> float:
    """Return the sum of the metrics whose lines match a pattern from their start."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_rss_mb(pid: int) -> float:
    """Return the peak resident memory of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
