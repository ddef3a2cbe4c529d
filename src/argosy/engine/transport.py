"""HTTP behind one small protocol, so that the client can be tested, and its library changed, in one place.

Failures without an HTTP answer become `Unavailable`; answers, whatever their code, are returned. Requests
send no Accept-Encoding: inside a cluster, compression costs both sides more than it saves.
"""

import asyncio
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct
from yarl import URL

from argosy.engine.credentials import Certificate, Identity
from argosy.engine.errors import ApiError, Unavailable, error_from_answer
from argosy.engine.kubeconfig import Connection


class Request(Struct, gc=False):
    method: str
    target: str
    """Path and query, already quoted."""
    headers: Mapping[str, str]
    identity: Identity
    body: bytes | None = None
    timeout: float | None = None


class Answer(Struct, gc=False):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Stream(Protocol):
    """An answer whose body is still coming."""

    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    async def read(self) -> bytes:
        """All that is left."""
        ...

    async def chunk(self) -> bytes:
        """Whatever has come, at least a byte; empty at the end."""
        ...


class Socket(Protocol):
    """A WebSocket with binary messages."""

    @property
    def protocol(self) -> str: ...
    async def send(self, message: bytes) -> None: ...
    async def receive(self) -> bytes | None:
        """The next message; none when the peer closed."""
        ...


class Transport(Protocol):
    async def send(self, request: Request) -> Answer: ...
    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]: ...
    def websocket(
        self, request: Request, protocols: Sequence[str]
    ) -> AbstractAsyncContextManager[Socket]: ...
    async def close(self) -> None: ...


class HttpTransport:
    """The transport over aiohttp: pooled connections, TLS, Unix sockets."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._contexts: dict[Certificate | None, ssl.SSLContext] = {}
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Answer:
        try:
            async with asyncio.timeout(request.timeout), self._open(request) as response:
                return Answer(response.status, response.headers, await response.read())
        except FAILURES as error:
            raise _unavailable(request, error) from error

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        try:
            async with asyncio.timeout(request.timeout):
                response = await self._open(request)
        except FAILURES as error:
            raise _unavailable(request, error) from error
        try:
            yield _HttpStream(request, response)
        finally:
            # Left before its end: a TLS farewell would wait half a minute for a peer that may be dead.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    @asynccontextmanager
    async def websocket(self, request: Request, protocols: Sequence[str]) -> AsyncIterator[Socket]:
        try:
            async with asyncio.timeout(request.timeout):
                handshake = await self._ready().ws_connect(
                    self._url(request),
                    protocols=tuple(protocols),
                    headers={**request.headers, **request.identity.headers},
                    ssl=self._tls(request.identity.certificate),
                    server_hostname=self._connection.server_name,
                    proxy=self._connection.proxy,
                    max_msg_size=0,
                    heartbeat=HEARTBEAT,
                )
        except aiohttp.WSServerHandshakeError as error:
            raise _refused(request, error) from error
        except FAILURES as error:
            raise _unavailable(request, error) from error
        try:
            yield _HttpSocket(request, handshake)
        finally:
            await handshake.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self, request: Request) -> "aiohttp.client._RequestContextManager":
        return self._ready().request(
            request.method,
            self._url(request),
            data=request.body,
            headers={**request.headers, **request.identity.headers},
            ssl=self._tls(request.identity.certificate),
            server_hostname=self._connection.server_name,
            proxy=self._connection.proxy,
            allow_redirects=False,
        )

    def _url(self, request: Request) -> URL:
        return URL(self._connection.server + request.target, encoded=True)

    def _tls(self, certificate: Certificate | None) -> ssl.SSLContext | bool:
        if not self._connection.server.startswith("https:"):
            return True  # not used; reading the system's authorities takes a while
        context = self._contexts.get(certificate)
        if context is None:
            # A rotated certificate replaces the one before it; connections made with the old one live on.
            self._contexts.clear()
            context = self._contexts[certificate] = tls_context(self._connection, certificate)
        return context

    def _ready(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_connector(self._connection),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("Accept-Encoding", "Accept", "User-Agent"),
                read_bufsize=READ_BUFFER,
                # No total: aiohttp's own timer, when it fires together with a cancellation, swallows it.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            )
        return self._session


CONNECT_TIMEOUT = 10.0
HEARTBEAT = 30.0
"""Seconds between pings of a WebSocket; a peer that does not answer one is dead."""
READ_BUFFER = 1 << 20
FAILURES = (aiohttp.ClientError, OSError, TimeoutError, asyncio.IncompleteReadError)


def tls_context(connection: Connection, certificate: Certificate | None) -> ssl.SSLContext:
    """Verified TLS, with the kubeconfig's own authority when it names one."""
    authority = connection.certificate_authority
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # Clusters exist whose authorities lack extensions that newer Pythons insist on; Go's verifier does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not connection.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        with tempfile.TemporaryDirectory(prefix="argosy-") as folder:
            path = Path(folder) / "identity.pem"
            path.write_bytes(certificate.certificate + b"\n" + certificate.key)
            context.load_cert_chain(path)
    return context


