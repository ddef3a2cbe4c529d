"""Tests that a hundred waiting pods are released although the server that they ask was killed.

The initializers are real, with the arguments, token and CA of their pods; the pods are simulated.
"""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import cast

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.helper import initializer
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Pod
from argosy.operator.apis.ares.api import ares_api
from argosy.operator.apis.ares.settings import AresSettings, ObserverService
from argosy.reconcile import status_writer
from tests.support.aresjobs import template
from tests.support.operator_harness import Scene
from tests.support.servers import free_port

Json = dict[str, object]
pytestmark = pytest.mark.parametrize("api", ["local"], indirect=True)

WAITING_PODS = 100
BURST = 12
"""New jobs at once, of which most have their first status deferred."""
IN_TIME = 15.0
"""Seconds from the phase that is waited for to the release of all; the benchmark holds how soon it is."""


class Waiting:
    """The init containers of a job's pods, each in a thread."""

    def __init__(self, pods: Sequence[Json], port: int) -> None:
        containers = [cast("list[Json]", cast("Json", pod["spec"])["initContainers"])[0] for pod in pods]
        self.all = [_waiter(container, port) for container in containers]
        self._threads = ThreadPoolExecutor(len(pods))

    def begin(self) -> "asyncio.Future[list[int | BaseException]]":
        """Start to wait; return the exit code or the error of each."""
        loop = asyncio.get_running_loop()
        ends = [loop.run_in_executor(self._threads, waiter.run) for waiter in self.all]
        return asyncio.gather(*ends, return_exceptions=True)

    async def all_wait(self) -> bool:
        """Return True if each has a response and has sent a long poll."""
        return all(
            waiter.last_message.startswith("waiting for role first") and waiter.long_poll_seconds
            for waiter in self.all
        )

    async def all_failed(self) -> bool:
        """Return True if the last request of each has failed."""
        return all(waiter.last_message.startswith("request to the observer failed") for waiter in self.all)


def _waiter(container: Json, port: int) -> initializer._Waiter:
    command = cast("list[str]", container["command"])
    words = [f"https://localhost:{port}" if word == "$(ARGOSY_URL)" else word for word in command]
    flags = initializer._parser().parse_args(words[words.index("cache") :])
    flags.interval, flags.timeout = 0.2, 60.0  # no thread outlives a test that fails
    variables = {
        str(variable["name"]): str(variable.get("value", ""))
        for variable in cast("list[Json]", container["env"])
    }
    return initializer._Waiter(flags, {**variables, "ARES_TOKEN": variables["ARGOSY_TOKEN"]})


class Answerer:
    """The process that waiting pods send requests to, from its start until it is killed."""

    def __init__(self, scene: Scene, who: str) -> None:
        self.port = free_port()
        self._command = (
            *(sys.executable, "-m", "argosy", who, "--kubeconfig", str(scene.server.kubeconfig)),
            *("--namespace", scene.namespace, "--operator-namespace", scene.namespace),
            *("--endpoint", f"127.0.0.1:{self.port}"),
            *("--metrics-bind-address", "", "--health-probe-bind-address", ""),
            *(("--no-leader-elect",) if who == "operator" else ()),
        )
        self.start()

    def start(self) -> None:
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(self._command, stdout=quiet, stderr=quiet)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)


@asynccontextmanager
async def waiting_job(scene: Scene, who: str) -> AsyncIterator[tuple[Answerer, Waiting]]:
    """Create a job whose role `late` waits for its role `first`; yield the server and the waiting pods."""
    late = {"template": template(), "replicas": WAITING_PODS, "dependence": {"roleNames": ["first"]}}
    roles = {"first": {"template": template()}, "late": late}
    body = {"metadata": {"name": "job"}, "spec": {"frameworkType": "custom", "roleSpecs": roles}}
    await scene.client.create(dynamic_kind(AresJob.resource), body, scene.namespace)
    async with AsyncExitStack() as stack:
        if who == "observer":
            await stack.enter_async_context(
                scene.operator(remote_exec=False, apis=(ares_api(AresSettings(observers=ObserverService())),))
            )
        server = Answerer(scene, who)
        stack.callback(server.kill)

        async def all_created() -> bool:
            return len(await scene.pods()) == WAITING_PODS + 1

        await scene.until("all pods are created", all_created)
        pods = (await scene.client.list(dynamic_kind(Pod.resource), scene.namespace)).items
        yield server, Waiting([pod.raw for pod in pods if "-late-" in pod.metadata.name], server.port)


async def role_phase(scene: Scene) -> str:
    job = await scene.client.get(AresJob, "job", scene.namespace)
    return job.status.role_statuses["first"].phase


@pytest.mark.parametrize("who", ["operator", "observer"])
async def test_waiting_pods_are_released_although_the_process_they_ask_was_killed(
    scene: Scene, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializer, "MAX_PAUSE_SECONDS", 1.0)
    async with waiting_job(scene, who) as (server, waiting):
        ends = waiting.begin()
        await scene.until("all pods wait", waiting.all_wait)
        server.kill()
        await scene.until("requests of all pods have failed", waiting.all_failed)
        assert not ends.done()
        server.start()
        await scene.report("job-first-0", "Running")

        async def running() -> bool:
            return await role_phase(scene) == "Running"

        await scene.until("what they wait for is there", running)
        async with asyncio.timeout(IN_TIME):
            assert set(await ends) == {0}


async def test_waiting_pods_fail_with_a_reason_when_the_role_fails(scene: Scene) -> None:
    async with waiting_job(scene, "operator") as (_, waiting):
        ends = waiting.begin()
        await scene.until("all pods wait", waiting.all_wait)
        await scene.report("job-first-0", "Failed", 1)
        async with asyncio.timeout(IN_TIME):
            assert {str(end) for end in await ends} == {"the job is Failed"}


async def test_in_a_burst_pods_are_released_without_waiting_for_a_deferred_status(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writer, "DEFER_SECONDS", 3600.0)
    monkeypatch.setattr(status_writer, "MAX_DEFER_SECONDS", 3600.0)
    late = {"template": template(), "dependence": {"roleNames": ["first"]}}
    first = {"template": template(), "restartPolicy": "OnFailure"}  # with Never, nothing of it is deferred
    roles = {"first": first, "late": late}
    bodies = [
        {"metadata": {"name": f"job-{i}"}, "spec": {"frameworkType": "custom", "roleSpecs": roles}}
        for i in range(BURST)
    ]
    port = free_port()
    for body in bodies:
        await scene.client.create(dynamic_kind(AresJob.resource), body, scene.namespace)
    async with scene.operator(endpoint=f"127.0.0.1:{port}"):

        async def all_created() -> bool:
            return len(await scene.pods()) == 2 * BURST

        await scene.until("all pods are created", all_created)
        pods = (await scene.client.list(dynamic_kind(Pod.resource), scene.namespace)).items
        waiting = Waiting([pod.raw for pod in pods if "-late-" in pod.metadata.name], port)
        ends = waiting.begin()
        names = [pod.metadata.name for pod in pods if "-first-" in pod.metadata.name]
        await asyncio.gather(*(scene.report(name, "Running") for name in names))
        async with asyncio.timeout(IN_TIME):
            assert await ends == [0] * BURST
