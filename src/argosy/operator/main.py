"""Runs the operator until it is told to stop: connections, keys, endpoints, election."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector

from argosy.dialects.ares.dialect import AresJobDialect
from argosy.dialects.trainingrun import TrainingRunDialect
from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import Throttled, Unavailable
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.engine.lines import Log, write_lines
from argosy.engine.memory import give_back_large_blocks
from argosy.engine.metrics import Metrics
from argosy.kinds.kubernetes import Service
from argosy.kinds.labels import DOMAIN, MANAGED_BY, MANAGER
from argosy.operator import webhooks
from argosy.operator.checks import live_checks, ready_checks
from argosy.operator.endpoint import Endpoint, server_tls
from argosy.operator.health import Shown, health_handler
from argosy.operator.serving import Serving
from argosy.operator.settings import NAME, Settings
from argosy.operator.statistics import JobStatistics
from argosy.operator.trust import Trust, endpoint_names, ensure_trust, found_trust
from argosy.operator.whereabouts import Whereabouts
from argosy.reconcile.pods import PodMaker
from argosy.reconcile.site import Site
from argosy.wire.messages import Handler
from argosy.wire.server import Server

log = Log(__name__)

LEASE = NAME
GRACE_SECONDS = 1.0

R = TypeVar("R")


async def run(settings: Settings) -> None:
    """The whole life of an operator process; SIGTERM and SIGINT end it in order."""
    write_lines(settings.log_format, settings.log_level)
    give_back_large_blocks()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = asyncio.create_task(operate(settings))
    told = asyncio.create_task(stop.wait())
    await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if stop.is_set():
        log.info("stopping")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    else:
        work.result()


async def operate(settings: Settings) -> None:
    """Serve until cancelled; then finish the passes under way and give the lease back."""
    connection = _connect(settings)
    metrics, clock = Metrics(CollectorRegistry()), SystemClock()
    metrics.tasks.set_function(lambda: len(asyncio.all_tasks()))
    ProcessCollector(registry=metrics.registry)
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(Client(connection, metrics=metrics))
        leader = Leader(own, settings.name, settings.operator_namespace, settings.identity, metrics=metrics)
        deadline = leader.deadline if settings.leader_elect else None
        client = await stack.enter_async_context(
            Client(connection, metrics=metrics, deadline=deadline, limits=settings.limits)
        )
        trust = await _trusted(own, settings, clock)
        whereabouts = await stack.enter_async_context(_whereabouts(connection, settings))
        recorder = Recorder(client, "argosy-operator")
        stack.push_async_callback(recorder.close)
        serving = Serving(
            client,
            namespace=settings.namespace,
            clock=clock,
            recorder=recorder,
            pods=PodMaker(_site(settings, trust, whereabouts), trust.token),
            statistics=JobStatistics(metrics.registry),
            cluster_domain=settings.cluster_domain,
            concurrency=settings.concurrency,
            gang_backend=settings.gang_backend,
            remote_start=settings.remote_start,
            observing=settings.observing,
            also=whereabouts.caches if whereabouts else (),
        )
        if "argosy" in settings.apis:
            serving.add(TrainingRunDialect())
        if "ares" in settings.apis:
            serving.add(AresJobDialect(settings.ares_ttl_after_succeeded))
        elected = leader if settings.leader_elect else None
        await stack.enter_async_context(_listening(settings, serving, elected, trust, metrics))
        if settings.publish_service:
            await _patiently(lambda: publish_service(own, settings.operator_namespace))
        if settings.observing:
            await serving.watch()
            return
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(serving.watch())]
            if settings.webhooks:
                told = webhooks.keep_announced(own, settings.webhooks, trust.authority)
                background.append(tasks.create_task(told))
            try:
                await (leader.run(serving.lead) if settings.leader_elect else serving.lead())
            finally:
                for task in background:
                    task.cancel()


async def publish_service(client: Client, namespace: str) -> None:
    """The Service by which pods of a local control plane reach this operator's unix socket."""
    metadata = {
        "name": NAME,
        "labels": {MANAGED_BY: MANAGER},
        "annotations": {f"{DOMAIN}/unix-socket": "operator"},
    }
    spec = {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}]}
    await client.apply(Service, {"metadata": metadata, "spec": spec}, namespace, force=True)


