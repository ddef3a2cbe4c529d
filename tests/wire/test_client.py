"""The client against a server that is told what to say, byte by byte."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from argosy.wire.client import Client, Response
from argosy.wire.connection import READ_BUFFER, Connection
from argosy.wire.errors import IncompleteResponseError, ProtocolError
from argosy.wire.origin import Origin
from tests.support.waiting import eventually

HI = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"


class Peer:
    """The server's end of one connection."""

    def __init__(self, plain: socket.socket) -> None:
        self.plain = plain

    async def request(self) -> bytes:
        """The next request, as it came; empty when the client has gone."""
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

    async def gone(self) -> bool:
        """Whether the client closes the connection, reset or not."""
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


class Scripted:
    """A server that plays one script for each connection, the last one for all further."""

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
            self._tasks.append(asyncio.create_task(self._play(script, peer)))

    async def _play(self, script: Script, peer: Peer) -> None:
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
async def scripted(*scripts: Script, unix: Path | None = None) -> AsyncIterator[tuple[Scripted, Client]]:
    listener = socket.socket(socket.AF_UNIX if unix else socket.AF_INET)
    listener.bind(str(unix) if unix else ("127.0.0.1", 0))
    listener.listen()
    listener.setblocking(False)
    server = Scripted(scripts)
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


def answers(*data: bytes) -> Script:
    """One answer to each request; then the connection is closed."""

    async def play(peer: Peer) -> None:
        for each in data:
            if not await peer.request():
                return
            await peer.send(each)
        peer.close()

    return play


def always(data: bytes) -> Script:
    async def play(peer: Peer) -> None:
        while await peer.request():
            await peer.send(data)

    return play


def get(client: Client, timeout: float | None = 5) -> Awaitable[Response]:
    return client.send("GET", "/", {}, timeout=timeout)


class Sent(NamedTuple):
    method: str
    headers: dict[str, str]
    body: bytes | None
    want: bytes


REQUESTS = {
    "a request without body": Sent(
        "GET", {"Accept": "a/b"}, None, b"GET /x?y=1 HTTP/1.1\r\nHost: server\r\nAccept: a/b\r\n\r\n"
    ),
    "a request with a body goes out in one piece": Sent(
        "POST",
        {"A": "b"},
        b"{}",
        b"POST /x?y=1 HTTP/1.1\r\nHost: server\r\nA: b\r\nContent-Length: 2\r\n\r\n{}",
    ),
    "a write of nothing says that it is nothing": Sent(
        "PATCH", {}, None, b"PATCH /x?y=1 HTTP/1.1\r\nHost: server\r\nContent-Length: 0\r\n\r\n"
    ),
    "a header beyond ASCII": Sent(
        "GET", {"A": "ü"}, None, "GET /x?y=1 HTTP/1.1\r\nHost: server\r\nA: ü\r\n\r\n".encode()
    ),
}


@pytest.mark.parametrize("sentence", REQUESTS)
async def test_requests_are_encoded_in_one_write(sentence: str, tmp_path: Path) -> None:
    case = REQUESTS[sentence]
    pieces: list[bytes] = []

    async def play(peer: Peer) -> None:
        pieces.append(await asyncio.get_running_loop().sock_recv(peer.plain, 1 << 16))
        await peer.send(HI)

    async with scripted(play, unix=tmp_path / "socket") as (_, client):
        assert (await client.send(case.method, "/x?y=1", case.headers, case.body)).body == b"hi"
    assert pieces == [case.want]


UNSENDABLE = {
    "a line end in a header": ("/", {"A": "b\r\nC: d"}),
    "a bare line feed in a header": ("/", {"A": "b\nC: d"}),
    "a line end in a header's name": ("/", {"A\r\nB": "c"}),
    "a blank in the target": ("/a b", {}),
    "a line end in the target": ("/a\r\nHost: other", {}),
}


@pytest.mark.parametrize("sentence", UNSENDABLE)
async def test_what_would_become_another_request_is_not_sent(sentence: str) -> None:
    target, headers = UNSENDABLE[sentence]
    async with scripted(always(HI)) as (server, client):
        with pytest.raises(ValueError, match=r"line end|quoted"):
            await client.send("GET", target, headers)
    assert not server.peers


