"""An HTTP/1.1 client of one server, with pooled connections, whole responses, streams and WebSockets.

A request is sent in one write. Failures are `OSError`s (see `errors`); a response is returned whatever its
status. There are no redirects, cookies or compression.

A server may close an idle connection at the moment in which it is reused. The request is then retried on a
new connection by the rule of Go's net/http: only if the connection had carried a request before, no byte of a
response arrived, and the method is safe (GET, HEAD, OPTIONS). POST, PATCH, PUT and DELETE are not retried,
because the server may have acted on them. To make that rare, the kernel is asked right before a connection is
reused whether the peer has closed it.
"""

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from argosy.wire.connection import Connection
from argosy.wire.dial import dial
from argosy.wire.errors import ProtocolError, WebSocketHandshakeError
from argosy.wire.origin import Origin
from argosy.wire.pool import Pool
from argosy.wire.response import ResponseParser
from argosy.wire.websocket import VERSION, WebSocket, accept_key

MAX_RESPONSE_BYTES = 1 << 30
MAX_ERROR_BYTES = 1 << 20
"""Size of the body of a response that rejects a WebSocket."""
HEARTBEAT_SECONDS = 30.0
"""Time between pings of a WebSocket; it is aborted if nothing arrives between two pings."""

RETRYABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class StreamedResponse:
    """A response whose body is still arriving. The server has to wait while the body is not read."""

    def __init__(self, connection: Connection, response: ResponseParser) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def chunk(self) -> bytes:
        """Return the bytes that have arrived, at least one; empty at the end."""
        return await self._connection.chunk()

    async def read(self, limit: int = MAX_RESPONSE_BYTES) -> bytes:
        """Return the rest of the body; raises ProtocolError if it is larger than the limit."""
        self._response.limit = limit
        self._response.check_size()
        await self._connection.wait_done()
        return self._response.take()


