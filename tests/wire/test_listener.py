"""A server with connection limits, as clients at several addresses of this machine see it."""

import asyncio
import inspect
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from argosy.local.apiserver.pki import ensure_pki
from argosy.wire.connection_limits import ConnectionLimits, RejectReason
from argosy.wire.listener import Listener
from argosy.wire.messages import Handler, Request, Response
from argosy.wire.request_head import RequestLimits
from argosy.wire.server import Server
from tests.support.waiting import eventually

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
OK = b"HTTP/1.1 200"


def on_both_loops(test: Callable[..., Coroutine[None, None, None]]) -> Callable[..., None]:
    """Run a test on asyncio's event loop and on uvloop's, which implement TLS differently."""

    def run(make_loop: Callable[[], asyncio.AbstractEventLoop], **fixtures: object) -> None:
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(test(**fixtures))

    added = [inspect.Parameter("make_loop", inspect.Parameter.KEYWORD_ONLY)]
    fixtures = inspect.signature(test).parameters.values()
    run.__signature__ = inspect.Signature([*fixtures, *added])  # type: ignore[attr-defined]
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("make_loop", loops, ids=["asyncio", "uvloop"])(run)


class Client:
    """One connection to the server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def request(self, data: bytes = GET) -> bytes:
        """Send a request; return the first bytes of the response, none if the connection was closed."""
        try:
            self.writer.write(data)
            async with asyncio.timeout(20):
                return await self.reader.read(len(OK))
        except ConnectionError:
            return b""

    async def is_closed(self) -> bool:
        """Wait until the server closes the connection."""
        try:
            async with asyncio.timeout(20):
                while await self.reader.read(4096):
                    pass
        except ConnectionError:
            pass
        return True


class Site:
    def __init__(self, server: Server, tls: ssl.SSLContext | None) -> None:
        self.server, self.tls = server, tls
        self.port = 0
        self.rejected: Counter[str] = Counter()
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self, address: str = "127.0.0.1", *, tls: bool = True) -> Client:
        context = self.tls if tls else None
        async with asyncio.timeout(20):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1",
                self.port,
                ssl=context,
                server_hostname="localhost" if context else None,
                local_addr=(address, 0),
            )
        self._writers.append(writer)
        return Client(reader, writer)

    async def is_rejected(self, address: str = "127.0.0.1") -> bool:
        try:
            return not await (await self.connect(address)).request()
        except ConnectionError:
            return True

    @property
    def listener(self) -> Listener:
        (listener,) = self.server._listeners
        assert isinstance(listener, Listener)
        return listener

    async def close(self) -> None:
        await self.server.close(0.1)
        for writer in self._writers:
            writer.transport.abort()


async def ok(_request: Request) -> Response:
    return Response(b"here")


@asynccontextmanager
async def serving(
    connection_limits: ConnectionLimits,
    *,
    handler: Handler = ok,
    limits: RequestLimits | None = None,
    pki: Path | None = None,
) -> AsyncIterator[Site]:
    rejected: Counter[str] = Counter()

    def count(reason: RejectReason) -> None:
        rejected[reason] += 1

    server = Server(handler, request_limits=limits, connection_limits=connection_limits, on_rejected=count)
    site = Site(server, ssl.create_default_context(cafile=pki / "ca.crt") if pki else None)
    site.rejected = rejected
    context = None
    if pki is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pki / "apiserver.crt", pki / "apiserver.key")
    site.port = await server.listen_tcp("127.0.0.1", 0, context)
    try:
        yield site
    finally:
        await site.close()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a CA and a certificate for localhost."""
    folder = tmp_path_factory.mktemp("state")
    ensure_pki(folder)
    return folder / "pki"


@pytest.fixture(params=["plain", "TLS"])
def transport(request: pytest.FixtureRequest, pki: Path) -> Path | None:
    return pki if request.param == "TLS" else None


@on_both_loops
async def test_an_address_over_its_limit_is_rejected_and_another_is_served(
    transport: Path | None,
) -> None:
    async with serving(ConnectionLimits(total=10, per_address=3), pki=transport) as site:
        clients = [await site.connect() for _ in range(3)]
        assert await site.is_rejected()
        assert await (await site.connect("127.0.0.2")).request() == OK
        assert [await client.request() for client in clients] == [OK, OK, OK]
        assert site.rejected == {"address": 1}


@on_both_loops
async def test_a_closed_connection_no_longer_counts(transport: Path | None) -> None:
    async with serving(ConnectionLimits(total=1, per_address=1), pki=transport) as site:
        for _ in range(5):
            client = await site.connect()
            assert await client.request() == OK
            client.writer.close()
            await eventually(lambda: site.server.connections == 0)


@on_both_loops
async def test_at_the_total_limit_the_address_with_most_connections_loses_its_oldest(
    transport: Path | None,
) -> None:
    async with serving(ConnectionLimits(total=4, per_address=4), pki=transport) as site:
        greedy = [await site.connect() for _ in range(4)]
        assert [await client.request() for client in greedy] == [OK] * 4
        assert await (await site.connect("127.0.0.2")).request() == OK
        assert await greedy[0].is_closed()
        assert site.server.connections == 4
        assert site.rejected == {"displaced": 1}


