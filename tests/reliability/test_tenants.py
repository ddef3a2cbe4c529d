"""Tests that a hostile tenant does not slow down another one, with one operator and a real API server.

The hostile tenant has a job with pods too large to store, jobs of thousands of pods over an exhausted quota,
malformed requests to the endpoint and idle connections.
"""

import asyncio
import contextlib
import secrets
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.aresjob import AresJob
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, Pod, ServiceAccount
from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.registry import CUSTOM_RESOURCES
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from tests.support.builders import pod_template, run
from tests.support.servers import Server, free_port, start_tethered, stop_process
from tests.support.waiting import until

pytestmark = pytest.mark.cluster

HONEST, HOSTILE = "honest", "hostile"
MAX_RESIDENT_BYTES = 300_000_000
MAX_DELAY_SECONDS = 3.0
"""Beyond what the honest job takes alone: a comparison within one run."""


class Attack(msgspec.Struct, frozen=True):
    """The load that the hostile tenant causes."""

    jobs: int
    pods: int
    """Of each of these jobs, none of which the quota allows."""
    questions: int
    connections: int
    honest_jobs: int = 5


ATTACKS = {
    "small attack": Attack(jobs=4, pods=1_000, questions=200, connections=100, honest_jobs=3),
    "large attack": Attack(jobs=32, pods=5_000, questions=20_000, connections=2_000, honest_jobs=20),
}


class Operator(msgspec.Struct, frozen=True):
    process: subprocess.Popen[bytes]
    shown: int
    """The port of its metrics and probes."""
    endpoint: int

    @property
    def highest_resident_bytes(self) -> int:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))

    async def get(self, path: str) -> tuple[int, str]:
        client = WireClient(Origin.from_url(f"http://127.0.0.1:{self.shown}"))
        try:
            answer = await client.send("GET", path, {})
        except OSError:
            return 0, ""
        finally:
            await client.close()
        return answer.status, answer.body.decode()

    async def refused_creations(self) -> float:
        """Return how many create requests the API server rejected."""
        _, text = await self.get("/metrics")
        return sum(
            sample.value
            for metric in parse(text)
            for sample in metric.samples
            if sample.name == "argosy_api_requests_total"
            and sample.labels == {"method": "POST", "code": "403"}
        )


@pytest.fixture
async def client(own_apiserver: Server) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(own_apiserver.kubeconfig)) as client:
        for kind in CUSTOM_RESOURCES:
            await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
        for namespace in (OPERATOR_NAMESPACE, HONEST, HOSTILE):
            await client.apply(Namespace, {"metadata": {"name": namespace}}, force=True)
            await client.apply(ServiceAccount, {"metadata": {"name": "default"}}, namespace, force=True)
        yield client


@pytest.fixture
async def operator(own_apiserver: Server, client: Client) -> AsyncIterator[Operator]:
    kubeconfig = ("--kubeconfig", str(own_apiserver.kubeconfig))
    simulator = ("tests.support.simulate", *kubeconfig, "--nodes", "20", "--schedule")
    shown, endpoint = free_port(), free_port()
    addresses = (
        f"--metrics-bind-address=127.0.0.1:{shown}",
        f"--health-probe-bind-address=127.0.0.1:{shown}",
        f"--endpoint=127.0.0.1:{endpoint}",
    )
    operator = ("argosy", "operator", *kubeconfig, *addresses)
    with module(own_apiserver, *simulator), module(own_apiserver, *operator) as process:
        running = Operator(process, shown, endpoint)
        await until(lambda: leads(running), "the operator leads", seconds=60)
        yield running


