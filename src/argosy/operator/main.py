"""Runs the operator until it is told to stop: connections, keys, endpoints, election."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector

from argosy.dialects.ares.api import ares_job_api
from argosy.dialects.ares.initializers import operator_endpoint
from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import NotFound, Throttled, Unavailable
from argosy.engine.events import Recorder
from argosy.engine.gc_tuning import limit_heap_growth, use_small_tls_buffers
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.engine.logs import Logger, configure_logging
from argosy.engine.metrics import Metrics
from argosy.kinds.kubernetes import Lease, Service
from argosy.kinds.labels import DOMAIN, MANAGED_BY, MANAGER
from argosy.operator import webhooks
from argosy.operator.apis.ares.observer_locator import ObserverLocator
from argosy.operator.bounds import (
    PROBE_CONNECTIONS,
    REQUEST_LIMITS,
    EndpointMetrics,
    OnRefused,
    endpoint_connections,
)
from argosy.operator.credentials import (
    CredentialMaintainer,
    Credentials,
    SecretStore,
    load_or_create,
    wait_for_credentials,
)
from argosy.operator.endpoint import Endpoint
from argosy.operator.endpoint_credentials import endpoint_names
from argosy.operator.health import HealthPaths, health_handler
from argosy.operator.health_checks import live_checks, ready_checks
from argosy.operator.job_metrics import JobMetrics
from argosy.operator.manager import Manager
from argosy.operator.settings import NAME, Settings
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Features, RenderContext
from argosy.wire.connection_limits import ConnectionLimits
from argosy.wire.messages import Handler
from argosy.wire.server import Server

log = Logger(__name__)

LEASE = NAME
GRACE_SECONDS = 1.0

R = TypeVar("R")
LeaderTask = Callable[[], Coroutine[None, None, None]]
"""Something that the leader keeps in order, beside its work on jobs, until cancelled."""


async def run(settings: Settings) -> None:
    """The whole life of an operator process; SIGTERM and SIGINT end it in order."""
    configure_logging(settings.log_format, settings.log_level)
    limit_heap_growth()
    use_small_tls_buffers()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    work = asyncio.create_task(run_operator(settings))
    told = asyncio.create_task(stop.wait())
    await asyncio.wait((work, told), return_when=asyncio.FIRST_COMPLETED)
    told.cancel()
    if stop.is_set():
        log.info("stopping")
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    else:
        work.result()


async def run_operator(settings: Settings) -> None:
    """Serve until cancelled; then finish the passes under way and give the lease back."""
    connection = _connect(settings)
    metrics, clock = Metrics(CollectorRegistry()), SystemClock()
    metrics.event_loop_tasks.set_function(lambda: len(asyncio.all_tasks()))
    ProcessCollector(registry=metrics.registry)
    async with AsyncExitStack() as stack:
        own = await stack.enter_async_context(Client(connection, metrics=metrics))
        leader = Leader(own, settings.name, settings.operator_namespace, settings.identity, metrics=metrics)
        deadline = leader.deadline if settings.leader_elect else None
        client = await stack.enter_async_context(
            Client(connection, metrics=metrics, deadline=deadline, limits=settings.write_limits)
        )
        credentials = await _load_credentials(own, settings, clock)
        whereabouts = await stack.enter_async_context(_observer_locator(connection, settings))
        pods = PodRenderer(_render_context(settings, credentials), credentials.token)
        credentials.subscribe(lambda trust: pods.use_ca(trust.ca))
        recorder = Recorder(client, "argosy-operator")
        stack.push_async_callback(recorder.close)
        serving = Manager(
            client,
            namespace=settings.namespace,
            clock=clock,
            recorder=recorder,
            pods=pods,
            statistics=JobMetrics(metrics.registry),
            cluster_domain=settings.cluster_domain,
            concurrency=settings.concurrency,
            gang_backend=settings.gang_backend,
            remote_exec=settings.remote_exec,
            observer_only=settings.observer_only,
            extra_caches=whereabouts.caches if whereabouts else (),
        )
        if "argosy" in settings.apis:
            serving.add(training_run_api(cluster_domain=settings.cluster_domain))
        if "ares" in settings.apis:
            locate = whereabouts.observer_address if whereabouts else operator_endpoint
            serving.add(
                ares_job_api(
                    settings.ares_ttl_after_succeeded, settings.cluster_domain, settings.initializers, locate
                )
            )
        elected = leader if settings.leader_elect else None
        await stack.enter_async_context(_serve_http(settings, serving, elected, credentials, metrics))
        if settings.publish_service:
            await _retry_unavailable(lambda: publish_service(own, settings.operator_namespace))
        if settings.observer_only:
            await asyncio.gather(serving.run_caches(), credentials.follow())
            return
        upkeep = _leader_tasks(client, settings, credentials, clock)
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(serving.run_caches()), tasks.create_task(credentials.follow())]
            try:
                lead = partial(_run_as_leader, serving, upkeep)
                await (leader.run(lead) if settings.leader_elect else lead())
            finally:
                for task in background:
                    task.cancel()


async def _run_as_leader(serving: Manager, upkeep: Sequence[LeaderTask]) -> None:
    """Work on jobs, and look after what only the leader writes, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(start()) for start in upkeep]
        try:
            await serving.run_controllers()
        finally:
            for task in beside:
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