@on_both_loops
async def test_idle_connections_are_closed_and_those_awaiting_a_response_are_not(
    transport: Path | None,
) -> None:
    release = asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/wait":
            await release.wait()
        return Response(b"here")

    limits = RequestLimits(idle_seconds=0.1, head_seconds=0.1)
    async with serving(
        ConnectionLimits(total=9, per_address=9), handler=handler, limits=limits, pki=transport
    ) as site:
        waiting = await site.connect()
        waiting.writer.write(b"GET /wait HTTP/1.1\r\nHost: here\r\n\r\n")
        used = await site.connect()
        assert await used.request() == OK
        unused, slow = await site.connect(), await site.connect()
        slow.writer.write(b"GET / HTTP/1.1\r\n")
        for client in (used, unused, slow):
            assert await client.is_closed()
        assert site.server.connections == 1
        release.set()
        assert await waiting.request(b"") == OK


@on_both_loops
async def test_a_client_that_never_starts_its_handshake_is_closed(pki: Path) -> None:
    limits = ConnectionLimits(total=9, per_address=9, hello_seconds=0.1)
    async with serving(limits, pki=pki) as site:
        assert await (await site.connect(tls=False)).is_closed()
        assert (site.rejected, site.server.connections) == ({"hello-timeout": 1}, 0)


@on_both_loops
async def test_a_connection_whose_handshake_failed_no_longer_counts(pki: Path) -> None:
    async with serving(ConnectionLimits(total=1, per_address=1), pki=pki) as site:
        client = await site.connect(tls=False)
        client.writer.write(b"this is not TLS\r\n\r\n")
        assert await client.is_closed()
        await eventually(lambda: site.server.connections == 0)
        assert site.rejected == {"handshake": 1}
        assert await (await site.connect()).request() == OK


@on_both_loops
async def test_a_limited_number_of_handshakes_starts_in_each_interval(pki: Path) -> None:
    limits = ConnectionLimits(total=99, per_address=99, handshakes=2, interval_seconds=3600)
    async with serving(limits, pki=pki) as site:
        connecting = [asyncio.create_task(site.connect()) for _ in range(5)]
        await eventually(lambda: sum(task.done() for task in connecting) == 2)
        await eventually(lambda: len(site.listener._ready) == 3)
        site.listener._next_interval()
        await eventually(lambda: sum(task.done() for task in connecting) == 4)
        site.listener._next_interval()
        await asyncio.gather(*connecting)
    assert site.server.connections == 0


@on_both_loops
async def test_silent_clients_do_not_delay_the_handshakes_of_others(pki: Path) -> None:
    limits = ConnectionLimits(total=99, per_address=99, handshakes=1, interval_seconds=0.001)
    async with serving(limits, pki=pki) as site:
        for _ in range(20):
            await site.connect(tls=False)
        half = await site.connect(tls=False)
        half.writer.write(bytes.fromhex("160301"))  # the start of a TLS hello, and no more
        assert await (await site.connect("127.0.0.2")).request() == OK


@on_both_loops
async def test_closing_the_server_closes_connections_that_wait_for_their_handshake(pki: Path) -> None:
    limits = ConnectionLimits(total=99, per_address=99, handshakes=1, interval_seconds=3600)
    async with serving(limits, pki=pki) as site:
        await site.connect()
        silent = await site.connect(tls=False)
        waiting = asyncio.create_task(site.connect())
        await eventually(lambda: len(site.listener._ready) == 1)
    with pytest.raises(ConnectionError):
        await waiting
    assert await silent.is_closed()
    assert site.server.connections == 0


@on_both_loops
async def test_a_unix_socket_is_limited_by_the_total(tmp_path: Path) -> None:
    path = tmp_path / "endpoint.sock"
    server = Server(ok, connection_limits=ConnectionLimits(total=3, per_address=1))
    await server.listen_unix(path)
    clients = [Client(*await asyncio.open_unix_connection(path)) for _ in range(4)]
    try:
        responses = [await client.request() for client in clients]
        assert responses == [OK, OK, OK, b""]
    finally:
        await server.close(0.1)
        for client in clients:
            client.writer.transport.abort()


@on_both_loops
async def test_more_pipelined_requests_than_allowed_are_rejected() -> None:
    limits = RequestLimits(max_pipelined=2, read_bytes=4096)
    async with serving(ConnectionLimits(total=9, per_address=9), limits=limits) as site:
        client = await site.connect()
        client.writer.write(GET * 1000)
        async with asyncio.timeout(20):
            received = await client.reader.read()
        assert (received.count(b"HTTP/1.1 200"), received.count(b"HTTP/1.1 429")) == (3, 1)


@on_both_loops
async def test_a_response_with_close_closes_its_connection(transport: Path | None) -> None:
    async def handler(_request: Request) -> Response:
        return Response(b"no", 401, close=True)

    limits = ConnectionLimits(total=9, per_address=9)
    async with serving(limits, handler=handler, pki=transport) as site:
        client = await site.connect()
        client.writer.write(GET)
        async with asyncio.timeout(20):
            received = await client.reader.read()
        assert received.startswith(b"HTTP/1.1 401")
        assert b"connection: close" in received
