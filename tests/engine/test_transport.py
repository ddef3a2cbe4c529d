"""Tests for TLS: authorities, names, client certificates, Unix sockets, proxies, and another event loop."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509

from argosy.engine.client import Client
from argosy.engine.credentials import FixedCredentials, Identity
from argosy.engine.errors import Unavailable
from argosy.engine.kubeconfig import Connection
from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.engine.loop import loop_factory
from argosy.kinds.kubernetes import ConfigMap
from tests.support.certificates import LOOPBACK, Authority
from tests.support.waiting import eventually


class TlsServer:
    """Answers every request with an object that is named after the client's certificate."""

    def __init__(self, folder: Path, authority: Authority, *names: x509.GeneralName) -> None:
        self.folder = folder
        self.port = 0
        self.socket = folder / "api.sock"
        identity = authority.issue("server", *names)
        (folder / "server.pem").write_bytes(identity.certificate + identity.key)
        (folder / "ca.pem").write_bytes(authority.certificate)
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
        self.context.load_cert_chain(folder / "server.pem")
        self.context.verify_mode = ssl.CERT_OPTIONAL

    async def __aenter__(self) -> "TlsServer":
        self._servers = [
            await asyncio.start_server(self._answer, "127.0.0.1", 0, ssl=self.context),
            await asyncio.start_unix_server(self._answer, self.socket, ssl=self.context),
        ]
        self.port = self._servers[0].sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peercert")
        name = dict(part[0] for part in peer["subject"])["commonName"] if peer else "anonymous"
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                body = b'{"metadata":{"name":"%s"}}' % name.encode()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest.fixture
async def server(tmp_path: Path, authority: Authority) -> AsyncIterator[TlsServer]:
    async with TlsServer(tmp_path, authority, LOOPBACK) as server:
        yield server


async def who(connection: Connection) -> str:
    async with Client(connection, timeout=60) as client:
        return (await client.get(ConfigMap, "x", "default")).metadata.name


async def test_a_server_with_a_certificate_of_the_ca_is_trusted(
    server: TlsServer, authority: Authority
) -> None:
    url = f"https://127.0.0.1:{server.port}"
    assert await who(Connection(url, certificate_authority=authority.certificate)) == "anonymous"


async def test_a_server_with_a_certificate_of_another_ca_is_not_trusted(server: TlsServer) -> None:
    url = f"https://127.0.0.1:{server.port}"
    with pytest.raises(Unavailable, match="certificate"):
        await who(Connection(url, certificate_authority=Authority().certificate))
    with pytest.raises(Unavailable, match="certificate"):
        await who(Connection(url))
    assert await who(Connection(url, verify=False)) == "anonymous"


async def test_tls_server_name_is_verified_instead_of_the_host(tmp_path: Path, authority: Authority) -> None:
    async with TlsServer(tmp_path, authority, x509.DNSName("kubernetes.default")) as server:
        url = f"https://127.0.0.1:{server.port}"
        with pytest.raises(Unavailable, match="certificate"):
            await who(Connection(url, certificate_authority=authority.certificate))
        connection = Connection(
            url, certificate_authority=authority.certificate, server_name="kubernetes.default"
        )
        assert await who(connection) == "anonymous"


async def test_the_client_certificate_is_sent(server: TlsServer, authority: Authority) -> None:
    connection = Connection(
        f"https://127.0.0.1:{server.port}",
        credentials=FixedCredentials(Identity(certificate=authority.issue("alice"))),
        certificate_authority=authority.certificate,
    )
    assert await who(connection) == "alice"


class Rotating:
    """Credentials that change."""

    def __init__(self, *identities: Identity) -> None:
        self.identities = list(identities)

    async def current(self) -> Identity:
        return self.identities.pop(0)

    def refresh(self, refused: Identity) -> bool:
        return True


async def test_a_changed_certificate_is_used_for_new_requests(
    server: TlsServer, authority: Authority
) -> None:
    credentials = Rotating(*(Identity(certificate=authority.issue(name)) for name in ("one", "two")))
    url = f"https://127.0.0.1:{server.port}"
    connection = Connection(url, credentials, authority.certificate)
    async with Client(connection) as client:
        names = [(await client.get(ConfigMap, "x", "default")).metadata.name for _ in range(2)]
    assert names == ["one", "two"]


