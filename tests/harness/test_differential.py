"""Tests for the client of differential tests when a server closes connections."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.local.apiserver.pki import ensure_pki
from tests.support import servers
from tests.support.differential import Caller, ClosedError, get
from tests.support.servers import Server


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Server]:
    """A server that closes every connection after reading the request."""
    ensure_pki(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pki" / "apiserver.crt", tmp_path / "pki" / "apiserver.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                accepted, _ = listening.accept()
            except OSError:
                return
            with context.wrap_socket(accepted, server_side=True) as secured:
                secured.recv(65536)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield servers.describe("silent", tmp_path, "127.0.0.1", listening.getsockname()[1])
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def test_closed_connection_is_reported_and_not_retried(silent: Server) -> None:
    with Caller(silent) as caller:
        for _ in range(2):
            with pytest.raises(ClosedError, match=r"silent closed the connection .* GET /x"):
                caller.send(get("/x"))
