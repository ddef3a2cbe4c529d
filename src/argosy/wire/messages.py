"""Requests and responses of a server: a handler gets a request, and returns a response or an upgrade.

The parts of a request are decoded when they are read. The heads of responses are cached, because most
responses differ in their length only.
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
    """The client disconnected before its request was complete."""


class TooLargeError(Exception):
    """The body of a request is larger than its handler accepts."""


class HttpError(Exception):
    """Raised instead of returning a response with this status and message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Request:
    """A request, which is handled as soon as its head is complete. Header names are in lower case."""

    __slots__ = (
        "_failed",
        "_fields",
        "_on_body_wanted",
        "_parts",
        "_query",
        "_size",
        "_waiter",
        "accepts_chunks",
        "content_length",
        "is_complete",
        "keep_alive",
        "method",
        "raw_headers",
        "raw_path",
        "raw_query",
        "wants_websocket",
    )

    def __init__(self, method: str, raw_path: str, raw_query: str, raw_headers: Headers) -> None:
        self.method = method
        self.raw_path = raw_path
        self.raw_query = raw_query
        self.raw_headers = raw_headers
        self.keep_alive = True
        self.accepts_chunks = True
        """Whether a response may be sent in chunks; else the end of the connection ends it."""
        self.wants_websocket = False
        self.content_length = 0
        """The length of the body according to the head; 0 if the head has none."""
        self.is_complete = False
        """Whether the whole request has arrived."""
        self._fields: dict[bytes, bytes] | None = None
        self._query: dict[str, list[str]] | None = None
        self._parts: list[bytes] = []
        self._size = 0
        self._failed = False
        self._waiter: asyncio.Future[None] | None = None
        self._on_body_wanted: Callable[[], None] | None = None

    @property
    def path(self) -> str:
        return unquote(self.raw_path) if "%" in self.raw_path else self.raw_path

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Headers by name; the last one of those with the same name."""
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
        """Return the first value of a query parameter."""
        values = self.query.get(name)
        return values[0] if values else default

    @property
    def subprotocols(self) -> list[str]:
        """The subprotocols that the client of a WebSocket offers."""
        return offered_subprotocols(self.header(b"sec-websocket-protocol"))

    async def body(self, limit: int) -> bytes:
        """Return the whole body; raises TooLargeError as soon as it is known to exceed the limit."""
        while self.content_length <= limit and self._size <= limit:
            if self.is_complete:
                return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            if self._failed:
                raise DisconnectedError
            if self._on_body_wanted is not None:
                self._on_body_wanted()
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        raise TooLargeError(f"the body is larger than {limit} bytes")

    # Called by the parser.

    def expect_body(self, content_length: int, on_body_wanted: Callable[[], None]) -> None:
        """Announce a body; `on_body_wanted` is called when the handler reads it."""
        self.content_length, self._on_body_wanted = content_length, on_body_wanted

    def feed(self, part: bytes) -> int:
        """Add a part of the body; return how many bytes are buffered while no handler reads them."""
        self._parts.append(part)
        self._size += len(part)
        if self._waiter is None:
            return self._size
        self._wake()
        return 0

    def finish(self) -> None:
        self.is_complete = True
        self._wake()

    def fail(self) -> None:
        """Make reading the body raise DisconnectedError, because the rest of it will not arrive."""
        self._failed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Response:
    """A response: a whole body, or a stream that is sent until it ends or the client disconnects."""

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
        """Whether to close the connection after this response."""


class Upgrade:
    """Accepts a WebSocket. After the handshake `serve` is called; the socket is closed when it returns."""

    __slots__ = ("serve", "subprotocol")

    def __init__(self, subprotocol: str, serve: Callable[[WebSocket], Awaitable[None]]) -> None:
        self.subprotocol = subprotocol
        self.serve = serve


HandlerResult: TypeAlias = Response | Upgrade
Handler: TypeAlias = Callable[[Request], Awaitable[HandlerResult]]


def text_response(status: int, text: str) -> Response:
    return Response(text.encode(), status, PLAIN)


def error_response(status: int, message: str) -> Response:
    """Return the default response to an invalid request."""
    return text_response(status, f"{status} {HTTPStatus(status).phrase}: {message}\n")


def head(response: Response, length: int | None, *, chunked: bool, close: bool) -> bytes:
    """Return the head of a response with a body of this length, or of a stream if that is None."""
    headers = tuple(response.headers)
    begin = _head_begin(response.status, response.content_type, headers, close)
    if length is None or response.status == HTTPStatus.NO_CONTENT:
        return begin + (b"transfer-encoding: chunked\r\n\r\n" if chunked else b"\r\n")
    return b"%bcontent-length: %d\r\n\r\n" % (begin, length)


def handshake(request: Request, subprotocol: str) -> bytes:
    """Return the head that accepts a WebSocket."""
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
        raise ValueError("a response header contains a line break")
    return b"\r\n".join([*lines, b""])


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"
