"""Opens the operator's HTTP servers: the endpoint for pods, and the addresses of probes and metrics."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from argosy.engine.client import Client
from argosy.engine.leader import Leader
from argosy.engine.metrics import Metrics
from argosy.operator.apis.base import RunningApi
from argosy.operator.bounds import (
    PROBE_CONNECTIONS,
    REQUEST_LIMITS,
    EndpointMetrics,
    OnRejected,
    endpoint_connections,
)
from argosy.operator.checkpoint_acks import CheckpointAckMetrics, CheckpointAcks
from argosy.operator.credentials import Credentials
from argosy.operator.endpoint import Endpoint, RouteContext
from argosy.operator.health import HealthPaths, health_handler
from argosy.operator.health_checks import live_checks, ready_checks
from argosy.operator.host_acks import HostAckMetrics, HostAcks
from argosy.operator.manager import Manager
from argosy.operator.pod_annotations import PodAnnotations
from argosy.operator.settings import Settings
from argosy.operator.webhooks import Review
from argosy.wire.connection_limits import ConnectionLimits
from argosy.wire.messages import Handler
from argosy.wire.server import Server

GRACE_SECONDS = 1.0
"""How long a closing server waits for its responses to be sent."""


@asynccontextmanager
async def serve_http(
    settings: Settings,
    manager: Manager,
    apis: Sequence[RunningApi],
    leader: Leader | None,
    credentials: Credentials,
    metrics: Metrics,
    ack_client: Client,
) -> AsyncIterator[None]:
    """Serve the endpoint, probes and metrics; at the end, waiting requests are answered first.

    With `ack_client` acknowledgements of pods are written, also while this replica does not lead.
    """
    async with AsyncExitStack() as stack:
        counters = EndpointMetrics(metrics.registry)
        views, annotations = manager.job_views, PodAnnotations(ack_client, manager.job_views)
        host_acks = HostAcks(annotations, manager.clock, views, HostAckMetrics(metrics.registry))
        checkpoint_metrics = CheckpointAckMetrics(metrics.registry)
        checkpoint_acks = CheckpointAcks(annotations, manager.clock, views, checkpoint_metrics)
        is_writer = not settings.endpoint_only
        context = RouteContext(
            manager.job_views,
            credentials,
            manager.not_ready,
            counters.rejected,
            host_acks if is_writer else None,
            checkpoint_acks if is_writer else None,
        )
        routes = {segment: route for api in apis for segment, route in api.routes(context).items()}
        endpoint = Endpoint(context, routes=routes, reviews=_reviews(settings, apis))
        limits = endpoint_connections(settings.max_connections, settings.max_connections_per_address)
        server = await stack.enter_async_context(_server(endpoint.handle, limits, counters.rejected))
        counters.connections.set_function(lambda: server.connections)
        await _listen(server, settings, credentials)
        await _serve_health(stack, settings, manager, leader, metrics)
        try:
            yield
        finally:
            manager.job_views.release_waiters()


def _reviews(settings: Settings, apis: Sequence[RunningApi]) -> Mapping[str, Review]:
    if not settings.webhooks:
        return {}
    return {path: review for api in apis for path, review in api.reviews.items()}


async def _listen(server: Server, settings: Settings, credentials: Credentials) -> None:
    if settings.endpoint_socket is not None:
        await server.listen_unix(settings.endpoint_socket, credentials.tls)
    elif settings.endpoint:
        await server.listen_tcp(*_address(settings.endpoint), credentials.tls)
    if settings.http_endpoint:
        await server.listen_tcp(*_address(settings.http_endpoint))


async def _serve_health(
    stack: AsyncExitStack, settings: Settings, manager: Manager, leader: Leader | None, metrics: Metrics
) -> None:
    """Serve probes and metrics, at one address or at two."""
    for address in {settings.metrics_address, settings.probe_address} - {""}:
        has_probes, has_metrics = address == settings.probe_address, address == settings.metrics_address
        paths = HealthPaths(
            metrics.registry if has_metrics else None,
            live_checks(manager, leader) if has_probes else (),
            ready_checks(manager, leader) if has_probes else (),
        )
        server = await stack.enter_async_context(_server(health_handler(paths), PROBE_CONNECTIONS))
        await server.listen_tcp(*_address(address))


def _address(text: str) -> tuple[str | None, int]:
    host, _, port = text.rpartition(":")
    return host or None, int(port)


@asynccontextmanager
async def _server(
    handler: Handler, limits: ConnectionLimits, on_rejected: OnRejected = lambda _reason: None
) -> AsyncIterator[Server]:
    server = Server(handler, request_limits=REQUEST_LIMITS, connection_limits=limits, on_rejected=on_rejected)
    try:
        yield server
    finally:
        await server.close(GRACE_SECONDS)