async def test_a_replaced_ca_is_trusted_after_a_failure_with_the_old_one(
    server: TlsServer, authority: Authority, tmp_path: Path
) -> None:
    connection = Connection(
        f"https://127.0.0.1:{server.port}",
        certificate_authority=Authority().certificate,
        authority_file=tmp_path / "ca.pem",
    )
    async with Client(connection) as client:
        with pytest.raises(Unavailable, match="certificate"):
            await client.get(ConfigMap, "x", "default")
        assert (await client.get(ConfigMap, "x", "default")).metadata.name == "anonymous"


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_tls_over_a_unix_socket_verifies_the_host_of_the_url(
    loop: Literal["asyncio", "uvloop"], tmp_path: Path, authority: Authority
) -> None:
    async def dial() -> list[str]:
        async with TlsServer(tmp_path, authority, x509.DNSName("kubernetes"), LOOPBACK) as server:
            names = []
            for url in ("https://kubernetes:6443", "https://127.0.0.1:1"):
                connection = Connection(
                    url, certificate_authority=authority.certificate, unix_socket=str(server.socket)
                )
                names.append(await who(connection))
            with pytest.raises(Unavailable, match="certificate"):
                other = Connection(
                    "https://other",
                    certificate_authority=authority.certificate,
                    unix_socket=str(server.socket),
                )
                await who(other)
        return names

    with asyncio.Runner(loop_factory=loop_factory() if loop == "uvloop" else None) as runner:
        assert runner.run(dial()) == ["anonymous", "anonymous"]


async def test_a_missing_unix_socket_raises_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="Unreachable"):
        await who(Connection("http://x", unix_socket=str(tmp_path / "none")))