async def test_a_connection_is_used_again_also_after_head_and_other_bodiless_answers() -> None:
    empty = b"HTTP/1.1 204 No Content\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    async with scripted(answers(HI, empty, head, chunked, HI)) as (server, client):
        assert await get(client) == (200, {"content-length": "2"}, b"hi")
        assert (await client.send("DELETE", "/", {})).status == 204
        assert (await client.send("HEAD", "/", {})).headers["Content-Length"] == "100"
        assert (await get(client)).body == b"hi"
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 1


async def test_answers_are_whole_byte_by_byte_over_a_socket() -> None:
    async def play(peer: Peer) -> None:
        while await peer.request():
            for byte in b"HTTP/1.1 100 Continue\r\n\r\n" + HI:
                await peer.send(bytes([byte]))
                await asyncio.sleep(0)

    async with scripted(play) as (server, client):
        for _ in range(3):
            assert (await get(client)).body == b"hi"
        assert len(server.peers) == 1


SPOILED = {
    "the server says that it closes": HI.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
    "more came than the answer": HI + b"HTTP/1.1 500 Not Asked For\r\nContent-Length: 0\r\n\r\n",
    "the server speaks HTTP/1.0": HI.replace(b"1.1", b"1.0"),
}


@pytest.mark.parametrize("sentence", SPOILED)
async def test_a_connection_is_not_used_again_when(sentence: str) -> None:
    async with scripted(always(SPOILED[sentence])) as (server, client):
        assert [(await get(client)).body for _ in range(2)] == [b"hi", b"hi"]
        assert len(server.peers) == 2
        assert await server.peers[0].gone()


async def test_a_connection_on_which_something_comes_unasked_is_given_up() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await asked.wait()
        await peer.send(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")

    asked = asyncio.Event()
    async with scripted(play, always(HI)) as (server, client):
        await get(client)
        asked.set()
        assert await server.peers[0].gone()
        assert (await client.send("POST", "/", {}, b"")).status == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_connection_that_was_closed_in_between_is_noticed_before_it_is_used(method: str) -> None:
    """Also in the very turn of the event loop in which it was closed."""
    async with scripted(always(HI)) as (server, client):
        for _ in range(3):
            assert (await client.send(method, "/", {}, timeout=60)).body == b"hi"
            server.peers[-1].plain.shutdown(socket.SHUT_RDWR)
        assert len(server.peers) == 3


class Gone(NamedTuple):
    method: str
    second: bytes
    """What the server answers to the second request on its connection before it resets that."""
    want: type[Exception] | None
    connections: int


GONE = {
    "a read is sent again": Gone("GET", b"", None, 2),
    "a HEAD is sent again": Gone("HEAD", b"", None, 2),
    "a read of which some of the answer came is not": Gone("GET", b"HTTP/1.1 2", ConnectionError, 1),
    "a POST is not, for it may have been done": Gone("POST", b"", ConnectionError, 1),
    "a PATCH is not": Gone("PATCH", b"", ConnectionError, 1),
    "a PUT is not": Gone("PUT", b"", ConnectionError, 1),
    "a DELETE is not": Gone("DELETE", b"", ConnectionError, 1),
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("sentence", GONE)
async def test_when_a_used_connection_ends_instead_of_an_answer(sentence: str, streamed: bool) -> None:
    case = GONE[sentence]

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()
        await peer.send(case.second)
        peer.close()

    async def again() -> None:
        if streamed:
            async with client.stream(case.method, "/", {}, timeout=60) as stream:
                await stream.read()
        else:
            await client.send(case.method, "/", {}, timeout=60)

    head = HI.removesuffix(b"hi") if case.method == "HEAD" else HI
    async with scripted(play, always(head)) as (server, client):
        await get(client)
        if case.want is None:
            await again()
        else:
            with pytest.raises(case.want):
                await again()
        assert len(server.peers) == case.connections


async def test_a_new_connection_that_ends_instead_of_an_answer_is_not_tried_again() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.close()

    async with scripted(play) as (server, client):
        with pytest.raises(ConnectionError):
            await get(client)
        assert len(server.peers) == 1


async def test_a_read_is_sent_again_once_only() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()
        peer.close()

    async def end(peer: Peer) -> None:
        await peer.request()
        peer.close()

    async with scripted(play, play, end) as (server, client):
        await asyncio.gather(get(client), get(client))
        with pytest.raises(ConnectionError):
            await get(client)
        assert len(server.peers) == 3


BROKEN = {
    "cut in its head": (b"HTTP/1.1 200 O", IncompleteResponseError),
    "cut in its body": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", IncompleteResponseError),
    "not HTTP": (b"SSH-2.0\r\n", ProtocolError),
    "endless in its head": (b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 200_000, ProtocolError),
    "endless in its body": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 << 20), ProtocolError),
}


