"""The server process: the store, the application and its listeners, TLS on both.

Listens on loopback TCP and on a Unix socket with the same certificate. SIGTERM ends it in order: listeners
first, then what is being written.
"""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import uvicorn
from httptools import HttpParserInvalidMethodError
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.app import App
from argosy.local.apiserver.auth import Authenticator
from argosy.local.apiserver.bootstrap import bootstrap
from argosy.local.apiserver.crds import Definitions
from argosy.local.apiserver.expiry import forget_events
from argosy.local.apiserver.gathering import GatheringTransport
from argosy.local.apiserver.http import reply_error
from argosy.local.apiserver.rbac import Authorizer
from argosy.local.apiserver.registry import Registry
from argosy.local.apiserver.status import method_not_allowed
from argosy.local.apiserver.store import Limits, Store
from argosy.local.apiserver.tokens import Signer


async def serve(state: Path, port: int, limits: Limits) -> None:
    """Run until told to stop."""
    store = Store(state / "store.db", limits)
    store.start()
    api = Api(store, Registry(), state, Authorizer(store))
    signer = Signer(state / "pki" / "sa.key", store)
    app = App(api, Authenticator(state / "tokens.json", signer), signer, f"127.0.0.1:{port}")
    definitions = Definitions(api)
    definitions.restore()
    server = _Server(_config(app, state))
    chores = [asyncio.ensure_future(chore) for chore in (definitions.run(), _trim(store), forget_events(api))]
    try:
        await bootstrap(api)
        gc.freeze()  # what is there now stays, and need not be looked at again
        app.ready = True
        await server.serve(sockets=[_loopback(port), _unix(state / "apiserver.sock")])
    finally:
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        store.stop()


class _Server(uvicorn.Server):
    """uvicorn's server, that ends by returning when it is told to, so that the store is closed in order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol on a transport that gathers writes."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(GatheringTransport(transport, self.loop))

    def send_400_response(self, msg: str) -> None:
        """A method that the parser has never heard of is refused like any other that is not allowed."""
        if not isinstance(sys.exception(), HttpParserInvalidMethodError):
            super().send_400_response(msg)
            return
        body = reply_error(method_not_allowed()).body
        assert isinstance(body, bytes)
        head = (
            "HTTP/1.1 405 Method Not Allowed\r\ncontent-type: application/json\r\n"
            f"cache-control: no-cache, private\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def _config(app: App, state: Path) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws=cast("type[asyncio.Protocol]", _websocket),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        timeout_keep_alive=600,
        timeout_graceful_shutdown=1,
        ws_ping_interval=None,
    )
    config.load()
    config.ssl = tls_context(state)
    return config


def _websocket(
    config: uvicorn.Config, server_state: ServerState, app_state: dict[str, object]
) -> asyncio.Protocol:
    """The protocol of a WebSocket; imported when the first one comes, for that takes as long as all else."""
    from uvicorn.protocols.websockets.wsproto_impl import WSProtocol

    return WSProtocol(config, server_state, app_state)


def tls_context(state: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(state / "pki" / "apiserver.crt", state / "pki" / "apiserver.key")
    context.set_alpn_protocols(["http/1.1"])
    return context


def _loopback(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    return listener


def _unix(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    return listener


async def _trim(store: Store) -> None:
    while True:
        await asyncio.sleep(5)
        store.trim()