class ForwardProxy:
    """An HTTP proxy that tunnels, with or without TLS of its own; it remembers the heads it was sent."""

    def __init__(self, context: ssl.SSLContext | None = None, refuse: bytes = b"") -> None:
        self.context = context
        self.refuse = refuse
        self.heads: list[bytes] = []
        self.port = 0

    async def __aenter__(self) -> "ForwardProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(head)
            if self.refuse:
                writer.write(self.refuse)
                await writer.drain()
            elif head.startswith(b"CONNECT "):
                await self._tunnel(head.split()[1].decode(), reader, writer)
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n")
                writer.write(b'{"metadata":{"name":"by proxy"}}')
                await writer.drain()
        writer.transport.abort()

    async def _tunnel(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = target.rpartition(":")
        answers, upstream = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        both = [asyncio.create_task(pass_on(reader, upstream)), asyncio.create_task(pass_on(answers, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        upstream.transport.abort()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_tls_is_tunnelled_through_a_proxy(
    loop: Literal["asyncio", "uvloop"], scheme: str, tmp_path: Path, authority: Authority
) -> None:
    async def dial() -> None:
        async with (
            TlsServer(tmp_path, authority, LOOPBACK) as server,
            ForwardProxy(server.context if scheme == "https" else None) as proxy,
        ):
            connection = Connection(
                f"https://127.0.0.1:{server.port}",
                credentials=FixedCredentials(Identity(certificate=authority.issue("alice"))),
                certificate_authority=authority.certificate,
                proxy=f"{scheme}://me:secret@127.0.0.1:{proxy.port}",
            )
            assert await who(connection) == "alice"
            lines = proxy.heads[0].split(b"\r\n")
            assert lines[0] == f"CONNECT 127.0.0.1:{server.port} HTTP/1.1".encode()
            assert b"Proxy-Authorization: Basic bWU6c2VjcmV0" in lines
            await eventually(lambda: len(asyncio.all_tasks()) == 1)

    with asyncio.Runner(loop_factory=loop_factory() if loop == "uvloop" else None) as runner:
        runner.run(dial())


async def test_plain_http_through_a_proxy_has_the_whole_url() -> None:
    async with ForwardProxy() as proxy:
        connection = Connection(
            "http://api.example:8080/base", proxy=f"http://me:secret@127.0.0.1:{proxy.port}"
        )
        assert await who(connection) == "by proxy"
        lines = proxy.heads[0].split(b"\r\n")
        path = b"/base/api/v1/namespaces/default/configmaps/x"
        assert lines[0] == b"GET http://api.example:8080" + path + b" HTTP/1.1"
        assert b"Host: api.example:8080" in lines
        assert b"Proxy-Authorization: Basic bWU6c2VjcmV0" in lines


REFUSALS = {
    "proxy requires a login: unavailable": (
        b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    ),
    "proxy does not speak HTTP: unavailable": b"220 mail.example ESMTP\r\n",
    "proxy closes the connection: unavailable": b"HTTP/1.1 2",
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_failing_proxies(case: str) -> None:
    async with ForwardProxy(refuse=REFUSALS[case]) as proxy:
        with pytest.raises(Unavailable, match=r"407|not HTTP|closed"):
            await who(Connection("https://api.example", proxy=f"http://127.0.0.1:{proxy.port}"))


UNUSABLE = {
    "URL without a scheme: rejected": Connection("127.0.0.1:6443"),
    "proxy with an unsupported scheme: rejected": Connection("https://a", proxy="ftp://p:21"),
}


@pytest.mark.parametrize("case", UNUSABLE)
async def test_an_invalid_address_is_rejected_without_a_retry(case: str) -> None:
    with pytest.raises(KubeconfigError, match="unsupported scheme"):
        await who(UNUSABLE[case])


async def test_a_server_that_requires_http_2_is_an_error_that_says_so() -> None:
    """Such a server ends the handshake with the alert no_application_protocol."""
    offered: list[bytes] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind, _, _, high, low = await reader.readexactly(5)
        assert kind == 0x16
        offered.append(await reader.readexactly(high * 256 + low))
        writer.write(bytes([0x15, 3, 3, 0, 2, 2, 120]))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Unavailable, match=r"does not speak HTTP/1\.1"):
            await who(Connection(f"https://127.0.0.1:{port}"))
    assert b"\x08http/1.1" in offered[0]


async def converse(
    context: ssl.SSLContext, answer: bytes, end: Literal["farewell", "cut", "silence"]
) -> tuple[asyncio.Server, asyncio.Event]:
    """A TLS server that gives one answer; whether its client is gone then."""
    gone = asyncio.Event()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            await writer.drain()
            if end == "farewell":
                writer.close()
            if end != "cut":
                await reader.read()
        gone.set()
        writer.transport.abort()

    return await asyncio.start_server(accepted, "127.0.0.1", 0, ssl=context), gone


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_body_without_length_is_complete_only_with_tls_close_notify(
    loop: Literal["asyncio", "uvloop"], tmp_path: Path, authority: Authority
) -> None:
    """Who can cut the line must not be able to make half a log look like a whole one."""
    server = TlsServer(tmp_path, authority, LOOPBACK)

    async def follow(end: Literal["farewell", "cut"]) -> bytes:
        ending, gone = await converse(server.context, b"HTTP/1.1 200 OK\r\n\r\nhalf", end)
        try:
            async with ending, asyncio.timeout(60), Client(trusting(ending, authority)) as client:
                return b"".join([chunk async for chunk in client.logs("p", "default")])
        finally:
            await gone.wait()

    with asyncio.Runner(loop_factory=loop_factory() if loop == "uvloop" else None) as runner:
        assert runner.run(follow("farewell")) == b"half"
        with pytest.raises(Unavailable):
            runner.run(follow("cut"))


async def test_leaving_a_stream_does_not_wait_for_the_peer(server: TlsServer, authority: Authority) -> None:
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
    silent, gone = await converse(server.context, answer, "silence")
    async with silent, asyncio.timeout(60), Client(trusting(silent, authority)) as client:
        logs = client.logs("p", "default", follow=True)
        assert await anext(logs) == b"one"
        await logs.aclose()
        await gone.wait()


def trusting(server: asyncio.Server, authority: Authority) -> Connection:
    port = server.sockets[0].getsockname()[1]
    return Connection(f"https://127.0.0.1:{port}", certificate_authority=authority.certificate)