class _HttpStream:
    def __init__(self, request: Request, response: aiohttp.ClientResponse) -> None:
        self._request = request
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        try:
            return await self._response.read()
        except FAILURES as error:
            raise _unavailable(self._request, error) from error

    async def chunk(self) -> bytes:
        try:
            return await self._response.content.readany()
        except FAILURES as error:
            raise _unavailable(self._request, error) from error


class _HttpSocket:
    def __init__(self, request: Request, handshake: aiohttp.ClientWebSocketResponse) -> None:
        self._request = request
        self._handshake = handshake
        self.protocol = handshake.protocol or ""

    async def send(self, message: bytes) -> None:
        try:
            await self._handshake.send_bytes(message)
        except FAILURES as error:
            raise _unavailable(self._request, error) from error

    async def receive(self) -> bytes | None:
        message = await self._handshake.receive()
        if message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT):
            return message.data if isinstance(message.data, bytes) else str(message.data).encode()
        if message.type is aiohttp.WSMsgType.ERROR:
            raise _unavailable(self._request, self._handshake.exception())
        return None


def _connector(connection: Connection) -> aiohttp.TCPConnector:
    # No limit on connections: watches hold theirs for minutes, and writes have a limiter of their own.
    if connection.unix_socket is None:
        return aiohttp.TCPConnector(limit=0, keepalive_timeout=60, socket_factory=_keepalive_socket)
    path = connection.unix_socket
    return aiohttp.TCPConnector(
        limit=0,
        keepalive_timeout=60,
        resolver=_NoResolver(),
        socket_factory=lambda _address: _UnixSocket(path),
    )


def _keepalive_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """One that notices within about a minute that its peer is gone, though nothing is ever sent: a log."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}.items():
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class _UnixSocket(socket.socket):
    """Dials its path wherever it is told to connect to: how TLS over a Unix socket is had from aiohttp."""

    def __init__(self, path: str) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)
        self._path = path

    def connect(self, _address: object, /) -> None:
        super().connect(self._path)


class _NoResolver(AbstractResolver):
    """Any name will do for a socket that ignores the address."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [ResolveResult(hostname=host, host="127.0.0.1", port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        pass


def _refused(request: Request, error: aiohttp.WSServerHandshakeError) -> ApiError:
    body = f"{request.method} {request.target}: {error.message}".encode()
    return error_from_answer(error.status, error.headers or {}, body)


def _unavailable(request: Request, error: BaseException | None) -> Unavailable:
    if isinstance(error, TimeoutError):
        return Unavailable(0, "Timeout", f"{request.method} {request.target}: no answer in time")
    return Unavailable(0, "Unreachable", f"{request.method} {request.target}: {error!r}")