async def _patiently(step: Callable[[], Awaitable[R]]) -> R:
    """An API server that is not up yet, or away for a moment, is waited for."""
    for failures in itertools.count(1):
        try:
            return await step()
        except (Unavailable, Throttled) as error:
            log.warning("the API server does not answer, asking again", error=str(error))
            await asyncio.sleep(Backoff(first=0.1, most=5.0).delay(failures))
    raise AssertionError("counting does not end")


async def _trusted(client: Client, settings: Settings, clock: Clock) -> Trust:
    """The keys of this installation. Observers wait until the operator has made them."""
    home, secret = settings.operator_namespace, f"{settings.name}-trust"
    if settings.observing:
        return await _patiently(lambda: found_trust(client, home, secret))
    observers = settings.observers.host if settings.observers else settings.service
    names = [settings.service, observers]
    places = [(name, rest.partition(".")[0]) for name, _, rest in (one.partition(".") for one in names)]
    known = [one for place in places for one in endpoint_names(*place, settings.cluster_domain)]
    once = list(dict.fromkeys([*known, observers]))
    return await _patiently(lambda: ensure_trust(client, home, once, clock.now(), secret))


def _connect(settings: Settings) -> Connection:
    if settings.kubeconfig is not None or settings.context is not None:
        return Connection.from_kubeconfig(settings.kubeconfig, settings.context)
    return Connection.discover()


@asynccontextmanager
async def _whereabouts(connection: Connection, settings: Settings) -> AsyncIterator[Whereabouts | None]:
    """With a client of its own, whose caches are not told of in the metrics: there are others of those kinds.

    None where no pod is made that would ask."""
    if settings.observing or "ares" not in settings.apis:
        yield None
        return
    service = "" if settings.advertise_url else settings.service
    async with Client(connection) as client:
        yield Whereabouts(client, settings.url, service, settings.observers)


def _site(settings: Settings, trust: Trust, whereabouts: Whereabouts | None) -> Site:
    return Site(
        helper=settings.helper,
        url=settings.url,
        authority=trust.authority,
        cluster_domain=settings.cluster_domain,
        initializers=settings.initializers,
        whereabouts=whereabouts.asked if whereabouts else None,
    )


@asynccontextmanager
async def _listening(
    settings: Settings, serving: Serving, leader: Leader | None, trust: Trust, metrics: Metrics
) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        answers = Endpoint(
            serving.readings,
            trust,
            serving.not_ready,
            tokens=settings.observer_tokens,
            reviews=webhooks.ARES if settings.webhooks else None,
        )
        endpoint = await stack.enter_async_context(_serving(answers.answer))
        tls = server_tls(trust)
        if settings.endpoint_socket is not None:
            await endpoint.listen_unix(settings.endpoint_socket, tls)
        elif settings.endpoint:
            await endpoint.listen_tcp(*_address(settings.endpoint), tls)
        if settings.plain_endpoint:
            await endpoint.listen_tcp(*_address(settings.plain_endpoint))
        for address in {settings.metrics, settings.probes} - {""}:
            probed, measured = address == settings.probes, address == settings.metrics
            shown = Shown(
                metrics.registry if measured else None,
                live_checks(serving, leader) if probed else (),
                ready_checks(serving, leader) if probed else (),
            )
            health = await stack.enter_async_context(_serving(health_handler(shown)))
            await health.listen_tcp(*_address(address))
        try:
            yield
        finally:
            serving.readings.let_go()


def _address(text: str) -> tuple[str | None, int]:
    host, _, port = text.rpartition(":")
    return host or None, int(port)


@asynccontextmanager
async def _serving(handler: Handler) -> AsyncIterator[Server]:
    server = Server(handler)
    try:
        yield server
    finally:
        await server.close(GRACE_SECONDS)
