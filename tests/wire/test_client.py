"""The client against a server that sends exact bytes from a script."""

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from argosy.wire.client import Client, Response
from argosy.wire.connection import MAX_UNREAD_BYTES, Connection
from argosy.wire.errors import IncompleteResponseError, ProtocolError
from argosy.wire.origin import Origin
from tests.support.waiting import eventually

HI = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Peer:
    """The server's end of one connection."""

    def __init__(self, plain: socket.socket) -> None:
        self.plain = plain

    async def request(self) -> bytes:
        """Return the bytes of the next request; empty if the client has disconnected."""
        loop = asyncio.get_running_loop()
        data = b""
        while b"\r\n\r\n" not in data or len(data) < _length(data):
            piece = await loop.sock_recv(self.plain, 1 << 16)
            if not piece:
                return b""
            data += piece
        return data

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.plain, data)

    async def is_closed(self) -> bool:
        """Wait until the client closes or resets the connection."""
        async with asyncio.timeout(60):
            try:
                return not await asyncio.get_running_loop().sock_recv(self.plain, 1 << 16)
            except ConnectionError:
                return True

    def close(self) -> None:
        self.plain.close()


def _length(data: bytes) -> int:
    head, _, _ = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")
    ]
    return len(head) + 4 + sum(lengths)


Script = Callable[[Peer], Awaitable[None]]


