"""The server against a plain socket that writes exact bytes."""

import asyncio
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


class Wire:
    """A client's end of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """The next answer: its status, its headers and its body."""
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
    """A server and the way to it."""

    def __init__(self, server: Server, port: int) -> None:
        self.server, self.port = server, port
        self.wires: list[Wire] = []

    async def connect(self) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port))
        self.wires.append(wire)
        return wire

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        wire = await self.connect()
        await wire.send(data)
        return await wire.answer()


@asynccontextmanager
async def serving(handler: Handler, limits: RequestLimits | None = None) -> AsyncIterator[Site]:
    server = Server(handler, limits=limits)
    site = Site(server, await server.listen_tcp("127.0.0.1", 0))
    try:
        yield site
    finally:
        await server.close(1)
        for wire in site.wires:
            await wire.close()


async def echo(request: Request) -> Response:
    body = await request.body(1 << 20)
    told = f"{request.method} {request.path} {sorted(request.query.items())} ".encode()
    return Response(told + body, content_type=b"text/plain")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


ORDINARY = {
    "a plain GET": (b"GET /a HTTP/1.1\r\n" + HOST + b"\r\n", b"GET /a [] "),
    "a query, and an escaped path": (
        b"GET /a%20b?c=d&c=e&f HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a b [('c', ['d', 'e']), ('f', [''])] ",
    ),
    "a body with its length": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\nabc",
        b"POST / [] abc",
    ),
    "a body in chunks, with extensions and trailers": (
        b"POST / HTTP/1.1\r\n"
        + HOST
        + b"Transfer-Encoding: Chunked\r\n\r\n1;x=y\r\na\r\n2\r\nbc\r\n0\r\nEnd: 1\r\n\r\n",
        b"POST / [] abc",
    ),
    "an empty line before the request": (b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n", b"GET / [] "),
    "a target as for a proxy": (
        b"GET http://here/a?b=c HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET /a [('b', ['c'])] ",
    ),
    "a target as for a proxy without a path": (
        b"GET http://here HTTP/1.1\r\n" + HOST + b"\r\n",
        b"GET / [] ",
    ),
    "an upgrade to a protocol that is not spoken here": (
        b"GET /a HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET /a [] ",
    ),
}


@pytest.mark.parametrize("sentence", ORDINARY)
async def test_what_is_understood(sentence: str) -> None:
    sent, wanted = ORDINARY[sentence]
    async with serving(echo) as site:
        status, headers, body = await site.ask(sent)
    assert (status, body) == (200, wanted)
    assert headers["content-length"] == str(len(wanted))
    assert headers["content-type"] == "text/plain"


CHUNKED = b"Transfer-Encoding: chunked\r\n"
REFUSED = {
    "a length beside chunks": (400, HOST + b"Content-Length: 5\r\n" + CHUNKED + b"\r\n0\r\n\r\n"),
    "chunks beside a length": (400, HOST + CHUNKED + b"Content-Length: 5\r\n\r\n0\r\n\r\n"),
    "two lengths": (400, HOST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc"),
    "two lengths that agree": (400, HOST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    "two lengths in one line": (400, HOST + b"Content-Length: 3, 3\r\n\r\nabc"),
    "a length with a sign": (400, HOST + b"Content-Length: +3\r\n\r\nabc"),
    "a negative length": (400, HOST + b"Content-Length: -3\r\n\r\nabc"),
    "a length in hexadecimal": (400, HOST + b"Content-Length: 0x3\r\n\r\nabc"),
    "another transfer encoding": (501, HOST + b"Transfer-Encoding: gzip\r\n\r\nabc"),
    "another transfer encoding before chunks": (
        501,
        HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ),
    "two transfer encodings": (400, HOST + CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n"),
    "an encoding that only looks like chunks": (501, HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    "a space before the colon": (400, HOST + b"Content-Length : 3\r\n\r\nabc"),
    "a line that goes on in the next": (400, HOST + b"A: b\r\n c\r\n\r\n"),
    "lines that end in a line feed alone": (400, b"Host: here\nA: b\n\n"),
    "a NUL in a header": (400, HOST + b"A: b\0c\r\n\r\n"),
    "a header without a name": (400, HOST + b": b\r\n\r\n"),
    "no host": (400, b"A: b\r\n\r\n"),
    "two hosts": (400, HOST + b"Host: there\r\n\r\n"),
    "a chunk longer than it says": (400, HOST + CHUNKED + b"\r\n2\r\nabc\r\n0\r\n\r\n"),
    "a chunk of no number": (400, HOST + CHUNKED + b"\r\nxy\r\n"),
    "a chunk larger than there are numbers": (400, HOST + CHUNKED + b"\r\n" + b"f" * 17 + b"\r\n"),
    "an expectation nobody knows": (417, HOST + b"Content-Length: 1\r\nExpect: more\r\n\r\na"),
    "an upgrade with a body": (
        400,
        HOST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    ),
    "a WebSocket without a key": (
        400,
        HOST + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    ),
    "a head with too many lines": (431, HOST + b"A: b\r\n" * 300 + b"\r\n"),
    "a head that is too large": (431, HOST + b"A: " + b"b" * 70_000 + b"\r\n\r\n"),
}
REFUSED_FIRST_LINES = {
    "a method that does not exist": (405, b"FROB / HTTP/1.1\r\n"),
    "a method in small letters": (405, b"get / HTTP/1.1\r\n"),
    "a proxy's method": (405, b"CONNECT here:80 HTTP/1.1\r\n"),
    "no version": (505, b"POST /\r\n"),
    "a version to come": (505, b"POST / HTTP/2.0\r\n"),
    "a target that is not a path": (400, b"OPTIONS * HTTP/1.1\r\n"),
    "a control character in the target": (400, b"POST /\x01 HTTP/1.1\r\n"),
    "no request at all": (405, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "chunks in HTTP/1.0": (400, b"POST / HTTP/1.0\r\n" + CHUNKED),
    "a target that is too long": (431, b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n"),
}
REFUSALS = {
    **{sentence: (status, b"POST / HTTP/1.1\r\n" + rest) for sentence, (status, rest) in REFUSED.items()},
    **{sentence: (status, line + HOST + b"\r\n") for sentence, (status, line) in REFUSED_FIRST_LINES.items()},
}


@pytest.mark.parametrize("sentence", REFUSALS)
async def test_what_is_refused_ends_the_connection_and_nothing_behind_it_is_heard(sentence: str) -> None:
    """Such shapes hide a second request from one of two servers in a row."""
    status, sent = REFUSALS[sentence]
    handled: list[str] = []

    async def handler(request: Request) -> Response:
        handled.append(request.path)
        return await echo(request)

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(sent + b"GET /smuggled HTTP/1.1\r\n" + HOST + b"\r\n")
        got, headers, _ = await wire.answer()
        assert got == status
        assert headers["connection"] == "close"
        assert await wire.rest() == b""
        assert "/smuggled" not in handled
        assert (await site.ask(ORDINARY["a plain GET"][0]))[0] == 200


async def test_a_head_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    async with serving(echo) as site:
        for start in (b"GET /", b"GET / HTTP/1.1\r\nA: ", b"GET / HTTP/1.1\r\nA", b"POST / HTTP/1.1\r\n"):
            wire = await site.connect()
            sending = asyncio.create_task(
                _endless(wire, start, b"a: b\r\n" if start.endswith(b"\n") else b"a")
            )
            assert (await wire.answer())[0] == 431
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def test_a_body_of_framing_alone_is_refused() -> None:
    async with serving(echo) as site:
        for start in (b"1;", b"0\r\nA: "):
            wire = await site.connect()
            head = b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n"
            sending = asyncio.create_task(_endless(wire, head + start, b"a"))
            assert (await wire.answer())[0] == 400
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _endless(wire: Wire, start: bytes, more: bytes) -> None:
    await wire.send(start)
    while True:
        await wire.send(more * 1000)


SPLIT = (
    b"POST /a?b=c HTTP/1.1\r\nHost: here\r\nContent-Length: 4\r\n\r\nbody"
    b"GET /second HTTP/1.1\r\nHost: here\r\nX: y\r\n\r\n"
    b"PUT /third HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
)
SPLIT_ANSWERS = [b"POST /a [('b', ['c'])] body", b"GET /second [] ", b"PUT /third [] abc"]


async def test_requests_may_be_split_at_every_byte() -> None:
    async with serving(echo) as site:
        for cut in range(1, len(SPLIT)):
            assert await _split(site, [cut]) == SPLIT_ANSWERS, cut
        assert await _split(site, list(range(len(SPLIT)))) == SPLIT_ANSWERS


@settings(deadline=None, max_examples=40)
@given(cuts=st.lists(st.integers(0, len(SPLIT)), max_size=12))
def test_requests_may_be_split_anywhere_however_often(cuts: list[int]) -> None:
    async def check() -> None:
        async with serving(echo) as site:
            assert await _split(site, sorted(cuts)) == SPLIT_ANSWERS

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(check())


async def _split(site: Site, cuts: list[int]) -> list[bytes]:
    """Send the requests in pieces, each a packet of its own, and return the bodies of the answers."""
    wire = await site.connect()
    wire.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for start, stop in zip([0, *cuts], [*cuts, len(SPLIT)], strict=True):
        await wire.send(SPLIT[start:stop])
        await asyncio.sleep(0)
    bodies = [(await wire.answer())[2] for _ in SPLIT_ANSWERS]
    await wire.close()
    return bodies


async def test_a_connection_is_kept_and_used_again() -> None:
    async with serving(echo) as site:
        wire = await site.connect()
        for number in range(3):
            await wire.send(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n")
            assert (await wire.answer())[2] == b"GET /%d [] " % number
        assert site.server.connections == 1


async def test_pipelined_requests_are_answered_in_order_though_the_first_takes_longest() -> None:
    running: list[str] = []
    most: list[int] = []

    async def handler(request: Request) -> Response:
        running.append(request.path)
        most.append(len(running))
        await asyncio.sleep(0.05 if request.path == "/0" else 0)
        running.remove(request.path)
        return Response(request.path.encode())

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(b"".join(b"GET /%d HTTP/1.1\r\n" % number + HOST + b"\r\n" for number in range(100)))
        assert [(await wire.answer())[2] for _ in range(100)] == [b"/%d" % number for number in range(100)]
    assert max(most) == 1


async def test_a_client_that_pipelines_and_reads_nothing_has_to_wait() -> None:
    handled = 0

    async def handler(_: Request) -> Response:
        nonlocal handled
        handled += 1
        return Response(b"x" * 100_000)

    async with serving(handler) as site:
        wire = await site.connect()
        request = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"
        sending = asyncio.create_task(wire.send(request * 100_000))
        await asyncio.wait([sending], timeout=0.5)
        assert handled < 1000
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        wire.writer.transport.abort()


async def test_a_client_that_pipelines_more_than_is_answered_has_to_wait() -> None:
    go_on = asyncio.Event()

    async def handler(_: Request) -> Response:
        await go_on.wait()
        return Response()

    async with serving(handler) as site:
        wire = await site.connect()
        request = b"GET / HTTP/1.1\r\n" + HOST + b"A: " + b"b" * 1000 + b"\r\n\r\n"
        sending = asyncio.create_task(wire.send(request * 20_000))
        _, pending = await asyncio.wait([sending], timeout=0.5)
        assert pending, "20 MB were read with nothing answered"
        go_on.set()
        for _ in range(100):
            assert (await wire.answer())[0] == 200
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        wire.writer.transport.abort()


CLOSING = {
    "a client that says it is the last": b"GET / HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n",
    "a client of HTTP/1.0": b"GET / HTTP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("sentence", CLOSING)
async def test_the_last_request_of_a_connection(sentence: str) -> None:
    async with serving(echo) as site:
        wire = await site.connect()
        await wire.send(CLOSING[sentence] + b"GET /more HTTP/1.1\r\n" + HOST + b"\r\n")
        status, headers, body = await wire.answer()
        assert (status, headers["connection"], body) == (200, "close", b"GET / [] ")
        assert await wire.rest() == b""


async def test_a_client_that_is_refused_can_read_why_though_it_is_still_sending() -> None:
    """A connection closed with something unread is reset, and the answer with it."""
    async with serving(echo) as site:
        wire = await site.connect()
        await wire.send(b"nonsense\r\n\r\n")
        assert (await wire.answer())[0] == 405
        assert await wire.rest() == b""
        for _ in range(3):
            await wire.send(b"and more of it\r\n")
            await asyncio.sleep(0.02)


async def test_a_client_that_has_closed_its_half_still_gets_its_answer() -> None:
    async def handler(_: Request) -> Response:
        await asyncio.sleep(0.05)
        return Response(b"here it is")

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(ORDINARY["a plain GET"][0])
        wire.writer.write_eof()
        assert (await wire.answer())[2] == b"here it is"
        assert await wire.rest() == b""


async def test_a_head_is_answered_without_a_body_and_so_is_204() -> None:
    async def handler(request: Request) -> Response:
        return Response(b"", 204) if request.path == "/none" else Response(b"body")

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(b"HEAD / HTTP/1.1\r\n" + HOST + b"\r\nGET /none HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await wire.answer("HEAD"))[1]["content-length"] == "4"
        status, headers, _ = await wire.answer()
        assert (status, headers) == (204, {})
        await wire.send(b"GET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await wire.answer())[2] == b"body"


async def test_a_body_beyond_the_bound_is_refused_without_reading_it() -> None:
    async def handler(request: Request) -> Response:
        await request.body(1000)
        return Response()

    async with serving(handler) as site:
        head = b"POST / HTTP/1.1\r\n" + HOST
        assert (await site.ask(head + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001))[0] == 413
        status, headers, _ = await site.ask(head + b"Content-Length: 100000000\r\n\r\n")
        assert (status, headers["connection"]) == (413, "close")
        wire = await site.connect()
        await wire.send(head + CHUNKED + b"\r\n" + b"100\r\n%b\r\n" % (b"x" * 256) * 4)
        assert (await wire.answer())[0] == 413


async def test_a_client_that_waits_for_leave_to_send_is_given_it_when_the_body_is_wanted() -> None:
    async with serving(echo) as site:
        wire = await site.connect()
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        async with asyncio.timeout(60):
            assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await wire.send(b"abc")
        assert (await wire.answer())[2] == b"POST / [] abc"


async def test_a_client_that_waits_for_leave_to_send_is_told_no_at_once() -> None:
    async def handler(_: Request) -> Response:
        return Response(b"no", 403)

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
        status, headers, _ = await wire.answer()
        assert (status, headers["connection"]) == (403, "close")


async def test_a_short_body_that_nobody_wanted_does_not_cost_the_connection() -> None:
    async def handler(_: Request) -> Response:
        return Response(b"no", 401)

    async with serving(handler) as site:
        wire = await site.connect()
        for _ in range(2):
            await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 3\r\n\r\n")
            await asyncio.sleep(0.01)
            await wire.send(b"abc")
            status, headers, _ = await wire.answer()
            assert (status, headers.get("connection")) == (401, None)


async def test_a_body_waits_with_the_client_until_it_is_wanted() -> None:
    wanted = asyncio.Event()

    async def handler(request: Request) -> Response:
        await wanted.wait()
        return Response(str(len(await request.body(1 << 30))).encode())

    async with serving(handler) as site:
        wire = await site.connect()
        size = 50_000_000
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % size)
        sending = asyncio.create_task(wire.send(b"x" * size))
        _, pending = await asyncio.wait([sending], timeout=0.3)
        assert pending
        wanted.set()
        assert (await wire.answer())[2] == str(size).encode()
        await sending


async def test_a_client_that_goes_in_the_middle_of_its_body_ends_the_waiting_for_it() -> None:
    ended = asyncio.Event()

    async def handler(request: Request) -> Response:
        try:
            await request.body(1000)
        finally:
            ended.set()
        return Response()

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc")
        await wire.close()
        async with asyncio.timeout(60):
            await ended.wait()
        await until(lambda: site.server.connections == 0)


async def test_a_handler_that_fails_is_a_500_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(request: Request) -> Response:
        if request.path == "/bad":
            raise ZeroDivisionError("oh")
        return Response(b"fine")

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(b"GET /bad HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n")
        status, _, body = await wire.answer()
        assert (status, b"oh" in body) == (500, False)
        assert (await wire.answer())[2] == b"fine"
    assert "ZeroDivisionError: oh" in caplog.text
    assert "GET /bad failed" in caplog.text


async def test_a_line_break_does_not_get_into_the_head_of_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_: Request) -> Response:
        return Response(b"", headers=[(b"a", b"b\r\nset-cookie: c")])

    async with serving(handler) as site:
        status, headers, _ = await site.ask(ORDINARY["a plain GET"][0])
    assert status == 500
    assert "set-cookie" not in headers
    assert "line break" in caplog.text


async def test_a_stream_comes_in_chunks_and_the_connection_goes_on() -> None:
    async def handler(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b""
            yield b"one"
            await asyncio.sleep(0.01)
            yield b"two" * 1000

        return Response(pieces(), content_type=b"text/plain")

    async with serving(handler) as site:
        wire = await site.connect()
        for _ in range(2):
            await wire.send(ORDINARY["a plain GET"][0])
            status, headers, body = await wire.answer()
            assert (status, body) == (200, b"one" + b"two" * 1000)
            assert "content-length" not in headers


async def test_a_stream_to_an_old_client_ends_with_the_connection() -> None:
    async def handler(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            yield b"two"

        return Response(pieces())

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(b"GET / HTTP/1.0\r\n\r\n")
        head, _, body = (await wire.rest()).partition(b"\r\n\r\n")
        assert body == b"onetwo"
        assert b"chunked" not in head


class Endless:
    """A stream that never ends, and what became of it."""

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


@pytest.mark.parametrize("how", ["closes", "resets", "closes its half"])
async def test_a_stream_ends_when_its_client_goes(how: str) -> None:
    stream = Endless()
    async with serving(stream) as site:
        wire = await site.connect()
        await wire.send(ORDINARY["a plain GET"][0])
        await until(lambda: stream.sent > 2)
        if how == "closes":
            await wire.close()
        elif how == "resets":
            wire.writer.transport.abort()
        else:
            wire.writer.write_eof()
        async with asyncio.timeout(60):
            await stream.ended.wait()
        await until(lambda: site.server.connections == 0)


async def test_a_stream_waits_for_a_slow_client() -> None:
    stream = Endless(b"x" * 100_000, pause=0)
    async with serving(stream) as site:
        wire = await site.connect()
        await wire.send(ORDINARY["a plain GET"][0])
        seen = -1
        while stream.sent != seen:
            seen = stream.sent
            await asyncio.sleep(0.1)
        assert seen < 500
        for _ in range(100):
            await wire.reader.readexactly(100_000)
        await until(lambda: stream.sent > seen)


async def test_a_stream_that_fails_does_not_look_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def handler(_: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"one"
            raise ZeroDivisionError

        return Response(pieces())

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(ORDINARY["a plain GET"][0])
        try:
            rest = await wire.rest()
        except ConnectionResetError:
            rest = b""
        assert not rest.endswith(b"0\r\n\r\n")
    assert "the stream of GET /a failed" in caplog.text


IMPATIENT = RequestLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2)
SLOW = {
    "a client that says nothing": b"",
    "a client that stops in its head": b"GET / HTTP/1.1\r\nHost: h",
    "a client that stops in its body": b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 10\r\n\r\nabc",
}


@pytest.mark.parametrize("sentence", SLOW)
async def test_a_client_that_does_not_go_on_is_dropped(sentence: str) -> None:
    async with serving(echo, IMPATIENT) as site:
        wire = await site.connect()
        await wire.send(SLOW[sentence])
        try:
            assert await wire.rest() == b""
        except ConnectionResetError:
            pass
        await until(lambda: site.server.connections == 0)


async def test_a_client_that_sends_a_byte_now_and_then_is_dropped() -> None:
    async with serving(echo, RequestLimits(head_seconds=0.3)) as site:
        wire = await site.connect()
        with pytest.raises(ConnectionError):
            for byte in b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 100:
                await wire.send(bytes([byte]))
                await asyncio.sleep(0.02)


async def test_a_connection_nobody_uses_is_closed() -> None:
    async with serving(echo, RequestLimits(idle_seconds=0.2, head_seconds=1.0)) as site:
        wire = await site.connect()
        await wire.send(ORDINARY["a plain GET"][0])
        assert (await wire.answer())[0] == 200
        try:
            assert await wire.rest() == b""
        except ConnectionResetError:
            pass


async def test_a_handler_may_take_longer_than_any_client() -> None:
    async def handler(_: Request) -> Response:
        await asyncio.sleep(0.6)
        return Response(b"at last")

    async with serving(handler, IMPATIENT) as site:
        assert (await site.ask(ORDINARY["a plain GET"][0]))[2] == b"at last"


async def test_an_end_finishes_what_is_being_answered_and_closes_what_is_idle() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(request: Request) -> Response:
        if request.path == "/slow":
            begun.set()
            await go_on.wait()
        return Response(b"done")

    async with serving(handler) as site:
        idle, busy = await site.connect(), await site.connect()
        await idle.send(ORDINARY["a plain GET"][0])
        await idle.answer()
        await busy.send(b"GET /slow HTTP/1.1\r\n" + HOST + b"\r\n")
        await begun.wait()
        closing = asyncio.create_task(site.server.close(5))
        assert await idle.rest() == b""
        with pytest.raises(ConnectionError):
            await site.connect()
        go_on.set()
        status, headers, body = await busy.answer()
        assert (status, headers["connection"], body) == (200, "close", b"done")
        await asyncio.wait_for(closing, 60)


async def test_an_end_waits_no_longer_than_its_grace_and_ends_streams_at_once() -> None:
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


async def test_a_websocket_is_agreed_upon_and_talks() -> None:
    async def handler(request: Request) -> Upgrade:
        async def converse(socket: WebSocket) -> None:
            while (message := await socket.receive()) is not None:
                assert isinstance(message, bytes)
                await socket.send(message.upper())

        assert request.wants_websocket
        return Upgrade(request.subprotocols[1], converse)

    async with serving(handler) as site:
        wire = await site.connect()
        offered = b"Sec-WebSocket-Protocol: v5.channel.k8s.io, v4.channel.k8s.io\r\n\r\n"
        frame = b"\x82\x83\0\0\0\0abc"
        await wire.send(WEBSOCKET + offered + frame)
        status, headers, _ = await wire.answer()
        assert status == 101
        assert headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        assert headers["sec-websocket-protocol"] == "v4.channel.k8s.io"
        assert await wire.reader.readexactly(5) == b"\x82\x03ABC"
        await wire.send(frame)
        assert await wire.reader.readexactly(5) == b"\x82\x03ABC"
        await wire.send(b"\x88\x82\0\0\0\0\x03\xe8")
        assert await wire.rest() == b"\x88\x02\x03\xe8"
        await until(lambda: site.server.connections == 0)


async def test_a_websocket_may_be_refused() -> None:
    async def handler(_: Request) -> Response:
        return Response(b"no", 403)

    async with serving(handler) as site:
        status, headers, body = await site.ask(WEBSOCKET + b"\r\n")
        assert (status, headers["connection"], body) == (403, "close", b"no")


async def test_a_websocket_is_told_when_the_server_ends() -> None:
    async def handler(_: Request) -> Upgrade:
        async def converse(socket: WebSocket) -> None:
            await socket.receive()

        return Upgrade("", converse)

    async with serving(handler) as site:
        wire = await site.connect()
        await wire.send(WEBSOCKET + b"\r\n")
        assert (await wire.answer())[0] == 101
        closing = asyncio.create_task(site.server.close(2))
        async with asyncio.timeout(60):
            assert await wire.reader.readexactly(4) == b"\x88\x02\x03\xe9"
            await wire.close()
            await closing


async def test_on_a_unix_socket_that_is_nobody_elses(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    path.touch()  # as left behind by a process that was killed
    server = Server(echo)
    await server.listen_unix(path)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        wire = Wire(*await asyncio.open_unix_connection(str(path)))
        await wire.send(ORDINARY["a plain GET"][0])
        assert (await wire.answer())[2] == b"GET /a [] "
        await wire.close()
    finally:
        await server.close(1)


async def test_over_tls_with_a_stream_and_a_large_answer(tmp_path: Path) -> None:
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
        wire = Wire(*opened)
        await wire.send(b"GET /stream HTTP/1.1\r\n" + HOST + b"\r\nGET / HTTP/1.1\r\n" + HOST + b"\r\n")
        assert (await wire.answer())[2] == b"x" * 300_000
        assert (await wire.answer())[2] == b"y" * 3_000_000
        await wire.send(b"nonsense\r\n\r\n")
        assert (await wire.answer())[0] == 405
        assert await wire.rest() == b""
        await wire.close()
    finally:
        await server.close(1)


def certificates(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """TLS for both sides, with a certificate of our own making."""
    ensure_pki(folder)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "pki" / "apiserver.crt", folder / "pki" / "apiserver.key")
    return server, ssl.create_default_context(cafile=str(folder / "pki" / "ca.crt"))