@pytest.mark.parametrize("sentence", BROKEN)
async def test_an_answer_is_an_error_when_it_is(sentence: str) -> None:
    data, want = BROKEN[sentence]

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        peer.close()

    async with scripted(play, always(HI)) as (server, client):
        with pytest.raises(want):
            await client.send("GET", "/", {}, limit=1000, timeout=60)
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 2


LATE = {
    "that never begins": b"",
    "whose head never ends": b"HTTP/1.1 200 OK\r\n",
    "whose body never ends": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi",
}


@pytest.mark.parametrize("sentence", LATE)
async def test_an_answer_times_out(sentence: str) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(LATE[sentence])
        await peer.request()

    async with scripted(play, always(HI)) as (server, client):
        with pytest.raises(TimeoutError):
            await get(client, timeout=0.1)
        assert await server.peers[0].gone()
        assert (await get(client)).body == b"hi"


async def test_the_timer_of_one_answer_does_not_end_the_next() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()
        await asyncio.sleep(1.2)
        await peer.send(HI)

    async with scripted(play) as (server, client):
        await get(client, timeout=1)
        assert (await get(client, timeout=60)).body == b"hi"
        assert len(server.peers) == 1


@pytest.mark.parametrize("turns", range(14))
async def test_a_cancelled_request_leaves_nothing_behind(turns: int) -> None:
    """Wherever it is cancelled: the next request never gets the answer to the one before."""

    async def play(peer: Peer) -> None:
        while request := await peer.request():
            body = request.split()[1]
            for piece in (b"HTTP/1.1 200 OK\r\n", b"Content-Length: %d\r\n\r\n" % len(body), body):
                await peer.send(piece)
                await asyncio.sleep(0)

    async with scripted(play) as (_, client):
        await client.send("GET", "/first", {})
        for number in range(3):
            task = asyncio.create_task(client.send("GET", f"/left{number}", {}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                assert (await task).body == b"/left%d" % number
            kept = await client.send("GET", f"/kept{number}", {}, timeout=60)
            assert kept.body == b"/kept%d" % number


async def test_a_cancellation_that_comes_together_with_the_timeout_is_not_lost() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.request()

    async with scripted(play) as (server, client):
        loop = asyncio.get_running_loop()
        for order in ("timeout first", "cancellation first"):
            task = asyncio.create_task(client.send("GET", "/", {}, timeout=0.2))
            began = loop.time()
            loop.call_at(began + (0.21 if order == "timeout first" else 0.19), task.cancel)
            await eventually(lambda: len(server.peers) > 0)
            time.sleep(0.3)  # noqa: ASYNC251  (everything that was due falls due at once)
            await asyncio.wait((task,))
            assert task.cancelled(), order


async def test_a_stream_gives_what_has_come_and_an_end() -> None:
    step = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await step.wait()
        await peer.send(b"3\r\ntwo\r\n0\r\n\r\n")
        await peer.request()
        await peer.send(HI)

    async with scripted(play) as (server, client):
        async with client.stream("GET", "/", {}, timeout=1) as stream:
            assert (stream.status, stream.headers["transfer-encoding"]) == (200, "chunked")
            assert await stream.chunk() == b"one"
            await asyncio.sleep(1.2)  # the timeout was for the head
            step.set()
            assert await stream.chunk() == b"two"
            assert await stream.chunk() == b""
            assert await stream.chunk() == b""
        await get(client)
        assert len(server.peers) == 1


async def test_a_stream_gives_what_came_before_it_broke() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\nt")
        peer.close()

    async with scripted(play) as (_, client), client.stream("GET", "/", {}) as stream:
        got = b""
        with pytest.raises(IncompleteResponseError):
            while True:
                got += await stream.chunk()
        assert got == b"onet"


async def test_a_stream_left_early_ends_its_connection() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")

    async with scripted(play, always(HI)) as (server, client):
        async with client.stream("GET", "/", {}) as stream:
            await stream.chunk()
        assert await server.peers[0].gone()
        assert (await get(client)).body == b"hi"


async def test_a_reader_that_waits_makes_the_peer_wait() -> None:
    sent, size = 0, 64 << 20

    async def play(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sent < size:
            await peer.send(b"x" * 65536)
            sent += 65536

    async with scripted(play) as (_, client), client.stream("GET", "/", {}) as stream:
        seen = -1
        while sent != seen:
            seen = sent
            await asyncio.sleep(0.2)
        # What the reader keeps, and what the system's own buffers take.
        assert READ_BUFFER <= sent < 24 << 20
        read = 0
        while chunk := await stream.chunk():
            assert len(chunk) < 2 * READ_BUFFER
            read += len(chunk)
        assert read == size


async def test_what_is_left_of_a_stream_can_be_read_in_one_piece_within_a_limit() -> None:
    async with scripted(always(HI)) as (server, client):
        async with client.stream("GET", "/", {}) as stream:
            assert await stream.read(2) == b"hi"
        async with client.stream("GET", "/", {}) as stream:
            with pytest.raises(ProtocolError):
                await stream.read(1)
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 2


async def test_closing_ends_what_is_open_and_repeats_nothing() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        await peer.send(HI)
        await peer.request()

    async with scripted(play) as (server, client):
        await get(client)
        waiting = asyncio.create_task(client.send("GET", "/", {}))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionError):
            await waiting
        assert await server.peers[0].gone()
        assert len(server.peers) == 1


async def test_a_connection_that_opens_while_the_client_closes_does_not_stay() -> None:
    async with scripted(always(HI)) as (server, client):
        dialling = asyncio.create_task(client.send("GET", "/", {}))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ConnectionError):
            await dialling
        await eventually(lambda: server.peers)
        assert await server.peers[0].gone()


async def test_idle_connections_do_not_stay_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.wire.pool.IDLE_SECONDS", 0.1)
    async with scripted(always(HI)) as (server, client):
        await asyncio.gather(get(client), get(client))
        assert [await peer.gone() for peer in server.peers] == [True, True]
        assert (await get(client)).body == b"hi"


async def test_an_answer_that_comes_before_the_request_was_taken_spoils_the_connection() -> None:
    async def play(peer: Peer) -> None:
        await asyncio.get_running_loop().sock_recv(peer.plain, 1000)
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with scripted(play, always(HI)) as (server, client):
        answer = await client.send("POST", "/", {}, b"x" * (16 << 20), timeout=60)
        assert answer.status == 413
        assert (await get(client)).body == b"hi"
        assert len(server.peers) == 2


async def test_a_unix_socket_is_dialled_instead_of_the_host(tmp_path: Path) -> None:
    async with scripted(always(HI), unix=tmp_path / "socket") as (server, client):
        for _ in range(2):
            assert (await get(client)).body == b"hi"
        assert len(server.peers) == 1
    with pytest.raises(FileNotFoundError):
        await get(Client(Origin.from_url("http://server", unix_socket=str(tmp_path / "none"))))


async def test_a_connection_whose_tls_was_closed_twice_can_be_given_up() -> None:
    """In Python 3.11.2 such a transport raises when it is aborted."""

    class ClosedTwice(asyncio.Transport):
        def abort(self) -> None:
            raise AttributeError("'NoneType' object has no attribute '_abort'")

    connection = Connection(None)
    connection.connection_made(ClosedTwice())
    connection.abort()
    assert connection.stale()
