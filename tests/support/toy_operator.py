"""An operator for the Toy kind in this process, and a user's view of one namespace.

`KillingTransport` kills an operator at one of its requests, before the request is sent or before the response
arrives. As with a killed process, nothing is sent after that.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.controller import Controller
from argosy.engine.errors import NotFound
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.engine.metrics import Metrics
from argosy.engine.transport import HttpTransport, Request, Response, Socket, Stream, Transport
from argosy.kinds.kubernetes import ConfigMap, Event, Secret
from argosy.reconcile.runner import Runner
from argosy.reconcile.sources import Sources
from tests.support.servers import Server
from tests.support.toy_kind import Toy, ToyStatus, reconciled_toy
from tests.support.waiting import until


class KillingTransport:
    """Forwards requests until the one with this number, at which the operator is killed."""

    def __init__(self, inner: Transport, at: int, *, answered: bool) -> None:
        self._inner = inner
        self._at = at
        self._answered = answered
        self.sent = 0
        self.killed = asyncio.Event()

    async def send(self, request: Request) -> Response:
        self.sent += 1
        if self.sent == self._at and self._answered:
            await self._inner.send(request)
        if self.sent >= self._at:
            self.killed.set()
            raise asyncio.CancelledError
        return await self._inner.send(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    def websocket(self, request: Request, protocols: Sequence[str]) -> AbstractAsyncContextManager[Socket]:
        return self._inner.websocket(request, protocols)

    async def close(self) -> None:
        await self._inner.close()


class ToyOperator:
    """One replica."""

    def __init__(self, client: Client, namespace: str, kind: type[Toy] = Toy) -> None:
        self.toys = Cache(client, kind, namespace=namespace)
        self.sources = Sources(client, namespace)
        self.recorder = Recorder(client, "toy-operator")
        self.runner = Runner(
            reconciled_toy(kind), self.toys, self.sources, client, SystemClock(), self.recorder
        )
        self.controller = Controller("Toy", self.runner.reconcile, concurrency=4, metrics=client.metrics)
        self.runner.subscribe(self.controller)

    async def watch(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.toys.run())
            for cache in self.sources.caches:
                tasks.create_task(cache.run())

    async def lead(self) -> None:
        await self.toys.wait_synced()
        await asyncio.gather(*(cache.wait_synced() for cache in self.sources.caches))
        await self.runner.begin_term()
        try:
            await self.controller.run()
        finally:
            self.runner.end_term()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch())
            tasks.create_task(self.lead())


@dataclass
class ToyScene:
    """One namespace, as a user sees it."""

    client: Client
    server: Server
    namespace: str
    kind: type[Toy] = Toy

    @asynccontextmanager
    async def operator(
        self,
        wrap: Callable[[Transport], Transport] = lambda transport: transport,
        deadline: Callable[[], float] | None = None,
    ) -> AsyncIterator[ToyOperator]:
        """An operator that runs until the block ends, then ends as if killed.

        Without a deadline it is the leader all the time; with one it only watches, and may write until then.
        """
        connection = Connection.from_kubeconfig(self.server.kubeconfig)
        transport = wrap(HttpTransport(connection))
        metrics = Metrics(CollectorRegistry())
        async with Client(connection, transport=transport, metrics=metrics, deadline=deadline) as client:
            operator = ToyOperator(client, self.namespace, self.kind)
            task = asyncio.create_task(operator.watch() if deadline else operator.run())
            try:
                yield operator
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await operator.recorder.close()

    async def create(self, name: str = "toy", **spec: str) -> Toy:
        return await self.client.create(self.kind, {"metadata": {"name": name}, "spec": spec}, self.namespace)

    async def edit(self, name: str = "toy", **spec: str) -> None:
        await self.client.patch(self.kind, name, {"spec": spec}, self.namespace)

    async def create_config_map(self, name: str, **metadata: object) -> ConfigMap:
        body = {"metadata": {"name": name, **metadata}}
        return await self.client.create(ConfigMap, body, self.namespace)

    async def toy(self, name: str = "toy") -> Toy | None:
        with suppress(NotFound):
            return await self.client.get(self.kind, name, self.namespace)
        return None

    async def config_map(self, name: str) -> ConfigMap | None:
        with suppress(NotFound):
            return await self.client.get(ConfigMap, name, self.namespace)
        return None

    async def secret(self, name: str = "toy-key") -> Secret | None:
        with suppress(NotFound):
            return await self.client.get(Secret, name, self.namespace)
        return None

    async def event_reasons(self) -> set[str]:
        return {event.reason for event in (await self.client.list(Event, self.namespace)).items}

    async def until_status(self, condition: Callable[[ToyStatus], bool], name: str = "toy") -> Toy:
        """Wait until the status of the newest generation fulfils the condition."""

        async def reached() -> Toy | None:
            toy = await self.toy(name)
            if toy is None or toy.status.observed_generation != toy.metadata.generation:
                return None
            return toy if condition(toy.status) else None

        return await until(reached, f"the status of {name}")

    async def until_ready(self, name: str = "toy") -> Toy:
        return await self.until_status(lambda status: status.phase == "Ready", name)

    async def until_data(self, name: str, data: dict[str, str]) -> ConfigMap:
        async def reached() -> ConfigMap | None:
            existing = await self.config_map(name)
            return existing if existing is not None and existing.data == data else None

        return await until(reached, f"{name} holds {data}")

    async def until_deleted(self, name: str = "toy") -> None:
        async def reached() -> bool:
            return await self.toy(name) is None

        await until(reached, f"{name} is deleted")
