"""An HTTP/1.1 client of one server: pooled connections, whole answers, streams and WebSockets.

A request goes out in one write. Failures are `OSError`s (see `failures`); an answer, whatever its status, is
returned. There are no redirects, no cookies and no compression.

A server may close a connection in the very moment in which it is used again. Then a request is sent once
more, on a new connection, by the rule of Go's net/http: only if the connection had carried a request before,
if not a byte of an answer came, and if the request changes nothing (GET, HEAD, OPTIONS). POST, PATCH, PUT and
DELETE are not repeated, for the server may have acted on them; but whether the peer has closed is asked of
the system right before a connection is used again, so that only an end still on its way is missed.
"""

import asyncio
import os
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from argosy.wire.connection import Connection
from argosy.wire.dial import dial
from argosy.wire.errors import ProtocolError, WebSocketHandshakeError
from argosy.wire.origin import Origin
from argosy.wire.pool import Pool
from argosy.wire.response import ResponseParser
from argosy.wire.websocket import VERSION, WebSocket, accept_key

LARGEST_ANSWER = 1 << 30
LARGEST_REFUSAL = 1 << 20
"""Bytes of the body of an answer that says why something is not to be had."""
HEARTBEAT = 30.0
"""Seconds between pings of a WebSocket; a peer of which nothing is heard until the next is dead."""

REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Streamed:
    """An answer whose body is still coming. A reader that stops reading stops the peer."""

    def __init__(self, connection: Connection, answer: ResponseParser) -> None:
        self._connection = connection
        self._answer = answer
        self.status = answer.status
        self.headers: Mapping[str, str] = answer.headers

    async def chunk(self) -> bytes:
        """Whatever has come, at least a byte; empty at the end."""
        return await self._connection.chunk()

    async def read(self, limit: int = LARGEST_ANSWER) -> bytes:
        """All that is left; `ProtocolError` if that is more than the limit."""
        self._answer.limit = limit
        self._answer.check_size()
        await self._connection.until_done()
        return self._answer.take()


class Client:
    """Safe for any number of tasks of one event loop."""

    def __init__(self, origin: Origin, headers: Sequence[tuple[str, str]] = ()) -> None:
        """`headers` are sent with every request, WebSockets too; a name may be repeated."""
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
        limit: int = LARGEST_ANSWER,
    ) -> Response:
        """The whole answer. `timeout` is for all of it, connecting included."""
        request = self._encode(method, target, headers, body)
        deadline = _deadline(timeout)
        connection = self._pool.take(context)
        while True:
            reused = connection is not None
            if connection is None:
                connection = await self._dial(context, deadline)
            answer = ResponseParser(bodiless=method == "HEAD", limit=limit)
            try:
                connection.begin(request, answer, whole=True, deadline=deadline)
                await connection.until_done()
            except ConnectionError:
                if not (reused and self._may_repeat(method, answer)):
                    raise
            else:
                return Response(answer.status, answer.headers, answer.take())
            finally:
                self._pool.give(connection)
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
    ) -> AsyncIterator[Streamed]:
        """An answer from its head on; `timeout` is for the head. Left early, its connection is cut."""
        request = self._encode(method, target, headers, None)
        deadline = _deadline(timeout)
        connection = self._pool.take(context)
        while True:
            reused = connection is not None
            if connection is None:
                connection = await self._dial(context, deadline)
            answer = ResponseParser(bodiless=method == "HEAD")
            try:
                connection.begin(request, answer, deadline=deadline)
                try:
                    await connection.until_headed()
                except ConnectionError:
                    if not (reused and self._may_repeat(method, answer)):
                        raise
                else:
                    connection.disarm()
                    yield Streamed(connection, answer)
                    return
            finally:
                self._pool.give(connection)
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
        heartbeat: float = HEARTBEAT,
    ) -> AsyncIterator[WebSocket]:
        """Open a WebSocket; raises `WebSocketHandshakeError` if the server answers with anything but 101."""
        key = b64encode(os.urandom(16))
        asked = {
            **headers,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": VERSION,
            "Sec-WebSocket-Key": key.decode(),
        }
        if subprotocols:
            asked["Sec-WebSocket-Protocol"] = ", ".join(subprotocols)
        request = self._encode("GET", target, asked, None)
        deadline = _deadline(timeout)
        connection = await self._dial(context, deadline)
        try:
            answer = ResponseParser(upgrade=True, limit=LARGEST_REFUSAL)
            connection.begin(request, answer, deadline=deadline)
            await connection.until_headed()
            if answer.status != 101:
                await connection.until_done()
                raise WebSocketHandshakeError(answer.status, answer.headers, answer.take())
            connection.disarm()
            chosen = _agreed(answer, key, subprotocols)
            socket = connection.hand_over(
                lambda transport: WebSocket(
                    transport,
                    client=True,
                    subprotocol=chosen,
                    heartbeat=heartbeat,
                    when_lost=lambda: connection.connection_lost(None),
                )
            )
            try:
                yield socket
            finally:
                await socket.close()
        finally:
            self._pool.give(connection)

    async def close(self) -> None:
        await self._pool.close()

    async def _dial(self, context: ssl.SSLContext | None, deadline: float | None) -> Connection:
        async with asyncio.timeout_at(deadline):
            connection = await dial(self._origin, context)
        self._pool.add(connection)
        return connection

    def _may_repeat(self, method: str, answer: ResponseParser) -> bool:
        return method in REPEATABLE and not answer.began and not self._pool.closed

    def _encode(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
        """The whole request. A line end or a blank where none belongs would make it another request."""
        lines = _header_lines(headers.items())
        if " " in target or "\n" in target or "\r" in target:
            raise ValueError(f"{target!r} is not quoted")
        head = f"{method} {self._prefix}{target}{self._fixed}{lines}"
        if body is not None:
            return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        empty = "Content-Length: 0\r\n" if method in ("POST", "PUT", "PATCH") else ""
        return f"{head}{empty}\r\n".encode()


def _header_lines(headers: Collection[tuple[str, str]]) -> str:
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers])
    if lines.count("\n") != len(headers) or lines.count("\r") != len(headers):
        raise ValueError("a header has a line end in it")
    return lines


def _deadline(timeout: float | None) -> float | None:
    return None if timeout is None else asyncio.get_running_loop().time() + timeout


def _agreed(answer: ResponseParser, key: bytes, offered: Sequence[str]) -> str:
    """The subprotocol that the server chose; empty for none."""
    headers = answer.headers
    if headers.get("Sec-WebSocket-Accept", "").encode() != accept_key(key):
        raise ProtocolError("the server did not understand the handshake of the WebSocket")
    chosen = headers.get("Sec-WebSocket-Protocol", "")
    if (chosen and chosen not in offered) or headers.get("Sec-WebSocket-Extensions"):
        raise ProtocolError(f"the server chose what was not offered: {chosen or 'an extension'}")
    return chosen
