"""Runs an operator in the test process against an API server, where the test acts as user and kubelet."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Event, Node, Pod
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.main import run_operator
from argosy.operator.settings import Settings
from tests.support.builders import RunBuilder
from tests.support.servers import Server

DEADLINE = 60.0


def shown_at(port: int) -> dict[str, str]:
    """Settings of an operator that serves metrics and probes at this port."""
    return dict.fromkeys(("metrics_address", "probe_address"), f"127.0.0.1:{port}")


async def until_served(client: Client, kind: type[ApiObject], namespace: str) -> None:
    """Wait until the kind is served: a new CRD is not served at once."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await client.list(kind, namespace)
                return
            except NotFound:
                await asyncio.sleep(0.05)


@dataclass
class Scene:
    """One namespace, with the actions of its user and of a kubelet."""

    client: Client
    server: Server
    namespace: str
    operators: list[asyncio.Task[None]] = field(default_factory=list)

    async def apply(self, run: RunBuilder) -> TrainingRun:
        built = replace(run, namespace=self.namespace).build()
        return await self.client.apply(TrainingRun, built, self.namespace, force=True)

    async def run(self, name: str = "mnist") -> TrainingRun:
        return await self.client.get(TrainingRun, name, self.namespace)

    async def pods(self) -> dict[str, Pod]:
        listed = await self.client.list(Pod, self.namespace)
        return {pod.metadata.name: pod for pod in listed.items}

    async def until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        try:
            async with asyncio.timeout(DEADLINE):
                while not await condition():
                    for operator in self.operators:
                        if operator.done():
                            operator.result()
                    await asyncio.sleep(0.03)
        except TimeoutError:
            runs = (await self.client.list(TrainingRun, self.namespace)).items
            phases = {name: pod.status.phase for name, pod in (await self.pods()).items()}
            statuses = [run.status for run in runs]
            raise AssertionError(f"timed out: {what}\n{statuses}\n{phases}") from None

    async def until_phase(self, phase: str, name: str = "mnist") -> TrainingRun:
        seen: list[TrainingRun] = []

        async def reached() -> bool:
            seen.append(await self.run(name))
            return seen[-1].status.phase == phase

        await self.until(f"{name} is {phase}", reached)
        return seen[-1]

    async def run_on(self, pod: str, node: str) -> None:
        """Bind a pod to a node, and report that it runs."""
        path = f"{Pod.resource.path(pod, self.namespace)}/binding"
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": node}}
        await self.client.request("POST", path, body={**body, "metadata": {"name": pod}})
        await self.report(pod, "Running")

    @asynccontextmanager
    async def nodes(self, count: int) -> AsyncIterator[tuple[str, ...]]:
        """Nodes without a kubelet, which are deleted at the end."""
        names = tuple(f"node-{number}-{self.namespace}" for number in range(count))
        for name in names:
            await self.client.create(Node, {"metadata": {"name": name}})
        yield names
        for name in names:
            with suppress(NotFound):
                await self.client.delete(Node, name)

    async def until_pods(self, *names: str) -> dict[str, Pod]:
        """Wait until exactly these pods exist and are not terminating."""

        async def is_served() -> bool:
            pods = await self.pods()
            return {name for name, pod in pods.items() if not pod.metadata.deletion_timestamp} == set(names)

        await self.until(f"pods are {names}", is_served)
        return await self.pods()

    async def report(self, pod: str, phase: str, code: int = 0) -> None:
        """Set the status of a pod, as a kubelet does."""
        state: dict[str, object] = {"running": {}}
        if phase in ("Succeeded", "Failed"):
            state = {"terminated": {"exitCode": code}}
        container = {
            "name": "main",
            "state": state,
            "image": "x",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
        }
        status = {"phase": phase, "containerStatuses": [container]}
        await self.client.patch(Pod, pod, {"status": status}, self.namespace, subresource="status")

    async def report_all(self, phase: str) -> None:
        for name in await self.pods():
            await self.report(name, phase)

    async def events(self) -> list[Event]:
        return list((await self.client.list(Event, self.namespace)).items)

    @asynccontextmanager
    async def operator(self, **settings: object) -> AsyncIterator[asyncio.Task[None]]:
        async with self.run_operator(self.settings(**settings)) as task:
            yield task

    @asynccontextmanager
    async def run_operator(self, settings: Settings) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(run_operator(settings))
        self.operators.append(task)
        try:
            yield task
        finally:
            if task in self.operators:
                self.operators.remove(task)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def settings(self, **settings: object) -> Settings:
        values: dict[str, object] = {
            "kubeconfig": self.server.kubeconfig,
            "namespace": self.namespace,
            "operator_namespace": self.namespace,
            "leader_elect": False,
            "endpoint": "",
            "metrics_address": "",
            "probe_address": "",
            **settings,
        }
        return Settings(**values)  # type: ignore[arg-type]  # tests name fields freely
