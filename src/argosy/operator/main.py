"""Runs the operator until it is stopped: connections, credentials, HTTP servers, leader election."""

import asyncio
import itertools
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector

from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import NotFound, Throttled, Unavailable
from argosy.engine.events import Recorder
from argosy.engine.gc_tuning import limit_heap_growth, use_small_tls_buffers
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.engine.limiter import WriteLimits
from argosy.engine.logs import Logger, configure_logging
from argosy.engine.metrics import Metrics
from argosy.kinds.kubernetes import Lease, Service
from argosy.kinds.labels import DOMAIN, MANAGED_BY, MANAGER
from argosy.operator import webhooks
from argosy.operator.apis.base import RunningApi, StartContext
from argosy.operator.credentials import (
    CredentialMaintainer,
    Credentials,
    IssuedSecret,
    SecretStore,
    load_or_create,
    wait_for_credentials,
)
from argosy.operator.endpoint_credentials import endpoint_names
from argosy.operator.job_metrics import JobMetrics
from argosy.operator.manager import Manager
from argosy.operator.servers import serve_http
from argosy.operator.settings import NAME, Settings
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Features, RenderContext

log = Logger(__name__)

ACK_LIMITS = WriteLimits(in_flight=16, initial=16)
"""Acknowledgements of pods that are written at once, besides the other writes."""

R = TypeVar("R")
LeaderTask = Callable[[], Coroutine[None, None, None]]
"""Runs alongside the controllers while this replica leads, until cancelled."""


async def run(settings: Settings) -> None:
    """Run an operator process until SIGTERM or SIGINT."""
    configure_logging(settings.log_format, settings.log_level)
    limit_heap_growth()
    use_small_tls_buffers()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    operator = asyncio.create_task(run_operator(settings))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((operator, stopped), return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if stop.is_set():
        log.info("stopping")
        operator.cancel()
        await asyncio.gather(operator, return_exceptions=True)
    else:
        operator.result()


async def run_operator(settings: Settings) -> None:
    """Serve until cancelled; then finish the reconciles in progress and release the Lease."""
    connection = _connect(settings)
    metrics, clock = Metrics(CollectorRegistry()), SystemClock()
    metrics.event_loop_tasks.set_function(lambda: len(asyncio.all_tasks()))
    ProcessCollector(registry=metrics.registry)
    async with AsyncExitStack() as stack:
        # Apart from the client below, whose writes stop with the Lease.
        election_client = await stack.enter_async_context(Client(connection, metrics=metrics))
        leader = Leader(
            election_client, settings.name, settings.operator_namespace, settings.identity, metrics=metrics
        )
        deadline = leader.deadline if settings.leader_elect else None
        client = await stack.enter_async_context(
            Client(connection, metrics=metrics, deadline=deadline, limits=settings.write_limits)
        )
        # Acknowledgements of pods are written by every replica, with or without the Lease.
        ack_client = await stack.enter_async_context(Client(connection, metrics=metrics, limits=ACK_LIMITS))
        credentials = await _load_credentials(election_client, settings, clock)
        context = StartContext(settings=settings, connection=connection)
        apis = [await stack.enter_async_context(api.start(context)) for api in settings.apis]
        recorder = Recorder(client, "argosy-operator")
        stack.push_async_callback(recorder.close)
        manager = _make_manager(settings, client, clock, recorder, metrics, credentials, apis)
        elected = leader if settings.leader_elect else None
        await stack.enter_async_context(
            serve_http(settings, manager, apis, elected, credentials, metrics, ack_client)
        )
        if settings.publish_service:
            await _retry_unavailable(lambda: publish_service(election_client, settings.operator_namespace))
        if settings.endpoint_only:
            await asyncio.gather(manager.run_caches(), credentials.follow())
            return
        tasks = _leader_tasks(client, settings, credentials, clock, apis)
        if settings.quarantine.enabled:
            tasks.append(manager.quarantine.run)
        await _run_replica(manager, credentials, elected, tasks)


def _make_manager(
    settings: Settings,
    client: Client,
    clock: Clock,
    recorder: Recorder,
    metrics: Metrics,
    credentials: Credentials,
    apis: Sequence[RunningApi],
) -> Manager:
    """Return a manager with the controllers of all APIs."""
    pods = PodRenderer(_render_context(settings, credentials), credentials.token)
    credentials.subscribe(lambda changed: pods.use_ca(changed.ca))
    manager = Manager(
        client,
        namespace=settings.namespace,
        clock=clock,
        recorder=recorder,
        pods=pods,
        job_metrics=JobMetrics(metrics.registry),
        concurrency=settings.concurrency,
        gang_backend=settings.gang_backend,
        notices=settings.notices,
        quarantine=settings.quarantine,
        remote_exec=settings.remote_exec,
        endpoint_only=settings.endpoint_only,
        extra_caches=[cache for api in apis for cache in api.caches],
    )
    for api in apis:
        api.add_controllers(manager)
    return manager


async def _run_replica(
    manager: Manager, credentials: Credentials, leader: Leader | None, leader_tasks: Sequence[LeaderTask]
) -> None:
    """Keep caches and credentials current, and run controllers while this replica leads."""
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(manager.run_caches()), tasks.create_task(credentials.follow())]
        try:
            lead = partial(_run_as_leader, manager, leader_tasks)
            await (leader.run(lead) if leader else lead())
        finally:
            for task in background:
                task.cancel()