class ScriptedServer:
    """A server that runs one script for each connection, the last one for all further connections."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = list(scripts)
        self._tasks: list[asyncio.Task[None]] = []
        self.peers: list[Peer] = []

    async def accept(self, listener: socket.socket) -> None:
        while True:
            plain, _ = await asyncio.get_running_loop().sock_accept(listener)
            plain.setblocking(False)
            peer = Peer(plain)
            script = self._scripts[min(len(self.peers), len(self._scripts) - 1)]
            self.peers.append(peer)
            self._tasks.append(asyncio.create_task(self._run(script, peer)))

    async def _run(self, script: Script, peer: Peer) -> None:
        with suppress(ConnectionError):
            await script(peer)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        for peer in self.peers:
            peer.close()
        for result in results:
            if isinstance(result, Exception):
                raise result


@asynccontextmanager
async def scripted(
    *scripts: Script, unix: Path | None = None
) -> AsyncIterator[tuple[ScriptedServer, Client]]:
    listener = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    listener.bind(str(unix) if unix else ("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    server = ScriptedServer(scripts)
    accepting = asyncio.create_task(server.accept(listener))
    url = "http://server" if unix else f"http://127.0.0.1:{listener.getsockname()[1]}"
    client = Client(Origin.from_url(url, unix_socket=str(unix) if unix else None))
    try:
        async with asyncio.timeout(30):
            yield server, client
    finally:
        await client.close()
        accepting.cancel()
        await asyncio.gather(accepting, return_exceptions=True)
        listener.close()
        await server.stop()


def respond(*responses: bytes) -> Script:
    """Send one response to each request, then close the connection."""

    async def script(peer: Peer) -> None:
        for response in responses:
            if not await peer.request():
                return
            await peer.send(response)
        peer.close()

    return script


def always(data: bytes) -> Script:
    async def script(peer: Peer) -> None:
        while await peer.request():
            await peer.send(data)

    return script


def get(client: Client, timeout: float | None = 5) -> Awaitable[Response]:
    return client.send("GET", "/", {}, timeout=timeout)


class Sent(NamedTuple):
    method: str
    headers: dict[str, str]
    body: bytes | None
    want: bytes


REQUESTS = {
    "GET without a body": Sent(
        "GET", {"Accept": "a/b"}, None, b"GET /x?y=1 HTTP/1.1\r\nHost: server\r\nAccept: a/b\r\n\r\n"
    ),
    "POST with a body: head and body in one write": Sent(
        "POST",
        {"A": "b"},
        b"{}",
        b"POST /x?y=1 HTTP/1.1\r\nHost: server\r\nA: b\r\nContent-Length: 2\r\n\r\n{}",
    ),
    "PATCH without a body: Content-Length 0": Sent(
        "PATCH", {}, None, b"PATCH /x?y=1 HTTP/1.1\r\nHost: server\r\nContent-Length: 0\r\n\r\n"
    ),
    "header with a character beyond ASCII: UTF-8": Sent(
        "GET", {"A": "ü"}, None, "GET /x?y=1 HTTP/1.1\r\nHost: server\r\nA: ü\r\n\r\n".encode()
    ),
}


@pytest.mark.parametrize("case", REQUESTS.values(), ids=REQUESTS)
async def test_requests_are_encoded_in_one_write(case: Sent, tmp_path: Path) -> None:
    pieces: list[bytes] = []

    async def script(peer: Peer) -> None:
        pieces.append(await asyncio.get_running_loop().sock_recv(peer.plain, 1 << 16))
        await peer.send(HI)

    async with scripted(script, unix=tmp_path / "socket") as (_, client):
        assert (await client.send(case.method, "/x?y=1", case.headers, case.body)).body == b"hi"
    assert pieces == [case.want]


INVALID_REQUESTS = {
    "line break in a header: not sent": ("/", {"A": "b\r\nC: d"}),
    "bare line feed in a header: not sent": ("/", {"A": "b\nC: d"}),
    "line break in the name of a header: not sent": ("/", {"A\r\nB": "c"}),
    "space in the target: not sent": ("/a b", {}),
    "line break in the target: not sent": ("/a\r\nHost: other", {}),
}


@pytest.mark.parametrize("case", INVALID_REQUESTS)
async def test_a_request_that_could_be_read_as_two_is_not_sent(case: str) -> None:
    target, headers = INVALID_REQUESTS[case]
    async with scripted(always(HI)) as (server, client):
        with pytest.raises(ValueError, match=r"line break|percent-encoded"):
            await client.send("GET", target, headers)
    assert not server.peers


async def test_a_connection_is_reused_after_responses_with_and_without_a_body() -> None:
    empty = b"HTTP/1.1 204 No Content\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    async with scripted(respond(HI, empty, head, chunked, HI)) as (server, client):
        assert await get(client) == (200, {"content-length": "2"}, b"hi")
        assert (await client.send("DELETE", "/", {})).status == 204
        assert (await client.send("HEAD", "/", {})).headers["Content-Length"] == "100"
        assert (await get(client)).body == b"hi"
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 1


async def test_a_response_sent_byte_by_byte_is_read_whole() -> None:
    async def script(peer: Peer) -> None:
        while await peer.request():
            for byte in b"HTTP/1.1 100 Continue\r\n\r\n" + HI:
                await peer.send(bytes([byte]))
                await asyncio.sleep(0)

    async with scripted(script) as (server, client):
        for _ in range(3):
            assert (await get(client)).body == b"hi"
        assert len(server.peers) == 1


NOT_REUSABLE = {
    "Connection: close: not reused": HI.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    "bytes after the response: not reused": HI + b"HTTP/1.1 500 Not Asked For\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.0: not reused": HI.replace(b"1.1", b"1.0"),
}


@pytest.mark.parametrize("response", NOT_REUSABLE.values(), ids=NOT_REUSABLE)
async def test_responses_after_which_a_connection_is_not_reused(response: bytes) -> None:
    async with scripted(always(response)) as (server, client):
        assert [(await get(client)).body for _ in range(2)] == [b"hi", b"hi"]
        assert len(server.peers) == 2
        assert await server.peers[0].is_closed()


async def test_an_idle_connection_is_closed_if_the_server_sends_something() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await idle.wait()
        await peer.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    idle = asyncio.Event()
    async with scripted(script, always(HI)) as (server, client):
        await get(client)
        idle.set()
        assert await server.peers[0].is_closed()
        assert (await client.send("POST", "/", {}, b"")).status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_an_idle_connection_closed_by_the_server_is_not_reused(method: str) -> None:
    """Even if the event loop has not run since it was closed."""
    async with scripted(always(HI)) as (server, client):
        for _ in range(3):
            assert (await client.send(method, "/", {}, timeout=60)).body == b"hi"
            server.peers[-1].plain.shutdown(socket.SHUT_RDWR)
        assert len(server.peers) == 3


class Reset(NamedTuple):
    method: str
    second: bytes
    """What the server sends after the second request on its connection before it resets that."""
    want: type[Exception] | None
    connections: int


RESETS = {
    "GET: retried": Reset("GET", b"", None, 2),
    "HEAD: retried": Reset("HEAD", b"", None, 2),
    "GET with the start of a response: not retried": Reset("GET", b"HTTP/1.1 2", ConnectionError, 1),
    "POST: not retried": Reset("POST", b"", ConnectionError, 1),
    "PATCH: not retried": Reset("PATCH", b"", ConnectionError, 1),
    "PUT: not retried": Reset("PUT", b"", ConnectionError, 1),
    "DELETE: not retried": Reset("DELETE", b"", ConnectionError, 1),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("case", RESETS.values(), ids=RESETS)
async def test_a_reused_connection_is_reset_by_the_server(case: Reset, streamed: bool) -> None:

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()
        await peer.send(case.second)
        peer.close()

    async def second_request() -> None:
        if streamed:
            async with client.stream(case.method, "/", {}, timeout=60) as stream:
                await stream.read()
        else:
            await client.send(case.method, "/", {}, timeout=60)

    head = HI.removesuffix(b"hi") if case.method == "HEAD" else HI
    async with scripted(script, always(head)) as (server, client):
        await get(client)
        if case.want is None:
            await second_request()
        else:
            with pytest.raises(case.want):
                await second_request()
        assert len(server.peers) == case.connections


async def test_a_request_on_a_new_connection_is_not_retried() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        peer.close()

    async with scripted(script) as (server, client):
        with pytest.raises(ConnectionError):
            await get(client)
        assert len(server.peers) == 1


async def test_a_request_is_retried_once() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()
        peer.close()

    async def end(peer: Peer) -> None:
        await peer.request()
        peer.close()

    async with scripted(script, script, end) as (server, client):
        await asyncio.gather(get(client), get(client))
        with pytest.raises(ConnectionError):
            await get(client)
        assert len(server.peers) == 3


INVALID_RESPONSES = {
    "closed within the head: incomplete": (b"HTTP/1.1 200 O", IncompleteResponseError),
    "closed within the body: incomplete": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
        IncompleteResponseError,
    ),
    "SSH instead of HTTP: protocol error": (b"SSH-2.0\r\n", ProtocolError),
    "endless head: protocol error": (b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 200_000, ProtocolError),
    "body larger than the limit: protocol error": (
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 << 20),
        ProtocolError,
    ),
}


@pytest.mark.parametrize("case", INVALID_RESPONSES)
async def test_invalid_responses_raise_errors(case: str) -> None:
    data, want = INVALID_RESPONSES[case]

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        peer.close()

    async with scripted(script, always(HI)) as (server, client):
        with pytest.raises(want):
            await client.send("GET", "/", {}, limit=1000, timeout=60)
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 2


SLOW = {
    "no response: timeout": b"",
    "head never ends: timeout": b"HTTP/1.1 200 OK\r\n",
    "body never ends: timeout": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
}


@pytest.mark.parametrize("response", SLOW.values(), ids=SLOW)
async def test_a_response_times_out(response: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(response)
        await peer.request()

    async with scripted(script, always(HI)) as (server, client):
        with pytest.raises(TimeoutError):
            await get(client, timeout=0.1)
        assert await server.peers[0].is_closed()
        assert (await get(client)).body == b"hi"


async def test_nothing_is_sent_if_the_process_was_suspended_until_after_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[bytes] = []

    async def script(peer: Peer) -> None:
        requests.append(await peer.request())

    async def dial_and_stall(context: ssl.SSLContext | None, deadline: float | None) -> Connection:
        connection = await dial(context, deadline)
        time.sleep(0.3)  # noqa: ASYNC251  # the whole process stands still
        return connection

    async with scripted(script) as (server, client):
        dial = client._dial
        monkeypatch.setattr(client, "_dial", dial_and_stall)
        with pytest.raises(TimeoutError):
            await client.send("POST", "/", {}, timeout=0.2)
        assert await server.peers[0].is_closed()
    assert requests in ([], [b""])


async def test_the_timeout_of_one_request_does_not_affect_the_next() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()
        await asyncio.sleep(1.2)
        await peer.send(HI)

    async with scripted(script) as (server, client):
        await get(client, timeout=1)
        assert (await get(client, timeout=60)).body == b"hi"
        assert len(server.peers) == 1


@pytest.mark.parametrize("turns", range(14))
async def test_a_request_after_a_cancelled_one_gets_its_own_response(turns: int) -> None:
    """Wherever the first is cancelled."""

    async def script(peer: Peer) -> None:
        while request := await peer.request():
            body = request.split()[1]
            for piece in (b"HTTP/1.1 200 OK\r\n", b"Content-Length: %d\r\n\r\n" % len(body), body):
                await peer.send(piece)
                await asyncio.sleep(0)

    async with scripted(script) as (_, client):
        await client.send("GET", "/first", {})
        for number in range(3):
            task = asyncio.create_task(client.send("GET", f"/cancelled{number}", {}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                assert (await task).body == b"/cancelled%d" % number
            kept = await client.send("GET", f"/kept{number}", {}, timeout=60)
            assert kept.body == b"/kept%d" % number


async def test_a_cancellation_at_the_time_of_the_timeout_is_not_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.request()

    async with scripted(script) as (server, client):
        loop = asyncio.get_running_loop()
        for order in ("timeout first", "cancellation first"):
            task = asyncio.create_task(client.send("GET", "/", {}, timeout=0.2))
            began = loop.time()
            loop.call_at(began + (0.21 if order == "timeout first" else 0.19), task.cancel)
            await eventually(lambda: len(server.peers) > 0)
            time.sleep(0.3)  # noqa: ASYNC251  (both timers expire in the same iteration of the loop)
            await asyncio.wait((task,))
            assert task.cancelled(), order


async def test_a_stream_returns_chunks_as_they_arrive_and_then_ends() -> None:
    step = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await step.wait()
        await peer.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.request()
        await peer.send(HI)

    async with scripted(script) as (server, client):
        async with client.stream("GET", "/", {}, timeout=1) as stream:
            assert (stream.status, stream.headers["transfer-encoding"]) == (200, "chunked")
            assert await stream.chunk() == b"one"
            await asyncio.sleep(1.2)  # the timeout covers the head only
            step.set()
            assert await stream.chunk() == b"two"
            assert await stream.chunk() == b""
            assert await stream.chunk() == b""
        await get(client)
        assert len(server.peers) == 1


async def test_a_stream_returns_what_arrived_before_the_connection_broke() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\nt")
        peer.close()

    async with scripted(script) as (_, client), client.stream("GET", "/", {}) as stream:
        received = b""
        with pytest.raises(IncompleteResponseError):
            while True:
                received += await stream.chunk()
        assert received == b"onet"


async def test_leaving_a_stream_early_closes_its_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")

    async with scripted(script, always(HI)) as (server, client):
        async with client.stream("GET", "/", {}) as stream:
            await stream.chunk()
        assert await server.peers[0].is_closed()
        assert (await get(client)).body == b"hi"


async def test_a_stream_that_is_not_read_makes_the_server_wait() -> None:
    sent, size = 0, 64 << 20

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await peer.send(b"x" * 65536)
            sent += 65536

    async with scripted(script) as (_, client), client.stream("GET", "/", {}) as stream:
        previous = -1
        while sent != previous:
            previous = sent
            await asyncio.sleep(0.2)
        # The client's own buffer, and those of the kernel.
        assert MAX_UNREAD_BYTES <= sent < 24 << 20
        read = 0
        while chunk := await stream.chunk():
            assert len(chunk) < 2 * MAX_UNREAD_BYTES
            read += len(chunk)
        assert read == size


async def test_the_rest_of_a_stream_can_be_read_whole_within_a_limit() -> None:
    async with scripted(always(HI)) as (server, client):
        async with client.stream("GET", "/", {}) as stream:
            assert await stream.read(2) == b"hi"
        async with client.stream("GET", "/", {}) as stream:
            with pytest.raises(ProtocolError):
                await stream.read(1)
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 2


async def test_closing_the_client_aborts_requests_without_a_retry() -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()

    async with scripted(script) as (server, client):
        await get(client)
        waiting = asyncio.create_task(client.send("GET", "/", {}))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionError):
            await waiting
        assert await server.peers[0].is_closed()
        assert len(server.peers) == 1


async def test_a_connection_opened_while_the_client_closes_is_closed() -> None:
    async with scripted(always(HI)) as (server, client):
        dialling = asyncio.create_task(client.send("GET", "/", {}))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionError):
            await dialling
        await eventually(lambda: server.peers)
        assert await server.peers[0].is_closed()


async def test_idle_connections_are_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.wire.pool.IDLE_SECONDS", 0.1)
    async with scripted(always(HI)) as (server, client):
        await asyncio.gather(get(client), get(client))
        assert [await peer.is_closed() for peer in server.peers] == [True, True]
        assert (await get(client)).body == b"hi"


async def test_a_connection_is_not_reused_if_the_response_came_before_the_request_was_read() -> None:
    async def script(peer: Peer) -> None:
        await asyncio.get_running_loop().sock_recv(peer.plain, 1000)
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with scripted(script, always(HI)) as (server, client):
        response = await client.send("POST", "/", {}, b"x" * (16 << 20), timeout=60)
        assert response.status == 413
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 2


async def test_a_unix_socket_is_used_instead_of_the_host(tmp_path: Path) -> None:
    async with scripted(always(HI), unix=tmp_path / "socket") as (server, client):
        for _ in range(2):
            assert (await get(client)).body == b"hi"
        assert len(server.peers) == 1
    with pytest.raises(FileNotFoundError):
        await get(Client(Origin.from_url("http://server", unix_socket=str(tmp_path / "none"))))


async def test_a_connection_whose_tls_was_closed_twice_can_be_aborted() -> None:
    """In Python 3.11.2 such a transport raises when it is aborted."""

    class ClosedTwice(asyncio.Transport):
        def abort(self) -> None:
            raise AttributeError("'NoneType' object has no attribute '_abort'")

    connection = Connection(None)
    connection.connection_made(ClosedTwice())
    connection.abort()
    assert connection.is_stale()
