"""The server against a plain socket that sends exact bytes."""

import asyncio
import errno
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.local.apiserver.pki import ensure_pki
from argosy.wire.messages import HandlerResult, Request, Response, Upgrade
from argosy.wire.request_head import RequestLimits
from argosy.wire.server import Server
from argosy.wire.websocket import WebSocket

Handler = Callable[[Request], Awaitable[HandlerResult]]
HOST = b"Host: here\r\n"


class Connection:
    """The client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def response(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of the next response."""
        async with asyncio.timeout(60):
            first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            if method == "HEAD":
                return int(first.split()[1]), headers, b""
            if headers.get("transfer-encoding") == "chunked":
                return int(first.split()[1]), headers, await self.chunks()
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(first.split()[1]), headers, body

    async def chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
        assert await self.reader.readline() == b"\r\n"
        return body

    async def rest(self) -> bytes:
        async with asyncio.timeout(60):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            pass


class Site:
    """A running server, and connections to it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self.connections: list[Connection] = []

    async def connect(self) -> Connection:
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port))
        self.connections.append(connection)
        return connection

    async def request(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = await self.connect()
        await connection.send(data)
        return await connection.response()


@asynccontextmanager
async def serving(handler: Handler, limits: RequestLimits | None = None) -> AsyncIterator[Site]:
    server = Server(handler, request_limits=limits)
    site = Site(server, await server.listen_tcp("127.0.0.1", 0))
    try:
        yield site
    finally:
        await server.close(1)
        for connection in site.connections:
            await connection.close()


async def echo(request: Request) -> Response:
    body = await request.body(1 << 20)
    prefix = f"{request.method} {request.path} {sorted(request.query.items())} ".encode()
    return Response(prefix + body, content_type=b"text/plain")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)


VALID = {
    "GET without a body": (b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /a [] "),
    "query and escaped path: decoded": (
        b"GET /a%20b?c=d&c=e&f HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a b [('c', ['d', 'e']), ('f', [''])] ",
    ),
    "body with Content-Length: read": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc",
        b"POST / [] abc",
    ),
    "chunked body with extensions and trailers: read": (
        b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: Chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\nEnd: 1\r\n\r\n",
        b"POST / [] abc",
    ),
    "empty line before the request: ignored": (b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n", b"GET / [] "),
    "absolute URL as target: path and query are used": (
        b"GET http://here/a?b=c HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a [('b', ['c'])] ",
    ),
    "absolute URL without a path as target: root path": (
        b"GET http://here HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / [] ",
    ),
    "upgrade to an unknown protocol: answered with HTTP": (
        b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET /a [] ",
    ),
}


@pytest.mark.parametrize("case", VALID)
async def test_valid_requests(case: str) -> None:
    sent, want = VALID[case]
    async with serving(echo) as site:
        status, headers, body = await site.request(sent)
    assert (status, body) == (200, want)
    assert headers["content-length"] == str(len(want))
    assert headers["content-type"] == "text/plain"


CHUNKED = b"Transfer-Encoding: chunked\r\n"
INVALID_HEADERS = {
    "Content-Length before Transfer-Encoding: 400": (
        400,
        HOST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n",
    ),
    "Content-Length after Transfer-Encoding: 400": (
        400,
        HOST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n",
    ),
    "two different Content-Length headers: 400": (
        400,
        HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    ),
    "two equal Content-Length headers: 400": (
        400,
        HOST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    ),
    "two lengths in one Content-Length header: 400": (400, HOST + b"Content-Length: 3, 3\r\n\r\nabc"),
    "Content-Length with a plus sign: 400": (400, HOST + b"Content-Length: +3\r\n\r\nabc"),
    "negative Content-Length: 400": (400, HOST + b"Content-Length: -3\r\n\r\nabc"),
    "hexadecimal Content-Length: 400": (400, HOST + b"Content-Length: 0x3\r\n\r\nabc"),
    "Transfer-Encoding gzip: 501": (501, HOST + b"Transfer-Encoding: gzip\r\n\r\nabc"),
    "Transfer-Encoding gzip, chunked: 501": (
        501,
        HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    "two Transfer-Encoding headers: 400": (
        400,
        HOST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    ),
    "Transfer-Encoding xchunked: 501": (501, HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "space before the colon of a header: 400": (400, HOST + b"Content-Length : 3\r\n\r\nabc"),
    "folded header line: 400": (400, HOST + b"A: b\r\n c\r\n\r\n"),
    "lines that end with a bare line feed: 400": (400, b"Host: here\nA: b\n\n"),
    "NUL in a header: 400": (400, HOST + b"A: b\0c\r\n\r\n"),
    "header without a name: 400": (400, HOST + b": b\r\n\r\n"),
    "no Host header: 400": (400, b"A: b\r\n\r\n"),
    "two Host headers: 400": (400, HOST + b"Host: there\r\n\r\n"),
    "chunk longer than its size: 400": (400, HOST + CHUNKED + b"\r\n2\r\nabc\r\n0\r\n\r\n"),
    "chunk size that is not a number: 400": (400, HOST + CHUNKED + b"\r\nxy\r\n"),
    "chunk size beyond 64 bits: 400": (400, HOST + CHUNKED + b"\r\n" + b"f" * 17 + b"\r\n"),
    "unknown Expect header: 417": (417, HOST + b"Content-Length: 1\r\nExpect: more\r\n\r\na"),
    "upgrade with a body: 400": (
        400,
        HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    ),
    "WebSocket without a key: 400": (
        400,
        HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    ),
    "head with too many lines: 431": (431, HOST + b"A: b\r\n" * 300 + b"\r\n"),
    "head that is too large: 431": (431, HOST + b"A: " + b"b" * 70_000 + b"\r\n\r\n"),
}
INVALID_FIRST_LINES = {
    "unknown method: 405": (405, b"FROB / HTTP/1.1\r\n"),
    "method in lower case: 405": (405, b"get / HTTP/1.1\r\n"),
    "CONNECT: 405": (405, b"CONNECT here:80 HTTP/1.1\r\n"),
    "no HTTP version: 505": (505, b"POST /\r\n"),
    "HTTP/2.0: 505": (505, b"POST / HTTP/2.0\r\n"),
    "target that is not a path: 400": (400, b"OPTIONS * HTTP/1.1\r\n"),
    "control character in the target: 400": (400, b"POST /\x01 HTTP/1.1\r\n"),
    "TLS hello instead of a request: 405": (405, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "chunks with HTTP/1.0: 400": (400, b"POST / HTTP/1.0\r\n" + CHUNKED),
    "target that is too long: 431": (431, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n"),
}
INVALID = {
    **{case: (status, b"POST / HTTP/1.1\r\n" + rest) for case, (status, rest) in INVALID_HEADERS.items()},
    **{case: (status, line + HOST + b"\r\n") for case, (status, line) in INVALID_FIRST_LINES.items()},
}


@pytest.mark.parametrize("case", INVALID)
async def test_an_invalid_request_closes_the_connection_and_nothing_after_it_is_handled(case: str) -> None:
    """Such requests can hide a second one from one of two servers in a row."""
    status, sent = INVALID[case]
    handled: list[str] = []

    async def handler(request: Request) -> Response:
        handled.append(request.path)
        return await echo(request)

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(sent + b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n")
        received, headers, _ = await connection.response()
        assert received == status
        assert headers["connection"] == "close"
        assert await connection.rest() == b""
        assert "/smuggled" not in handled
        assert (await site.request(VALID["GET without a body"][0]))[0] == 200


async def test_an_endless_head_is_rejected() -> None:
    async with serving(echo) as site:
        for start in (b"GET /", b"GET / HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\nA", b"POST / HTTP/1.1\r\n"):
            connection = await site.connect()
            sending = asyncio.create_task(
                _send_forever(connection, start, b"a: b\r\n" if start.endswith(b"\n") else b"a")
            )
            assert (await connection.response())[0] == 431
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def test_an_endless_chunk_extension_or_trailer_is_rejected() -> None:
    async with serving(echo) as site:
        for start in (b"1;", b"0\r\nA: "):
            connection = await site.connect()
            head = b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n"
            sending = asyncio.create_task(_send_forever(connection, head + start, b"a"))
            assert (await connection.response())[0] == 400
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _send_forever(connection: Connection, start: bytes, more: bytes) -> None:
    await connection.send(start)
    while True:
        await connection.send(more * 1000)


SPLIT = (
    b"POST /a?b=c HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"
    b"GET /second HTTP/1.1\r\nHost: here\r\nX: y\r\n\r\n"
    b"PUT /third HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
)
SPLIT_RESPONSES = [b"POST /a [('b', ['c'])] body", b"GET /second [] ", b"PUT /third [] abc"]


async def test_requests_may_be_split_in_two_at_every_byte() -> None:
    async with serving(echo) as site:
        for cut in range(1, len(SPLIT)):
            assert await _split(site, [cut]) == SPLIT_RESPONSES, cut
        assert await _split(site, list(range(len(SPLIT)))) == SPLIT_RESPONSES


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(0, len(SPLIT)), max_size=12))
def test_requests_may_be_split_into_any_pieces(cuts: list[int]) -> None:
    async def check() -> None:
        async with serving(echo) as site:
            assert await _split(site, sorted(cuts)) == SPLIT_RESPONSES

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(check())


async def _split(site: Site, cuts: list[int]) -> list[bytes]:
    """Send the requests in pieces, each in its own packet; return the bodies of the responses."""
    connection = await site.connect()
    connection.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start, stop in zip([0, *cuts], [*cuts, len(SPLIT)], strict=True):
        await connection.send(SPLIT[start:stop])
        await asyncio.sleep(0)
    bodies = [(await connection.response())[2] for _ in SPLIT_RESPONSES]
    await connection.close()
    return bodies


async def test_a_connection_is_kept_alive() -> None:
    async with serving(echo) as site:
        connection = await site.connect()
        for number in range(3):
            await connection.send(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n")
            assert (await connection.response())[2] == b"GET /%d [] " % number
        assert site.server.connections == 1


async def test_pipelined_requests_are_handled_one_at_a_time_in_order() -> None:
    running: list[str] = []
    concurrent: list[int] = []

    async def handler(request: Request) -> Response:
        running.append(request.path)
        concurrent.append(len(running))
        await asyncio.sleep(0.05 if request.path == "/0" else 0)
        running.remove(request.path)
        return Response(request.path.encode())

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(
            b"".join(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in range(100))
        )
        assert [(await connection.response())[2] for _ in range(100)] == [
            b"/%d" % number for number in range(100)
        ]
    assert max(concurrent) == 1


async def test_reading_pauses_if_a_pipelining_client_reads_no_responses() -> None:
    handled = 0

    async def handler(_: Request) -> Response:
        nonlocal handled
        handled += 1
        return Response(b"x" * 100_000)

    async with serving(handler) as site:
        connection = await site.connect()
        request = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
        sending = asyncio.create_task(connection.send(request * 100_000))
        await asyncio.wait([sending], timeout=0.5)
        assert handled < 1000
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        connection.writer.transport.abort()


async def test_reading_pauses_if_too_many_pipelined_requests_wait() -> None:
    go_on = asyncio.Event()

    async def handler(_: Request) -> Response:
        await go_on.wait()
        return Response()

    async with serving(handler) as site:
        connection = await site.connect()
        request = b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 1000 + b"\r\n\r\n"
        sending = asyncio.create_task(connection.send(request * 20_000))
        _, pending = await asyncio.wait([sending], timeout=0.5)
        assert pending, "20 MB were read before the first response"
        go_on.set()
        for _ in range(100):
            assert (await connection.response())[0] == 200
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        connection.writer.transport.abort()


CLOSING = {
    "Connection: close: closed after the response": b"GET / HTTP/1.1\r\n"
    + HOST
    + b"Connection: close\r\n\r\n",
    "HTTP/1.0: closed after the response": b"GET / HTTP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("request_bytes", CLOSING.values(), ids=CLOSING)
async def test_the_last_request_of_a_connection(request_bytes: bytes) -> None:
    async with serving(echo) as site:
        connection = await site.connect()
        await connection.send(request_bytes + b"GET /more HTTP/1.1\r\n" + HOST + b"\r\n")
        status, headers, body = await connection.response()
        assert (status, headers["connection"], body) == (200, "close", b"GET / [] ")
        assert await connection.rest() == b""


async def test_a_client_that_is_still_sending_can_read_the_error_response() -> None:
    """Closing a connection with unread data would reset it, and the response would be lost."""
    async with serving(echo) as site:
        connection = await site.connect()
        await connection.send(b"nonsense\r\n\r\n")
        assert (await connection.response())[0] == 405
        assert await connection.rest() == b""
        for _ in range(3):
            await connection.send(b"and more of it\r\n")
            await asyncio.sleep(0.02)


async def test_a_client_that_has_shut_down_sending_still_gets_its_response() -> None:
    async def handler(_: Request) -> Response:
        await asyncio.sleep(0.05)
        return Response(b"here it is")

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(VALID["GET without a body"][0])
        connection.writer.write_eof()
        assert (await connection.response())[2] == b"here it is"
        assert await connection.rest() == b""


async def test_responses_to_head_and_with_status_204_have_no_body() -> None:
    async def handler(request: Request) -> Response:
        return Response(b"", 204) if request.path == "/none" else Response(b"body")

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\nGET /none HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await connection.response("HEAD"))[1]["content-length"] == "4"
        status, headers, _ = await connection.response()
        assert (status, headers) == (204, {})
        await connection.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await connection.response())[2] == b"body"


async def test_a_body_larger_than_the_handler_accepts_is_rejected_unread() -> None:
    async def handler(request: Request) -> Response:
        await request.body(1000)
        return Response()

    async with serving(handler) as site:
        head = b"POST / HTTP/1.1\r\n" + HOST
        assert (await site.request(head + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001))[0] == 413
        status, headers, _ = await site.request(head + b"Content-Length: 100000000\r\n\r\n")
        assert (status, headers["connection"]) == (413, "close")
        connection = await site.connect()
        await connection.send(head + CHUNKED + b"\r\n" + b"100\r\n%b\r\n" % (b"x" * 256) * 4)
        assert (await connection.response())[0] == 413


async def test_100_continue_is_sent_when_the_handler_reads_the_body() -> None:
    async with serving(echo) as site:
        connection = await site.connect()
        await connection.send(
            b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        async with asyncio.timeout(60):
            assert await connection.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await connection.send(b"abc")
        assert (await connection.response())[2] == b"POST / [] abc"


async def test_without_100_continue_if_the_handler_does_not_read_the_body() -> None:
    async def handler(_: Request) -> Response:
        return Response(b"no", 403)

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(
            b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
        )
        status, headers, _ = await connection.response()
        assert (status, headers["connection"]) == (403, "close")


async def test_the_connection_stays_open_after_a_short_body_that_no_handler_read() -> None:
    async def handler(_: Request) -> Response:
        return Response(b"no", 401)

    async with serving(handler) as site:
        connection = await site.connect()
        for _ in range(2):
            await connection.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\n")
            await asyncio.sleep(0.01)
            await connection.send(b"abc")
            status, headers, _ = await connection.response()
            assert (status, headers.get("connection")) == (401, None)


async def test_reading_pauses_until_the_handler_reads_the_body() -> None:
    wanted = asyncio.Event()

    async def handler(request: Request) -> Response:
        await wanted.wait()
        return Response(str(len(await request.body(1 << 30))).encode())

    async with serving(handler) as site:
        connection = await site.connect()
        size = 50_000_000
        await connection.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % size)
        sending = asyncio.create_task(connection.send(b"x" * size))
        _, pending = await asyncio.wait([sending], timeout=0.3)
        assert pending
        wanted.set()
        assert (await connection.response())[2] == str(size).encode()
        await sending


async def test_reading_a_body_fails_if_the_client_disconnects() -> None:
    ended = asyncio.Event()

    async def handler(request: Request) -> Response:
        try:
            await request.body(1000)
        finally:
            ended.set()
        return Response()

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc")
        await connection.close()
        async with asyncio.timeout(60):
            await ended.wait()
        await until(lambda: site.server.connections == 0)


async def test_an_exception_in_a_handler_is_logged_and_answered_with_500(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/bad":
            raise ZeroDivisionError("oh")
        return Response(b"fine")

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(b"GET /bad HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n")
        status, _, body = await connection.response()
        assert (status, b"oh" in body) == (500, False)
        assert (await connection.response())[2] == b"fine"
    assert "ZeroDivisionError: oh" in caplog.text
    assert "GET /bad failed" in caplog.text


async def test_a_line_break_in_a_response_header_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_: Request) -> Response:
        return Response(b"", headers=[(b"a", b"b\r\nset-cookie: c")])

    async with serving(handler) as site:
        status, headers, _ = await site.request(VALID["GET without a body"][0])
    assert status == 500
    assert "set-cookie" not in headers
    assert "line break" in caplog.text


async def test_a_stream_is_sent_in_chunks_and_the_connection_stays_open() -> None:
    async def handler(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b""
            yield b"one"
            await asyncio.sleep(0.01)
            yield b"two" * 1000

        return Response(pieces(), content_type=b"text/plain")

    async with serving(handler) as site:
        connection = await site.connect()
        for _ in range(2):
            await connection.send(VALID["GET without a body"][0])
            status, headers, body = await connection.response()
            assert (status, body) == (200, b"one" + b"two" * 1000)
            assert "content-length" not in headers


async def test_a_stream_to_an_http_1_0_client_ends_with_the_connection() -> None:
    async def handler(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

        return Response(pieces())

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(b"GET / HTTP/1.0\r\n\r\n")
        head, _, body = (await connection.rest()).partition(b"\r\n\r\n")
        assert body == b"onetwo"
        assert b"chunked" not in head


class Endless:
    """A handler with an endless stream."""

    def __init__(self, piece: bytes = b"tick", pause: float = 0.01) -> None:
        self.sent = 0
        self.ended = asyncio.Event()
        self._piece, self._pause = piece, pause

    async def __call__(self, _: Request) -> Response:
        return Response(self._pieces())

    async def _pieces(self) -> AsyncIterator[bytes]:
        try:
            while True:
                self.sent += 1
                yield self._piece
                await asyncio.sleep(self._pause)
        finally:
            self.ended.set()


async def test_connection_that_is_reset_right_after_the_response_ends_quietly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_transport: object) -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, problem: problems.append(problem))
    async with serving(echo) as site:
        monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", fail)
        connection = await site.connect()
        await connection.send(b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        assert (await connection.response())[0] == 200
        assert await connection.rest() == b""
    gc.collect()
    assert problems == []


@pytest.mark.parametrize("how", ["close", "reset", "shutdown of sending"])
async def test_a_stream_ends_when_its_client_disconnects(how: str) -> None:
    stream = Endless()
    async with serving(stream) as site:
        connection = await site.connect()
        await connection.send(VALID["GET without a body"][0])
        await until(lambda: stream.sent > 2)
        if how == "close":
            await connection.close()
        elif how == "reset":
            connection.writer.transport.abort()
        else:
            connection.writer.write_eof()
        async with asyncio.timeout(60):
            await stream.ended.wait()
        await until(lambda: site.server.connections == 0)


async def test_a_stream_waits_for_a_slow_client() -> None:
    stream = Endless(b"x" * 100_000, pause=0)
    async with serving(stream) as site:
        connection = await site.connect()
        await connection.send(VALID["GET without a body"][0])
        previous = -1
        while stream.sent != previous:
            previous = stream.sent
            await asyncio.sleep(0.1)
        assert previous < 500
        for _ in range(100):
            await connection.reader.readexactly(100_000)
        await until(lambda: stream.sent > previous)


async def test_a_stream_that_fails_does_not_look_complete(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            raise ZeroDivisionError

        return Response(pieces())

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(VALID["GET without a body"][0])
        try:
            rest = await connection.rest()
        except ConnectionResetError:
            rest = b""
        assert not rest.endswith(b"0\r\n\r\n")
    assert "the stream of GET /a failed" in caplog.text


SHORT_TIMEOUTS = RequestLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2)
SLOW = {
    "client sends nothing: dropped": b"",
    "client stops within the head: dropped": b"GET / HTTP/1.1\r\nHost: h",
    "client stops within the body: dropped": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc",
}


@pytest.mark.parametrize("data", SLOW.values(), ids=SLOW)
async def test_a_client_that_stops_sending_is_dropped(data: bytes) -> None:
    async with serving(echo, SHORT_TIMEOUTS) as site:
        connection = await site.connect()
        await connection.send(data)
        try:
            assert await connection.rest() == b""
        except ConnectionResetError:
            pass
        await until(lambda: site.server.connections == 0)


async def test_a_client_that_sends_its_head_too_slowly_is_dropped() -> None:
    async with serving(echo, RequestLimits(head_seconds=0.3)) as site:
        connection = await site.connect()
        with pytest.raises(ConnectionError):
            for byte in b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100:
                await connection.send(bytes([byte]))
                await asyncio.sleep(0.02)


async def test_an_idle_connection_is_closed() -> None:
    async with serving(echo, RequestLimits(idle_seconds=0.2, head_seconds=1.0)) as site:
        connection = await site.connect()
        await connection.send(VALID["GET without a body"][0])
        assert (await connection.response())[0] == 200
        try:
            assert await connection.rest() == b""
        except ConnectionResetError:
            pass


async def test_a_handler_has_no_time_limit() -> None:
    async def handler(_: Request) -> Response:
        await asyncio.sleep(0.6)
        return Response(b"at last")

    async with serving(handler, SHORT_TIMEOUTS) as site:
        assert (await site.request(VALID["GET without a body"][0]))[2] == b"at last"


async def test_closing_finishes_responses_in_progress_and_closes_idle_connections() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/slow":
            begun.set()
            await go_on.wait()
        return Response(b"done")

    async with serving(handler) as site:
        idle, busy = await site.connect(), await site.connect()
        await idle.send(VALID["GET without a body"][0])
        await idle.response()
        await busy.send(b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n")
        await begun.wait()
        closing = asyncio.create_task(site.server.close(5))
        assert await idle.rest() == b""
        with pytest.raises(ConnectionError):
            await site.connect()
        go_on.set()
        status, headers, body = await busy.response()
        assert (status, headers["connection"], body) == (200, "close", b"done")
        await asyncio.wait_for(closing, 60)


async def test_closing_ends_streams_at_once_and_handlers_after_the_grace_period() -> None:
    stuck = asyncio.Event()
    stream = Endless()

    async def handler(request: Request) -> Response:
        if request.path == "/stream":
            return await stream(request)
        try:
            await asyncio.Event().wait()
        finally:
            stuck.set()
        return Response()

    async with serving(handler) as site:
        watching, waiting = await site.connect(), await site.connect()
        await watching.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\n")
        await waiting.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        await until(lambda: stream.sent > 0)
        closing = asyncio.create_task(site.server.close(0.3))
        async with asyncio.timeout(60):
            await stream.ended.wait()
            assert not stuck.is_set()
            await closing
        assert stuck.is_set()
        assert site.server.connections == 0


WEBSOCKET = (
    b"GET /socket HTTP/1.1\r\n" + HOST + b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


async def test_a_websocket_is_accepted_and_carries_messages() -> None:
    async def handler(request: Request) -> Upgrade:
        async def serve(socket: WebSocket) -> None:
            while (message := await socket.receive()) is not None:
                assert isinstance(message, bytes)
                await socket.send(message.upper())

        assert request.wants_websocket
        return Upgrade(request.subprotocols[1], serve)

    async with serving(handler) as site:
        connection = await site.connect()
        offered = b"Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n\r\n"
        frame = b"\x82\x83\0\0\0\0abc"
        await connection.send(WEBSOCKET + offered + frame)
        status, headers, _ = await connection.response()
        assert status == 101
        assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert headers["sec-websocket-protocol"] == "v4.channel.k8s.io"
        assert await connection.reader.readexactly(5) == b"\x82\x03ABC"
        await connection.send(frame)
        assert await connection.reader.readexactly(5) == b"\x82\x03ABC"
        await connection.send(b"\x88\x82\0\0\0\0\x03\xe8")
        assert await connection.rest() == b"\x88\x02\x03\xe8"
        await until(lambda: site.server.connections == 0)


async def test_a_websocket_may_be_rejected() -> None:
    async def handler(_: Request) -> Response:
        return Response(b"no", 403)

    async with serving(handler) as site:
        status, headers, body = await site.request(WEBSOCKET + b"\r\n")
        assert (status, headers["connection"], body) == (403, "close", b"no")


async def test_a_websocket_gets_a_close_frame_when_the_server_closes() -> None:
    async def handler(_: Request) -> Upgrade:
        async def serve(socket: WebSocket) -> None:
            await socket.receive()

        return Upgrade("", serve)

    async with serving(handler) as site:
        connection = await site.connect()
        await connection.send(WEBSOCKET + b"\r\n")
        assert (await connection.response())[0] == 101
        closing = asyncio.create_task(site.server.close(2))
        async with asyncio.timeout(60):
            assert await connection.reader.readexactly(4) == b"\x88\x02\x03\xe9"
            await connection.close()
            await closing


async def test_a_unix_socket_is_accessible_to_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.touch()  # as a killed process leaves it
    server = Server(echo)
    await server.listen_unix(path)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        connection = Connection(*await asyncio.open_unix_connection(str(path)))
        await connection.send(VALID["GET without a body"][0])
        assert (await connection.response())[2] == b"GET /a [] "
        await connection.close()
    finally:
        await server.close(1)


async def test_a_stream_and_a_large_response_over_tls(tmp_path: Path) -> None:
    async def handler(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield b"x" * 100_000

        return Response(pieces() if request.path == "/stream" else b"y" * 3_000_000)

    server_side, client_side = certificates(tmp_path)
    server = Server(handler)
    port = await server.listen_tcp("127.0.0.1", 0, server_side)
    try:
        opened = await asyncio.open_connection(
            "127.0.0.1", port, ssl=client_side, server_hostname="localhost"
        )
        connection = Connection(*opened)
        await connection.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await connection.response())[2] == b"x" * 300_000
        assert (await connection.response())[2] == b"y" * 3_000_000
        await connection.send(b"nonsense\r\n\r\n")
        assert (await connection.response())[0] == 405
        assert await connection.rest() == b""
        await connection.close()
    finally:
        await server.close(1)


def certificates(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return TLS contexts of the server and of its client."""
    ensure_pki(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "pki" / "apiserver.crt", folder / "pki" / "apiserver.key")
    return server, ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
