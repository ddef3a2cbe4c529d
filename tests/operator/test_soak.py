"""Tests that memory and open files of the operator do not grow with thousands of finished jobs."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, Pod, ServiceAccount
from argosy.kinds.labels import MANAGED_BY, MANAGER, OPERATOR_NAMESPACE
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.registry import CUSTOM_RESOURCES
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from tests.support.builders import pod_template, run
from tests.support.servers import Server, free_port
from tests.support.simulator import EXIT_CODE, RUN_SECONDS

ROUND, ROUNDS = 500, 10
AT_ONCE = 200
"""Jobs that are there at a time: the operator's size is that of its work, not of its past."""


def body(number: int) -> dict[str, object]:
    """Return a short job that is removed when it finishes; one in ten fails."""
    notes = {RUN_SECONDS: "0.2", EXIT_CODE: "1" if number % 10 == 0 else "0"}
    template = {"metadata": {"annotations": notes}, **pod_template()}
    times = {"ttlAfterSucceeded": "1s", "ttlAfterFailed": "1s", "activeDeadline": "2h"}
    builder = run(f"job-{number}").role("worker", 1, template=template).limits(**times)
    return builder.having(cleanup="All").build()


@contextlib.asynccontextmanager
async def process(*command: str, until: str = "") -> AsyncIterator[None]:
    """Run a module of ours as a process, from its first output of a word until the end of the block."""
    started = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert started.stdout is not None
        if until:
            assert (await started.stdout.readline()).decode().strip() == until
        yield
    finally:
        started.terminate()
        async with asyncio.timeout(30):
            await started.wait()


async def prepare(client: Client) -> None:
    for kind in CUSTOM_RESOURCES:
        await client.apply(CustomResourceDefinition, crd_for(kind), force=True)
    await client.apply(Namespace, {"metadata": {"name": OPERATOR_NAMESPACE}}, force=True)
    await client.apply(ServiceAccount, {"metadata": {"name": "default"}}, "default", force=True)


class Jobs:
    """Creates jobs in the cluster and watches them until they are deleted."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._room = asyncio.Semaphore(AT_ONCE)
        self._going: dict[str, asyncio.Event] = {}
        self.cache = Cache(client, TrainingRun)
        self.cache.subscribe(self._changed)

    async def live_through(self, numbers: Sequence[int]) -> None:
        """Create the jobs of these numbers, a limited number at a time, and wait until all are deleted."""
        await asyncio.gather(*(self._one(number) for number in numbers))

    async def _one(self, number: int) -> None:
        async with self._room:
            gone = self._going[f"job-{number}"] = asyncio.Event()
            await self._client.create(TrainingRun, body(number), "default")
            await gone.wait()

    def _changed(self, change: Change[TrainingRun]) -> None:
        if change.old is not None and change.new is None:
            self._going.pop(change.old.metadata.name).set()


class Size(dict[str, float]):
    """The resources that an operator uses."""

    NAMES = (
        "process_resident_memory_bytes",
        "process_open_fds",
        "argosy_event_loop_tasks",
        "argosy_cache_objects",
    )

    @classmethod
    async def of(cls, port: int) -> "Size":
        client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))
        try:
            answer = await client.send("GET", "/metrics", {})
        finally:
            await client.close()
        size = cls(dict.fromkeys(cls.NAMES, 0.0))
        for metric in parse(answer.body.decode()):
            for sample in metric.samples:
                if sample.name in size:
                    size[sample.name] += sample.value
        return size


async def ready(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))
            with contextlib.suppress(ConnectionError):
                if (await client.send("GET", "/readyz", {})).status == 200:
                    return
            await client.close()
            await asyncio.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_five_thousand_jobs_leave_nothing_in_memory(real_apiserver: Server) -> None:
    server, port = real_apiserver, free_port()
    kubeconfig = ("--kubeconfig", str(server.kubeconfig))
    shown = (f"--metrics-bind-address=127.0.0.1:{port}", f"--health-probe-bind-address=127.0.0.1:{port}")
    operator = ("argosy", "operator", *kubeconfig, "--no-leader-elect", *shown)
    simulator = ("tests.support.simulate", *kubeconfig, "--nodes", "20", "--schedule", "--remove")
    sizes: list[Size] = []
    async with Client(Connection.from_kubeconfig(server.kubeconfig)) as client:
        await prepare(client)
        async with (
            process(*simulator, until="ready"),
            process(*operator, "--endpoint", f"127.0.0.1:{free_port()}"),
        ):
            await ready(port)
            jobs = Jobs(client)
            watching = asyncio.create_task(jobs.cache.run())
            for start in range(0, ROUND * ROUNDS, ROUND):
                await jobs.live_through(range(start, start + ROUND))
                sizes.append(await Size.of(port))
                sys.stdout.write(f"after {start + ROUND} jobs: {sizes[-1]}\n")
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        assert not (await client.list(Pod, "default", labels=f"{MANAGED_BY}={MANAGER}")).items
    first, last = sizes[0], sizes[-1]
    assert last["process_resident_memory_bytes"] <= 1.1 * first["process_resident_memory_bytes"]
    assert last["process_open_fds"] <= first["process_open_fds"] + 8
    assert last["argosy_event_loop_tasks"] <= first["argosy_event_loop_tasks"] + 2
    assert last["argosy_cache_objects"] <= first["argosy_cache_objects"]