async def _retry_unavailable(step: Callable[[], Awaitable[R]]) -> R:
    """An API server that is not up yet, or away for a moment, is waited for."""
    for failures in itertools.count(1):
        try:
            return await step()
        except (Unavailable, Throttled) as error:
            log.warning("the API server does not answer, asking again", error=str(error))
            await asyncio.sleep(Backoff(initial=0.1, maximum=5.0).delay(failures))
    raise AssertionError("counting does not end")


async def _load_credentials(client: Client, settings: Settings, clock: Clock) -> Credentials:
    """The credentials of this installation. Observers wait until the operator has made theirs."""
    home, lease = settings.operator_namespace, settings.name

    async def is_led() -> bool:
        try:
            holder = (await client.get(Lease, lease, home)).spec.holder_identity
        except NotFound:
            return False
        return settings.leader_elect and holder not in ("", settings.identity)

    if settings.observer_only:
        store = SecretStore(client, home, settings.observer_secret, for_observer=True)
        return await _retry_unavailable(lambda: wait_for_credentials(store, clock))
    store, names = SecretStore(client, home, settings.secret), _certificate_names(settings, settings.service)
    return await _retry_unavailable(lambda: load_or_create(store, names, clock, is_led))


def _leader_tasks(
    client: Client, settings: Settings, credentials: Credentials, clock: Clock
) -> list[LeaderTask]:
    home, observers = settings.operator_namespace, settings.observer_service
    maintenance = CredentialMaintainer(
        credentials,
        SecretStore(client, home, settings.secret),
        _certificate_names(settings, settings.service),
        SecretStore(client, home, settings.observer_secret, for_observer=True) if observers else None,
        _certificate_names(settings, observers.host) if observers else (),
        clock,
    )
    upkeep: list[LeaderTask] = [maintenance.run]
    if settings.webhooks:
        upkeep.append(
            lambda: webhooks.keep_ca_injected(client, settings.webhooks, lambda: credentials.current.ca)
        )
    return upkeep


def _certificate_names(settings: Settings, host: str) -> list[str]:
    """The DNS names of a Service, of which NAME.NAMESPACE or more is known."""
    service, _, rest = host.partition(".")
    known = endpoint_names(service, rest.partition(".")[0], settings.cluster_domain)
    return list(dict.fromkeys([*known, host]))


def _connect(settings: Settings) -> Connection:
    if settings.kubeconfig is not None or settings.context is not None:
        return Connection.from_kubeconfig(settings.kubeconfig, settings.context)
    return Connection.discover()


@asynccontextmanager
async def _observer_locator(
    connection: Connection, settings: Settings
) -> AsyncIterator[ObserverLocator | None]:
    """With a client of its own, whose caches are not told of in the metrics: there are others of those kinds.

    None where no pod is made that would ask."""
    if settings.observer_only or "ares" not in settings.apis:
        yield None
        return
    service = "" if settings.advertise_url else settings.service
    async with Client(connection) as client:
        yield ObserverLocator(client, settings.url, service, settings.observer_service)


def _render_context(settings: Settings, credentials: Credentials) -> RenderContext:
    return RenderContext(
        helper=settings.helper,
        url=settings.url,
        ca_pem=credentials.current.ca,
        cluster_domain=settings.cluster_domain,
        features=Features(settings.remote_exec, settings.ssh_keys),
    )


@asynccontextmanager
async def _serve_http(
    settings: Settings, serving: Manager, leader: Leader | None, credentials: Credentials, metrics: Metrics
) -> AsyncIterator[None]:
    counted = EndpointMetrics(metrics.registry)
    async with AsyncExitStack() as stack:
        answers = Endpoint(
            serving.job_views,
            credentials,
            serving.not_ready,
            tokens=settings.require_observer_tokens,
            reviews=webhooks.ARES if settings.webhooks else None,
            on_refused=counted.refused,
        )
        bounds = endpoint_connections(settings.max_connections, settings.max_connections_per_address)
        endpoint = await stack.enter_async_context(_http_server(answers.handle, bounds, counted.refused))
        counted.connections.set_function(lambda: endpoint.connections)
        if settings.endpoint_socket is not None:
            await endpoint.listen_unix(settings.endpoint_socket, credentials.tls)
        elif settings.endpoint:
            await endpoint.listen_tcp(*_address(settings.endpoint), credentials.tls)
        if settings.http_endpoint:
            await endpoint.listen_tcp(*_address(settings.http_endpoint))
        for address in {settings.metrics_address, settings.probe_address} - {""}:
            probed, measured = address == settings.probe_address, address == settings.metrics_address
            shown = HealthPaths(
                metrics.registry if measured else None,
                live_checks(serving, leader) if probed else (),
                ready_checks(serving, leader) if probed else (),
            )
            health = await stack.enter_async_context(_http_server(health_handler(shown), PROBE_CONNECTIONS))
            await health.listen_tcp(*_address(address))
        try:
            yield
        finally:
            serving.job_views.release_waiters()


def _address(text: str) -> tuple[str | None, int]:
    host, _, port = text.rpartition(":")
    return host or None, int(port)


@asynccontextmanager
async def _http_server(
    handler: Handler, bounds: ConnectionLimits, on_refused: OnRefused = lambda _reason: None
) -> AsyncIterator[Server]:
    server = Server(handler, limits=REQUEST_LIMITS, bounds=bounds, on_refused=on_refused)
    try:
        yield server
    finally:
        await server.close(GRACE_SECONDS)
