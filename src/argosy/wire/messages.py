"""What a handler is given and what it gives back: a request, and a response or an upgrade to a WebSocket.

Nothing of a request is decoded before somebody asks for it. The head of an answer is put together once for
each kind of answer, because most answers differ in their length only.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from http import HTTPStatus
from typing import TypeAlias
from urllib.parse import parse_qs, unquote

from argosy.wire.websocket import WebSocket, accept_key, offered_subprotocols

Headers: TypeAlias = list[tuple[bytes, bytes]]

JSON = b"application/json"
PLAIN = b"text/plain; charset=utf-8"


class DisconnectedError(Exception):
    """The client went away before its request was whole."""


class TooLargeError(Exception):
    """The body of a request is larger than its handler takes."""


class HttpError(Exception):
    """Raised instead of an answer: this status, and the text that says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Request:
    """One request; names of headers are in lower case. It is handled from the end of its head on."""

    __slots__ = (
        "_ask",
        "_complete",
        "_declared",
        "_failed",
        "_fields",
        "_parts",
        "_query",
        "_size",
        "_waiter",
        "keep_alive",
        "method",
        "raw_headers",
        "raw_path",
        "raw_query",
        "streamable",
        "wants_websocket",
    )

    def __init__(self, method: str, raw_path: str, raw_query: str, raw_headers: Headers) -> None:
        self.method = method
        self.raw_path = raw_path
        self.raw_query = raw_query
        self.raw_headers = raw_headers
        self.keep_alive = True
        self.streamable = True
        """Whether the client understands an answer in chunks; else its end is the end of the connection."""
        self.wants_websocket = False
        self._fields: dict[bytes, bytes] | None = None
        self._query: dict[str, list[str]] | None = None
        self._declared = 0
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = self._failed = False
        self._waiter: asyncio.Future[None] | None = None
        self._ask: Callable[[], None] | None = None

    @property
    def path(self) -> str:
        return unquote(self.raw_path) if "%" in self.raw_path else self.raw_path

    @property
    def headers(self) -> dict[bytes, bytes]:
        """By name; of a header that is there twice, the last."""
        if self._fields is None:
            self._fields = dict(self.raw_headers)
        return self._fields

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def query(self) -> dict[str, list[str]]:
        if self._query is None:
            self._query = parse_qs(self.raw_query, keep_blank_values=True) if self.raw_query else {}
        return self._query

    def parameter(self, name: str, default: str = "") -> str:
        """The first value of a parameter of the query."""
        values = self.query.get(name)
        return values[0] if values else default

    @property
    def subprotocols(self) -> list[str]:
        """What a client that wants a WebSocket offers."""
        return offered_subprotocols(self.header(b"sec-websocket-protocol"))

    async def body(self, limit: int) -> bytes:
        """The whole body. One beyond the limit raises TooLargeError, as soon as that is known."""
        while self._declared <= limit and self._size <= limit:
            if self._complete:
                return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            if self._failed:
                raise DisconnectedError
            if self._ask is not None:
                self._ask()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        raise TooLargeError(f"the body is larger than {limit} bytes")

    @property
    def declared(self) -> int:
        """The length of the body as the head says it, or 0."""
        return self._declared

    @property
    def complete(self) -> bool:
        """Whether all of the request has arrived."""
        return self._complete

    def expect(self, declared: int, ask: Callable[[], None]) -> None:
        """A body of so many bytes will come, or 0 if it does not say; `ask` is called when it is wanted."""
        self._declared, self._ask = declared, ask

    def feed(self, part: bytes) -> int:
        """Take a part of the body; how much is waiting with nobody asking for it."""
        self._parts.append(part)
        self._size += len(part)
        if self._waiter is None:
            return self._size
        self._wake()
        return 0

    def finish(self) -> None:
        self._complete = True
        self._wake()

    def fail(self) -> None:
        """No more of the body will come."""
        self._failed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Response:
    """An answer: all of it, or a stream that is sent until it ends or the client goes."""

    __slots__ = ("body", "close", "content_type", "headers", "status")

    def __init__(
        self,
        body: bytes | AsyncIterator[bytes] = b"",
        status: int = 200,
        content_type: bytes = JSON,
        headers: Headers | None = None,
        *,
        close: bool = False,
    ) -> None:
        self.body = body
        self.status = status
        self.content_type = content_type
        self.headers: Headers = [] if headers is None else headers
        self.close = close
        """Whether the connection ends with this answer."""


class Upgrade:
    """Yes to a WebSocket: shake hands, then converse. The socket is closed when that returns."""

    __slots__ = ("converse", "subprotocol")

    def __init__(self, subprotocol: str, converse: Callable[[WebSocket], Awaitable[None]]) -> None:
        self.subprotocol = subprotocol
        self.converse = converse


HandlerResult: TypeAlias = Response | Upgrade
Handler: TypeAlias = Callable[[Request], Awaitable[HandlerResult]]


def text_response(status: int, text: str) -> Response:
    return Response(text.encode(), status, PLAIN)


def error_response(status: int, why: str) -> Response:
    """What a client is told that did not send a request, unless the server has other words for it."""
    return text_response(status, f"{status} {HTTPStatus(status).phrase}: {why}\n")


def head(response: Response, length: int | None, *, chunked: bool, close: bool) -> bytes:
    """The head of an answer with a body of this length, or one that ends by itself."""
    headers = tuple(response.headers)
    begin = _head_begin(response.status, response.content_type, headers, close)
    if length is None or response.status == HTTPStatus.NO_CONTENT:
        return begin + (b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n")
    return b"%bcontent-length: %d\r\n\r\n" % (begin, length)


def handshake(request: Request, subprotocol: str) -> bytes:
    """The head that accepts a WebSocket."""
    accept = accept_key(request.headers[b"sec-websocket-key"])
    chosen = f"sec-websocket-protocol: {subprotocol}\r\n" if subprotocol else ""
    begin = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
    return b"%bsec-websocket-accept: %b\r\n%b\r\n" % (begin, accept, chosen.encode("latin-1"))


@lru_cache(maxsize=256)
def _head_begin(
    status: int, content_type: bytes, headers: tuple[tuple[bytes, bytes], ...], close: bool
) -> bytes:
    lines = [f"HTTP/1.1 {status} {_phrase(status)}".encode()]
    if status != HTTPStatus.NO_CONTENT:
        lines.append(b"content-type: " + content_type)
    lines += [b"%b: %b" % pair for pair in headers]
    if close:
        lines.append(b"connection: close")
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise ValueError("a header of an answer has a line break in it")
    return b"\r\n".join([*lines, b""])


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
