"""What measurements of the operator share: the processes, and what can be read of them from outside."""

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
from argosy.kinds.crd import CUSTOM_RESOURCES, crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.trainingrun import TrainingRun
from tests.support.servers import Server, free_port
from tests.support.waiting import until

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
PATIENCE = 120.0
_REQUESTS = re.compile(r'argosy_api_requests_total\{code="(\w+)",method="(\w+)"\} (\S+)')


class Operator(Struct, frozen=True):
    """An operator that runs as a process of its own."""

    pid: int
    health: str

    def reading(self) -> "Reading":
        text = self.metrics()
        requests = {
            (verb, code): float(value) for code, verb, value in _REQUESTS.findall(text) if verb != "WATCH"
        }
        failed = summed(text, r'argosy_reconcile_total{.*result="error"')
        return Reading(cpu_seconds(self.pid), requests, failed)

    def until_ready(self) -> None:
        _until(self._is_ready, "the operator is ready")

    def until_leading(self) -> None:
        _until(lambda: summed(self.metrics(), "argosy_is_leader ") == 1.0, "the operator leads")

    def until_passed(self, jobs: int) -> None:
        """Until it has had a pass over every job that was there when it started."""
        passes = r'argosy_reconcile_total{.*result="success"'
        what = f"the operator has looked at {jobs} jobs"
        _until(lambda: summed(self.metrics(), passes) >= jobs, what, pause=0.2)

    def _is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.health}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def metrics(self) -> str:
        with urllib.request.urlopen(f"http://{self.health}/metrics", timeout=10) as answer:
            text: str = answer.read().decode()
        return text


class Reading(Struct, frozen=True):
    """What an operator has spent since its start."""

    cpu: float = 0.0
    requests: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By verb and status of the answer; watches, which stay open, are not among them."""
    failed_passes: float = 0.0

    def since(self, before: "Reading") -> "Reading":
        spent = {key: count - before.requests.get(key, 0.0) for key, count in self.requests.items()}
        return Reading(self.cpu - before.cpu, spent, self.failed_passes - before.failed_passes)

    @property
    def by_verb(self) -> Mapping[str, float]:
        verbs: dict[str, float] = {}
        for (verb, _), count in self.requests.items():
            verbs[verb] = verbs.get(verb, 0.0) + count
        return verbs

    @property
    def refused(self) -> float:
        """Requests that were answered with anything but success, and passes that failed."""
        bad = sum(count for (_, code), count in self.requests.items() if not code.startswith("2"))
        return bad + self.failed_passes


@contextlib.contextmanager
def operator(server: Server, *options: str, core: int | None = None) -> Iterator[Operator]:
    """An operator that has filled its caches and leads, pinned to a core if one is named."""
    with starting_operator(server, *options, core=core) as started:
        started.until_ready()
        if "--no-leader-elect" not in options:
            started.until_leading()
        yield started


@contextlib.contextmanager
def starting_operator(server: Server, *options: str, core: int | None = None) -> Iterator[Operator]:
    """An operator whose process has just been started."""
    health = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "argosy", "operator", "--kubeconfig", str(server.kubeconfig), *options]
    endpoint = free_port()
    command += ["--endpoint", f"127.0.0.1:{endpoint}", "--advertise-url", f"https://localhost:{endpoint}"]
    command += ["--metrics-bind-address", health, "--health-probe-bind-address", health]
    log = server.folder / "logs" / "operator.log"
    with log.open("ab") as output, running(command, stderr=output.fileno(), core=core) as process:
        yield Operator(process.pid, health)


def _until(condition: Callable[[], bool], what: str, pause: float = 0.02) -> None:
    """Telling its metrics is work for the operator: who asks for them asks less often."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain until {what}")
        time.sleep(pause)


async def install(client: Client) -> None:
    """What the operator finds in a cluster: its kinds, served, and its namespace."""
    for kind in CUSTOM_RESOURCES:
        await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
    await client.apply(Namespace, {"metadata": {"name": OPERATOR_NAMESPACE}}, force=True)
    await until(lambda: _served(client), "the server serves our kinds")


async def _served(client: Client) -> bool:
    try:
        await client.list(TrainingRun, "default")
    except NotFound:
        return False
    return True


@contextlib.contextmanager
def simulator(server: Server, nodes: int = 100) -> Iterator[None]:
    """Simulated nodes, by a process of their own that binds pods too."""
    command = [sys.executable, "-m", "tests.support.simulate", "--kubeconfig", str(server.kubeconfig)]
    with running(
        [*command, "--nodes", str(nodes), "--schedule"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
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
    """A process for the duration of a with block, pinned to a core if one is named."""
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


def summed(text: str, pattern: str) -> float:
    """The sum of the metrics whose line begins with a pattern."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_rss_mb(pid: int) -> float:
    """The most memory that a process ever held."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
