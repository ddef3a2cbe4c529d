"""Runs the API server: the store, the application and its listeners.

It listens on loopback TCP and on a Unix socket, with the same TLS certificate. On SIGTERM it first closes the
listeners and then completes pending writes.
"""

import asyncio
import gc
import signal
import ssl
from pathlib import Path

from argosy.local.apiserver.api import Api
from argosy.local.apiserver.app import App
from argosy.local.apiserver.auth import Authenticator
from argosy.local.apiserver.bootstrap import bootstrap
from argosy.local.apiserver.crds import Definitions
from argosy.local.apiserver.event_ttl import run_event_ttl
from argosy.local.apiserver.http import reply_error
from argosy.local.apiserver.rbac import Authorizer
from argosy.local.apiserver.registry import Registry
from argosy.local.apiserver.status import method_not_allowed
from argosy.local.apiserver.store import Limits, Store
from argosy.local.apiserver.tokens import Signer
from argosy.wire import messages
from argosy.wire.messages import Response
from argosy.wire.server import Server

_GRACE_SECONDS = 1.0


async def serve(state: Path, port: int, limits: Limits) -> None:
    """Run until SIGTERM or SIGINT."""
    store = Store(state / "store.db", limits)
    store.start()
    api = Api(store, Registry(), state, Authorizer(store))
    signer = Signer(state / "pki" / "sa.key", store)
    app = App(api, Authenticator(state / "tokens.json", signer), signer, f"127.0.0.1:{port}")
    definitions = Definitions(api)
    definitions.restore()
    server = Server(app, error_response=_parse_error_response)
    tasks = [asyncio.ensure_future(task) for task in (definitions.run(), _trim(store), run_event_ttl(api))]
    try:
        await bootstrap(api)
        gc.freeze()  # the objects that exist now are never garbage
        app.ready = True
        tls = tls_context(state)
        await server.listen_tcp("127.0.0.1", port, tls)
        await server.listen_unix(state / "apiserver.sock", tls)
        await _wait_for_signal()
    finally:
        await server.close(_GRACE_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        store.stop()


async def _wait_for_signal() -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def _parse_error_response(status: int, why: str) -> Response:
    """Return the response to a request that cannot be parsed; an unknown method is a 405."""
    if status != 405:
        return messages.error_response(status, why)
    response = reply_error(method_not_allowed())
    response.headers = [(b"cache-control", b"no-cache, private")]
    return response


def tls_context(state: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(state / "pki" / "apiserver.crt", state / "pki" / "apiserver.key")
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _trim(store: Store) -> None:
    while True:
        await asyncio.sleep(5)
        store.trim()
