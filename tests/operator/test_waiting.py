"""A hundred pods wait while what they ask is killed: all are released as soon as what they wait for is there.

The initializers are real, with the arguments, token and CA of their pods; only their pods are played.
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

CROWD = 100
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
        """How each of them ends."""
        loop = asyncio.get_running_loop()
        ends = [loop.run_in_executor(self._threads, one.run) for one in self.all]
        return asyncio.gather(*ends, return_exceptions=True)

    async def are_told(self) -> bool:
        """Whether each knows for what it waits, and has asked to be told of news."""
        return all(
            one.last_message.startswith("waits for first") and one.long_poll_seconds for one in self.all
        )

    async def are_alone(self) -> bool:
        return all(one.last_message.startswith("the observer does not answer") for one in self.all)


def _waiter(container: Json, port: int) -> initializer._Waiter:
    command = cast("list[str]", container["command"])
    words = [f"https://localhost:{port}" if word == "$(ARGOSY_URL)" else word for word in command]
    flags = initializer._parser().parse_args(words[words.index("cache") :])
    flags.interval, flags.timeout = 0.2, 60.0  # no thread outlives a test that fails
    given = {str(one["name"]): str(one.get("value", "")) for one in cast("list[Json]", container["env"])}
    return initializer._Waiter(flags, {**given, "ARES_TOKEN": given["ARGOSY_TOKEN"]})


class Answerer:
    """The process that those who wait ask, from its start until it is killed."""

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
async def crowd(scene: Scene, who: str) -> AsyncIterator[tuple[Answerer, Waiting]]:
    """A job whose role `late` waits for its role `first`, and all of those that wait."""
    late = {"template": template(), "replicas": CROWD, "dependence": {"roleNames": ["first"]}}
    roles = {"first": {"template": template()}, "late": late}
    body = {"metadata": {"name": "job"}, "spec": {"frameworkType": "custom", "roleSpecs": roles}}
    await scene.client.create(dynamic_kind(AresJob.resource), body, scene.namespace)
    async with AsyncExitStack() as stack:
        if who == "observer":
            await stack.enter_async_context(
                scene.operator(remote_exec=False, apis=(ares_api(AresSettings(observers=ObserverService())),))
            )
        asked = Answerer(scene, who)
        stack.callback(asked.kill)

        async def made() -> bool:
            return len(await scene.pods()) == CROWD + 1

        await scene.until("all pods are made", made)
        pods = (await scene.client.list(dynamic_kind(Pod.resource), scene.namespace)).items
        yield asked, Waiting([pod.raw for pod in pods if "-late-" in pod.metadata.name], asked.port)


async def role_phase(scene: Scene) -> str:
    job = await scene.client.get(AresJob, "job", scene.namespace)
    return job.status.role_statuses["first"].phase


@pytest.mark.parametrize("who", ["operator", "observer"])
async def test_all_are_released_though_what_they_ask_was_killed(
    scene: Scene, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(initializer, "MAX_PAUSE_SECONDS", 1.0)
    async with crowd(scene, who) as (asked, waiting):
        ends = waiting.begin()
        await scene.until("all know for what they wait", waiting.are_told)
        asked.kill()
        await scene.until("all have noticed", waiting.are_alone)
        assert not ends.done()
        asked.start()
        await scene.report("job-first-0", "Running")

        async def running() -> bool:
            return await role_phase(scene) == "Running"

        await scene.until("what they wait for is there", running)
        async with asyncio.timeout(IN_TIME):
            assert set(await ends) == {0}


async def test_all_end_with_a_reason_when_what_they_wait_for_fails(scene: Scene) -> None:
    async with crowd(scene, "operator") as (_, waiting):
        ends = waiting.begin()
        await scene.until("all know for what they wait", waiting.are_told)
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

        async def made() -> bool:
            return len(await scene.pods()) == 2 * BURST

        await scene.until("all pods are made", made)
        pods = (await scene.client.list(dynamic_kind(Pod.resource), scene.namespace)).items
        waiting = Waiting([pod.raw for pod in pods if "-late-" in pod.metadata.name], port)
        ends = waiting.begin()
        names = [pod.metadata.name for pod in pods if "-first-" in pod.metadata.name]
        await asyncio.gather(*(scene.report(name, "Running") for name in names))
        async with asyncio.timeout(IN_TIME):
            assert await ends == [0] * BURST