async def _run_as_leader(manager: Manager, leader_tasks: Sequence[LeaderTask]) -> None:
    """Run the controllers and everything else that only the leader does, until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(start()) for start in leader_tasks]
        try:
            await manager.run_controllers()
        finally:
            for task in background:
                task.cancel()


async def publish_service(client: Client, namespace: str) -> None:
    """Create the Service by which pods of a local control plane reach this operator's unix socket."""
    metadata = {
        "name": NAME,
        "labels": {MANAGED_BY: MANAGER},
        "annotations": {f"{DOMAIN}/unix-socket": "operator"},
    }
    spec = {"ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}]}
    await client.apply(Service, {"metadata": metadata, "spec": spec}, namespace, force=True)


async def _retry_unavailable(step: Callable[[], Awaitable[R]]) -> R:
    """Return the result of a step; repeat it while the API server is not available."""
    for failures in itertools.count(1):
        try:
            return await step()
        except (Unavailable, Throttled) as error:
            log.warning("API server not available; retrying", error=str(error))
            await asyncio.sleep(Backoff(initial=0.1, maximum=5.0).delay(failures))
    raise AssertionError("the loop above does not end")


async def _load_credentials(client: Client, settings: Settings, clock: Clock) -> Credentials:
    """Return the credentials of this installation; the operator creates them, all others wait for them."""
    namespace, lease = settings.operator_namespace, settings.name

    async def is_led() -> bool:
        try:
            holder = (await client.get(Lease, lease, namespace)).spec.holder_identity
        except NotFound:
            return False
        return settings.leader_elect and holder not in ("", settings.identity)

    if settings.endpoint_only:
        issued = SecretStore(client, namespace, settings.secret, issued=True)
        return await _retry_unavailable(lambda: wait_for_credentials(issued, clock))
    store, names = (
        SecretStore(client, namespace, settings.secret),
        _certificate_names(settings, settings.service),
    )
    return await _retry_unavailable(lambda: load_or_create(store, names, clock, is_led))


def _leader_tasks(
    client: Client, settings: Settings, credentials: Credentials, clock: Clock, apis: Sequence[RunningApi]
) -> list[LeaderTask]:
    namespace = settings.operator_namespace
    maintainer = CredentialMaintainer(
        credentials,
        SecretStore(client, namespace, settings.secret),
        _certificate_names(settings, settings.service),
        [
            IssuedSecret(
                SecretStore(client, namespace, certificate.secret, issued=True),
                _certificate_names(settings, certificate.host),
            )
            for api in apis
            for certificate in api.certificates
        ],
        clock,
    )
    tasks: list[LeaderTask] = [maintainer.run, *(task for api in apis for task in api.leader_tasks)]
    if settings.webhooks:
        tasks.append(
            lambda: webhooks.keep_ca_injected(client, settings.webhooks, lambda: credentials.current.ca)
        )
    return tasks


def _certificate_names(settings: Settings, host: str) -> list[str]:
    """Return the DNS names of a Service; `host` is NAME.NAMESPACE or longer."""
    service, _, rest = host.partition(".")
    names = endpoint_names(service, rest.partition(".")[0], settings.cluster_domain)
    return list(dict.fromkeys([*names, host]))


def _connect(settings: Settings) -> Connection:
    if settings.kubeconfig is not None or settings.context is not None:
        return Connection.from_kubeconfig(settings.kubeconfig, settings.context)
    return Connection.discover()


def _render_context(settings: Settings, credentials: Credentials) -> RenderContext:
    return RenderContext(
        helper=settings.helper,
        url=settings.url,
        ca_pem=credentials.current.ca,
        cluster_domain=settings.cluster_domain,
        features=Features(settings.remote_exec, settings.ssh_keys),
    )
