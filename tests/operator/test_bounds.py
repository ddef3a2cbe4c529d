"""Tests for limits on connections, requests and waits of clients of the operator."""

import asyncio
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parse

from argosy.operator.bounds import RESERVED_FILES, EndpointMetrics, endpoint_connections
from argosy.wire.client import Client
from argosy.wire.origin import Origin
from tests.support.operator_harness import Scene, shown_at
from tests.support.servers import free_port

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Clients:
    """Connections from several addresses of this machine, closed when the test ends."""

    def __init__(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, port: int, address: str = "127.0.0.1", *, tls: bool = True) -> Connection:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context if tls else None, local_addr=(address, 0)
        )
        self._writers.append(writer)
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@pytest.fixture
async def clients() -> AsyncIterator[Clients]:
    clients = Clients()
    yield clients
    clients.close()


async def is_open(connection: Connection) -> bool:
    """Return True if a request is answered."""
    reader, writer = connection
    writer.write(b"GET /cache/ping HTTP/1.1\r\nHost: here\r\n\r\n")
    async with asyncio.timeout(20):
        try:
            return (await reader.read(8)) == b"HTTP/1.1"
        except ConnectionError:
            return False


async def refused(port: int) -> dict[str, float]:
    """Return the counts of refused connections in `/metrics`."""
    client = Client(Origin.from_url(f"http://127.0.0.1:{port}"))
    try:
        text = (await client.send("GET", "/metrics", {})).body.decode()
    finally:
        await client.close()
    samples = [sample for metric in parse(text) for sample in metric.samples]
    return {
        sample.labels["reason"]: sample.value
        for sample in samples
        if sample.name == "argosy_endpoint_rejected_total"
    }


@asynccontextmanager
async def operator(scene: Scene, clients: Clients, **settings: object) -> AsyncIterator[tuple[int, int]]:
    """Yield the ports of an operator's endpoint and of its metrics."""
    endpoint, metrics = free_port(), free_port()
    async with scene.operator(endpoint=f"127.0.0.1:{endpoint}", **shown_at(metrics), **settings):

        async def ready() -> bool:
            try:
                _, writer = connection = await clients.connect(metrics, "127.0.0.9", tls=False)
                writer.write(b"GET /readyz HTTP/1.0\r\n\r\n")
                return (await connection[0].read()).startswith(b"HTTP/1.1 200")
            except ConnectionError:
                return False

        await scene.until("the operator is ready", ready)
        yield endpoint, metrics


on_local = pytest.mark.parametrize("api", ["local"], indirect=True)


@on_local
async def test_address_over_its_connection_limit_is_refused_and_others_are_served(
    scene: Scene, clients: Clients
) -> None:
    async with operator(scene, clients, max_connections_per_address=5) as (endpoint, metrics):
        held = [await clients.connect(endpoint) for _ in range(5)]
        with pytest.raises(ConnectionError):
            await clients.connect(endpoint)
        assert await is_open(await clients.connect(endpoint, "127.0.0.2"))
        assert all([await is_open(connection) for connection in held])
        assert await refused(metrics) == {"address": 1}


REFUSED = {
    "no token": b"GET /v1/jobs/default/job/hosts HTTP/1.1\r\nHost: here\r\n\r\n",
    "unknown path": b"GET /secrets HTTP/1.1\r\nHost: here\r\n\r\n",
    "unknown phase": b"GET /v1/jobs/a/b/roles/c?phase=Odd HTTP/1.1\r\nHost: here\r\n\r\n",
    "unknown path of the observer": b"GET /cache/all HTTP/1.1\r\nHost: here\r\n\r\n",
    "head of 9 KiB": b"GET /v1/" + b"x" * 9216 + b" HTTP/1.1\r\nHost: here\r\n\r\n",
}


@on_local
async def test_refused_request_closes_the_connection(scene: Scene, clients: Clients) -> None:
    async with operator(scene, clients) as (endpoint, _):
        for case, request in REFUSED.items():
            reader, writer = await clients.connect(endpoint)
            writer.write(request)
            async with asyncio.timeout(20):
                response = await reader.read()  # until it is closed
            assert response.startswith(b"HTTP/1.1 4"), case
            assert b"connection: close" in response, case


@on_local
async def test_probes_have_their_own_connection_limits(scene: Scene, clients: Clients) -> None:
    async with operator(scene, clients) as (_, metrics):
        for number in range(64):
            reader, writer = await clients.connect(metrics, tls=False)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
            assert await reader.read(8) == b"HTTP/1.1", number
        reader, writer = await clients.connect(metrics, tls=False)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: here\r\n\r\n")
        assert not await _read_or_reset(reader)
        assert await is_open(await clients.connect(metrics, "127.0.0.2", tls=False))


async def _read_or_reset(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(8)
    except ConnectionError:
        return b""


def test_connection_limit_is_lowered_to_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: raised.append(limits))
    assert endpoint_connections(2000, 10).total == 2000
    assert endpoint_connections(5000, 10).total == 4096 - RESERVED_FILES
    assert raised == [(2000 + RESERVED_FILES, 4096), (4096, 4096)]


def test_refusals_are_counted_by_few_reasons() -> None:
    registry = CollectorRegistry()
    metrics = EndpointMetrics(registry)
    metrics.rejected("address")
    metrics.rejected("address")
    assert registry.get_sample_value("argosy_endpoint_rejected_total", {"reason": "address"}) == 2