class Client:
    """A client of one server, for any number of tasks of one event loop."""

    def __init__(self, origin: Origin, headers: Sequence[tuple[str, str]] = ()) -> None:
        """Send `headers` with every request, including those for WebSockets; a name may be repeated."""
        self._origin = origin
        self._pool = Pool()
        self._prefix = origin.prefix
        fixed = [("Host", origin.name), *headers]
        if origin.proxy is not None and origin.is_forwarded:
            self._prefix = f"http://{origin.name}{origin.prefix}"
            if origin.proxy.authorization:
                fixed.append(("Proxy-Authorization", origin.proxy.authorization))
        self._fixed = " HTTP/1.1\r\n" + _header_lines(fixed)

    async def send(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        context: ssl.SSLContext | None = None,
        timeout: float | None = None,
        limit: int = MAX_RESPONSE_BYTES,
        check: Callable[[], None] | None = None,
    ) -> Response:
        """Send a request and return the whole response. `timeout` covers everything, including connecting.

        `check` is called when there is a connection, right before the request is written; if it raises,
        nothing is sent.
        """
        request = self._encode(method, target, headers, body)
        deadline = _deadline(timeout)
        connection = self._pool.acquire(context)
        while True:
            reused = connection is not None
            if connection is None:
                connection = await self._dial(context, deadline)
            response = ResponseParser(bodiless=method == "HEAD", limit=limit)
            try:
                if check is not None:
                    check()
                connection.send(request, response, whole=True, deadline=deadline)
                await connection.wait_done()
            except ConnectionError:
                if not (reused and self._may_retry(method, response)):
                    raise
            else:
                return Response(response.status, response.headers, response.take())
            finally:
                self._pool.release(connection)
            connection = None

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        *,
        context: ssl.SSLContext | None = None,
        timeout: float | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        """Send a request and wait for the head of the response; `timeout` covers the time until then.

        If the block is left before the end of the body, the connection is aborted.
        """
        request = self._encode(method, target, headers, None)
        deadline = _deadline(timeout)
        connection = self._pool.acquire(context)
        while True:
            reused = connection is not None
            if connection is None:
                connection = await self._dial(context, deadline)
            response = ResponseParser(bodiless=method == "HEAD")
            try:
                connection.send(request, response, deadline=deadline)
                try:
                    await connection.wait_head()
                except ConnectionError:
                    if not (reused and self._may_retry(method, response)):
                        raise
                else:
                    connection.clear_deadline()
                    yield StreamedResponse(connection, response)
                    return
            finally:
                self._pool.release(connection)
            connection = None

    @asynccontextmanager
    async def websocket(
        self,
        target: str,
        headers: Mapping[str, str],
        subprotocols: Sequence[str] = (),
        *,
        context: ssl.SSLContext | None = None,
        timeout: float | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> AsyncIterator[WebSocket]:
        """Open a WebSocket; raises WebSocketHandshakeError if the status of the response is not 101."""
        key = b64encode(os.urandom(16))
        request = self._encode("GET", target, {**headers, **_handshake_headers(key, subprotocols)}, None)
        deadline = _deadline(timeout)
        connection = await self._dial(context, deadline)
        try:
            response = ResponseParser(upgrade=True, limit=MAX_ERROR_BYTES)
            connection.send(request, response, deadline=deadline)
            await connection.wait_head()
            if response.status != 101:
                await connection.wait_done()
                raise WebSocketHandshakeError(response.status, response.headers, response.take())
            connection.clear_deadline()
            subprotocol = _chosen_subprotocol(response, key, subprotocols)
            socket = connection.hand_over(
                lambda transport: WebSocket(
                    transport,
                    client=True,
                    subprotocol=subprotocol,
                    heartbeat_seconds=heartbeat_seconds,
                    on_lost=lambda: connection.connection_lost(None),
                )
            )
            try:
                yield socket
            finally:
                await socket.close()
        finally:
            self._pool.release(connection)

    async def close(self) -> None:
        await self._pool.close()

    async def _dial(self, context: ssl.SSLContext | None, deadline: float | None) -> Connection:
        async with asyncio.timeout_at(deadline):
            connection = await dial(self._origin, context)
        self._pool.add(connection)
        return connection

    def _may_retry(self, method: str, response: ResponseParser) -> bool:
        return method in RETRYABLE_METHODS and not response.started and not self._pool.closed

    def _encode(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """Return the whole request; raises ValueError for line breaks and spaces that would split it."""
        lines = _header_lines(headers.items())
        if " " in target or "\n" in target or "\r" in target:
            raise ValueError(f"invalid target {target!r}: must be percent-encoded")
        head = f"{method} {self._prefix}{target}{self._fixed}{lines}"
        if body is not None:
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        empty = "Content-Length: 0\r\n" if method in ("POST", "PUT", "PATCH") else ""
        return f"{head}{empty}\r\n".encode()


def _header_lines(headers: Collection[tuple[str, str]]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("a request header contains a line break")
    return lines


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


def _handshake_headers(key: bytes, subprotocols: Sequence[str]) -> dict[str, str]:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": VERSION,
        "Sec-WebSocket-Key": key.decode(),
    }
    if subprotocols:
        headers["Sec-WebSocket-Protocol"] = ", ".join(subprotocols)
    return headers


def _chosen_subprotocol(response: ResponseParser, key: bytes, offered: Sequence[str]) -> str:
    """Return the subprotocol that the server chose, empty for none; raises ProtocolError if it is invalid."""
    headers = response.headers
    if headers.get("Sec-WebSocket-Accept", "").encode() != accept_key(key):
        raise ProtocolError("invalid WebSocket handshake: wrong Sec-WebSocket-Accept")
    chosen = headers.get("Sec-WebSocket-Protocol", "")
    if (chosen and chosen not in offered) or headers.get("Sec-WebSocket-Extensions"):
        raise ProtocolError(f"the server chose what was not offered: {chosen or 'an extension'}")
    return chosen
