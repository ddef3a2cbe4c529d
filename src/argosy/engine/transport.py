"""The HTTP transport of the client, behind a small protocol that tests can replace.

Failures without an HTTP response are raised as `Unavailable`; responses of any status are returned. Requests
have no Accept-Encoding: within a cluster, compression costs both sides more than it saves.
"""

import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Protocol

from msgspec import Struct

from argosy.engine.clock import Clock, SystemClock
from argosy.engine.credentials import Identity
from argosy.engine.errors import Unavailable, error_from_response
from argosy.engine.kubeconfig import Connection
from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.engine.tls import TlsContexts
from argosy.wire import client as wire
from argosy.wire.errors import WebSocketHandshakeError
from argosy.wire.origin import Origin
from argosy.wire.websocket import WebSocket


class Request(Struct, gc=False):
    method: str
    target: str
    """Path and query, already quoted."""
    headers: Mapping[str, str]
    identity: Identity
    body: bytes | None = None
    timeout: float | None = None


class Response(Struct, gc=False):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """A response whose body is still being received."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self) -> bytes:
        """Return the rest of the body."""
        ...

    async def chunk(self) -> bytes:
        """Return the bytes received so far, at least one; empty at the end."""
        ...


class Socket(Protocol):
    """A WebSocket with binary messages."""

    @property
    def protocol(self) -> str: ...
    async def send(self, message: bytes) -> None: ...
    async def receive(self) -> bytes | None:
        """Return the next message; None when the peer has closed the socket."""
        ...


class Transport(Protocol):
    async def send(self, request: Request) -> Response: ...
    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]: ...
    def websocket(
        self, request: Request, protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[Socket]: ...
    async def close(self) -> None: ...


class HttpTransport:
    """The transport over `wire`: pooled connections with TLS, over TCP, proxies and Unix sockets."""

    def __init__(self, connection: Connection, clock: Clock = SystemClock()) -> None:
        self._connection = connection
        self._contexts = TlsContexts(
            connection.certificate_authority, connection.authority_file, verify=connection.verify, clock=clock
        )
        self._encrypted = connection.server.startswith("https:")
        self._client: wire.Client | None = None

    async def send(self, request: Request) -> Response:
        try:
            response = await self._wire_client().send(
                request.method,
                request.target,
                _headers(request),
                request.body,
                context=self._tls(request),
                timeout=request.timeout,
            )
        except OSError as error:
            raise self._unavailable(request, error) from error
        return Response(response.status, response.headers, response.body)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with AsyncExitStack() as stack:
            try:
                streamed = await stack.enter_async_context(
                    self._wire_client().stream(
                        request.method,
                        request.target,
                        _headers(request),
                        context=self._tls(request),
                        timeout=request.timeout,
                    )
                )
            except OSError as error:
                raise self._unavailable(request, error) from error
            yield _HttpStream(request, streamed)

    @asynccontextmanager
    async def websocket(self, request: Request, protocols: Sequence[str]) -> AsyncIterator[Socket]:
        async with AsyncExitStack() as stack:
            try:
                socket = await stack.enter_async_context(
                    self._wire_client().websocket(
                        request.target,
                        _headers(request),
                        protocols,
                        context=self._tls(request),
                        timeout=request.timeout,
                    )
                )
            except WebSocketHandshakeError as error:
                raise error_from_response(error.status, error.headers, error.body) from error
            except OSError as error:
                raise self._unavailable(request, error) from error
            yield _HttpSocket(request, socket)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    def _wire_client(self) -> wire.Client:
        if self._client is None:
            self._client = wire.Client(_origin(self._connection), self._connection.impersonation)
        return self._client

    def _tls(self, request: Request) -> ssl.SSLContext | None:
        if not self._encrypted:
            return None  # loading the system's certificate authorities is slow
        return self._contexts.current(request.identity.certificate)

    def _unavailable(self, request: Request, error: OSError) -> Unavailable:
        if isinstance(error, ssl.SSLCertVerificationError):
            self._contexts.expire()
        return _unavailable(request, error)


class _HttpStream:
    def __init__(self, request: Request, streamed: wire.StreamedResponse) -> None:
        self._request = request
        self._streamed = streamed
        self.status = streamed.status
        self.headers = streamed.headers

    async def read(self) -> bytes:
        try:
            return await self._streamed.read()
        except OSError as error:
            raise _unavailable(self._request, error) from error

    async def chunk(self) -> bytes:
        try:
            return await self._streamed.chunk()
        except OSError as error:
            raise _unavailable(self._request, error) from error


class _HttpSocket:
    def __init__(self, request: Request, socket: WebSocket) -> None:
        self._request = request
        self._socket = socket
        self.protocol = socket.subprotocol

    async def send(self, message: bytes) -> None:
        try:
            await self._socket.send(message)
        except OSError as error:
            raise _unavailable(self._request, error) from error

    async def receive(self) -> bytes | None:
        message = await self._socket.receive()
        return message.encode() if isinstance(message, str) else message


def _origin(connection: Connection) -> Origin:
    try:
        return Origin.from_url(
            connection.server,
            unix_socket=connection.unix_socket,
            server_name=connection.server_name,
            proxy=connection.proxy,
        )
    except ValueError as error:
        raise KubeconfigError(f"{connection.server} is not a valid server address: {error}") from error


def _headers(request: Request) -> Mapping[str, str]:
    credentials = request.identity.headers
    return {**request.headers, **credentials} if credentials else request.headers


def _unavailable(request: Request, error: OSError) -> Unavailable:
    if isinstance(error, TimeoutError):
        return Unavailable(0, "Timeout", f"{request.method} {request.target}: request timed out")
    if isinstance(error, ssl.SSLError) and NO_ALPN_PROTOCOL in str(error).lower():
        return Unavailable(
            0, "Unreachable", f"{request.method} {request.target}: the server does not speak HTTP/1.1 (ALPN)"
        )
    return Unavailable(0, "Unreachable", f"{request.method} {request.target}: {error!r}")


NO_ALPN_PROTOCOL = "alert no application protocol"
"""OpenSSL's name of the alert of a server that supports none of the offered protocols."""