@contextlib.contextmanager
def module(server: Server, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a module of ours as a process, which ends with this one."""
    process = start_tethered(
        (sys.executable, "-m", *command), server.folder, command[0], stdin=subprocess.PIPE
    )
    try:
        yield process
    finally:
        stop_process(process)
        if process.stdin:
            process.stdin.close()


async def leads(operator: Operator) -> bool:
    return "argosy_is_leader 1.0" in (await operator.get("/metrics"))[1]


@pytest.mark.parametrize(
    "attack",
    [
        pytest.param(ATTACKS["small attack"], id="small attack", marks=pytest.mark.timeout(300)),
        pytest.param(
            ATTACKS["large attack"], id="large attack", marks=[pytest.mark.long, pytest.mark.timeout(1200)]
        ),
    ],
)
async def test_hostile_tenant_does_not_affect_others(
    client: Client, operator: Operator, attack: Attack
) -> None:
    alone = [await honest_job(client, f"alone-{number}") for number in range(3)]
    token = await hostile_token(client)
    await forbid_pods(client)
    await hostile_jobs(client, attack)
    connections = asyncio.create_task(hold_connections(operator, attack.connections))
    questions = asyncio.create_task(ask(operator, token, attack.questions))
    under_attack = [
        await honest_job(client, f"under-attack-{number}") for number in range(attack.honest_jobs)
    ]
    await asyncio.gather(connections, questions)
    sys.stdout.write(
        f"alone: {alone}\nunder attack: {under_attack}\n"
        f"at most {operator.highest_resident_bytes / 1e6:.0f} MB resident, "
        f"{await operator.refused_creations():.0f} creations refused\n"
    )
    assert max(under_attack) <= max(alone) + MAX_DELAY_SECONDS
    assert operator.highest_resident_bytes <= MAX_RESIDENT_BYTES
    assert operator.process.poll() is None
    assert await operator.get("/healthz") == (200, "ok")
    assert await leads(operator), "it never lost the lease"
    assert 0 < await operator.refused_creations() < 30 * attack.jobs, "a probe now and then, of each job"
    huge = await client.get(AresJob, "huge", HOSTILE)
    assert "spec.roleSpecs.role-0: a pod of this role would take " in str(huge.status)


async def honest_job(client: Client, name: str) -> float:
    """Return the seconds until a job of eight pods runs."""
    body = run(name, "pytorch", HONEST).role("worker", 8, template=pod_template()).build()
    began = time.monotonic()
    await client.create(TrainingRun, body, HONEST)

    async def running() -> bool:
        return (await client.get(TrainingRun, name, HONEST)).status.phase == "Running"

    await until(running, f"{name} runs", seconds=120)
    return time.monotonic() - began


async def hostile_token(client: Client) -> str:
    """Return the token of the pods of a job, which is part of their spec."""
    waits = [{"role": "first", "phase": "Succeeded"}]
    body = run("waiter", "custom", HOSTILE).role("first", 1).role("second", 1, dependsOn=waits).build()
    await client.create(TrainingRun, body, HOSTILE)
    pod: dict[str, object] = {}

    async def is_created() -> bool:
        with contextlib.suppress(Exception):
            raw = await client.request("GET", Pod.resource.path("waiter-second-0", HOSTILE, None))
            pod.update(msgspec.json.decode(raw))
        return bool(pod)

    await until(is_created, "a pod that waits is there", seconds=60)
    helper = pod["spec"]["initContainers"][0]  # type: ignore[index]  # it is one of ours
    return next(str(variable["value"]) for variable in helper["env"] if variable["name"] == "ARGOSY_TOKEN")


async def forbid_pods(client: Client) -> None:
    """Create an exhausted quota; its status is written here, as no controller runs."""
    path = f"/api/v1/namespaces/{HOSTILE}/resourcequotas"
    await client.request("POST", path, body={"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    status = {"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    await client.request("PATCH", f"{path}/none/status", body=status, headers=headers)


async def hostile_jobs(client: Client, attack: Attack) -> None:
    template = pod_template()
    roles = {f"role-{number}": {"replicas": 1_100, "template": template} for number in range(64)}
    huge = {"metadata": {"name": "huge"}, "spec": {"frameworkType": "custom", "roleSpecs": roles}}
    await client.create(AresJob, huge, HOSTILE)
    for number in range(attack.jobs):
        job = run(f"over-quota-{number}", "custom", HOSTILE).role("worker", attack.pods)
        await client.create(TrainingRun, job.build(), HOSTILE)


async def hold_connections(operator: Operator, count: int) -> None:
    """Open idle connections, and keep the accepted ones for a while."""
    held: list[asyncio.StreamWriter] = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", operator.endpoint, ssl=UNCHECKED)
            held.append(writer)
    await asyncio.sleep(5)
    for writer in held:
        writer.transport.abort()


async def ask(operator: Operator, token: str, count: int) -> None:
    """Send malformed requests, all different, as responses to them must not be cached."""
    numbers = iter(range(count))

    async def asker() -> None:
        for number in numbers:
            with contextlib.suppress(OSError, EOFError):
                path = UNKNOWN if number % 50 == 0 else ODD[number % len(ODD)]
                await one_question(operator, token, path)

    await asyncio.gather(*(asker() for _ in range(32)))


ODD = (
    "/v1/jobs/hostile/waiter/roles/first?phase={junk}",
    "/v1/jobs/hostile/waiter/roles/{name}",
    "/v1/jobs/hostile/waiter/hosts?role={name}&format={junk}",
    "/{junk}",
)
UNKNOWN = "/v1/jobs/hostile/{name}/roles/first"
"""Of a job that there is not, which is waited for, for some seconds."""


async def one_question(operator: Operator, token: str, path: str) -> None:
    target = path.format(junk=secrets.token_hex(2_000), name=secrets.token_hex(8))
    reader, writer = await asyncio.open_connection("127.0.0.1", operator.endpoint, ssl=UNCHECKED)
    try:
        head = f"GET {target} HTTP/1.1\r\nHost: operator\r\nAuthorization: Bearer {token}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode())
        async with asyncio.timeout(60):
            assert not (await reader.readline()).startswith(b"HTTP/1.1 200")
    finally:
        writer.transport.abort()


UNCHECKED = ssl.create_default_context()
UNCHECKED.check_hostname = False
UNCHECKED.verify_mode = ssl.CERT_NONE
