"""An operator for the Toy kind in this process, and a user's view of one namespace.

`KillingTransport` kills an operator at one of its requests, before the request is sent or before the response
arrives. As with a killed process, nothing is sent after that. The response to a command in a container is its
exit code.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from prometheus_client import CollectorRegistry

from argosy.engine import streams
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
from argosy.plan.drivers import Credentials, Driver
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.background_pool import BackgroundPool
from argosy.reconcile.drivers import Drivers
from argosy.reconcile.pod_exec import PodExec
from argosy.reconcile.runner import Runner
from argosy.reconcile.sources import Sources
from argosy.reconcile.views import Views
from tests.support.counter import PASSWORD, Counter
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
            raise self.kill()
        return await self._inner.send(request)

    def kill(self) -> asyncio.CancelledError:
        """Return what every request raises from now on."""
        self.killed.set()
        return asyncio.CancelledError()

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        return self._inner.stream(request)

    @asynccontextmanager
    async def websocket(self, request: Request, protocols: Sequence[str]) -> AsyncIterator[Socket]:
        self.sent += 1
        is_last = self.sent == self._at
        if self.sent > self._at or (is_last and not self._answered):
            raise self.kill()
        async with self._inner.websocket(request, protocols) as socket:
            yield _KillingSocket(socket, self) if is_last else socket

    async def close(self) -> None:
        await self._inner.close()

    async def call(self, driver: Driver, request: Struct, credentials: Credentials) -> Struct | None:
        """Pass on a call outside of Kubernetes, which counts as a request."""
        self.sent += 1
        if self.sent == self._at and self._answered:
            await driver.call(request, credentials)
        if self.sent >= self._at:
            raise self.kill()
        return await driver.call(request, credentials)


class _KillingDriver:
    """Kills the operator at one of its calls."""

    def __init__(self, inner: Driver, transport: KillingTransport) -> None:
        self._inner = inner
        self._transport = transport

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        return await self._transport.call(self._inner, request, credentials)

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        return await self._inner.fetch(scope, credentials)


class _KillingSocket:
    """Kills the operator when the command has ended, before its exit code is received."""

    def __init__(self, inner: Socket, transport: KillingTransport) -> None:
        self._inner = inner
        self._transport = transport
        self.protocol = inner.protocol

    async def send(self, message: bytes) -> None:
        await self._inner.send(message)

    async def receive(self) -> bytes | None:
        message = await self._inner.receive()
        if message is None or message[0] == streams.ERROR:
            raise self._transport.kill()
        return message


class Killing:
    """How an operator is killed, and whether it was; its successor is not killed."""

    def __init__(self, at: int, *, answered: bool) -> None:
        self._at = at
        self._answered = answered
        self.transport: KillingTransport | None = None

    def wrap(self, inner: Transport) -> Transport:
        self.transport = KillingTransport(inner, self._at, answered=self._answered)
        return self.transport

    @property
    def requests(self) -> int:
        assert self.transport
        return self.transport.sent

    @property
    def killed(self) -> asyncio.Event:
        assert self.transport
        return self.transport.killed

    async def run(
        self,
        scene: "ToyScene",
        live: "Callable[[ToyScene], Awaitable[None]]",
        check_what_was_left: "Callable[[ToyScene], Awaitable[None]]",
    ) -> None:
        """Live with an operator that is killed, and its successor; check in between what the first left."""

        async def operate() -> None:
            async with scene.operator(self.wrap):
                await self.killed.wait()
            await check_what_was_left(scene)
            async with scene.operator():
                await asyncio.Event().wait()

        operators, life = asyncio.create_task(operate()), asyncio.ensure_future(live(scene))
        try:
            await asyncio.wait((operators, life), return_when=asyncio.FIRST_COMPLETED)
            for task in (operators, life):
                if task.done():
                    task.result()
        finally:
            operators.cancel()
            life.cancel()
            await asyncio.gather(operators, life, return_exceptions=True)


NEVER = 1_000_000
"""The number of a request that is never sent."""


class ToyOperator:
    """One replica."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        kind: type[Toy] = Toy,
        drivers: Mapping[str, Driver] = {},
    ) -> None:
        self.toys = Cache(client, kind, namespace=namespace)
        self.sources = Sources(client, namespace)
        self.recorder = Recorder(client, "toy-operator")
        self.drivers = Drivers(client)
        self.drivers.add(drivers)
        self.views = Views(self.drivers, SystemClock())
        self.background = BackgroundPool(PodExec(client).run, client.metrics, run_call=self.drivers.run)
        self.runner = Runner(
            reconciled_toy(kind, drivers),
            self.toys,
            self.sources,
            client,
            SystemClock(),
            self.recorder,
            BackgroundCalls(self.background),
            self.views,
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
        self.background.begin_term()
        self.views.begin_term()
        try:
            await self.controller.run()
        finally:
            await self.background.end_term()
            await self.views.end_term()
            self.runner.end_term()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.watch())
            tasks.create_task(self.lead())


class Reachable(Protocol):
    """Something with an API server."""

    @property
    def kubeconfig(self) -> Path: ...


@dataclass
class ToyScene:
    """One namespace, as a user sees it."""

    client: Client
    server: Reachable
    namespace: str
    kind: type[Toy] = Toy
    counter: Counter = field(default_factory=Counter)
    """Shared by the operators of the scene."""

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
            driver = (
                _KillingDriver(self.counter, transport)
                if isinstance(transport, KillingTransport)
                else self.counter
            )
            operator = ToyOperator(client, self.namespace, self.kind, {"counter": driver})
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

    async def create_password(self, **annotations: str) -> Secret:
        """Create the Secret with the password of counters."""
        metadata = {"name": "counter", "annotations": annotations}
        body = {"metadata": metadata, "stringData": {"password": PASSWORD.decode()}}
        return await self.client.create(Secret, body, self.namespace)

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
