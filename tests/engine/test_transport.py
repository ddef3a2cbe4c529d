"""TLS for real: authorities, names, client certificates, Unix sockets, and another event loop."""

import asyncio
import datetime
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from argosy.engine.client import Client
from argosy.engine.credentials import Certificate, FixedCredentials, Identity
from argosy.engine.errors import Unavailable
from argosy.engine.kubeconfig import Connection
from argosy.engine.loop import loop_factory
from argosy.kinds.kubernetes import ConfigMap

Key = ec.EllipticCurvePrivateKey


class Authority:
    """A throw-away certificate authority."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
        self.certificate = self._sign(self.name, self.key, None)

    def issue(self, common_name: str, *names: x509.GeneralName) -> Certificate:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        signed = self._sign(name, key, names)
        plain = serialization.NoEncryption()
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        return Certificate(signed, pem)

    def _sign(self, name: x509.Name, key: Key, names: tuple[x509.GeneralName, ...] | None) -> bytes:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self.key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)


LOOPBACK = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))


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
        name = dict(part[0] for part in peer["subject"])["commonName"] if peer else "nobody"
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
    async with Client(connection, timeout=5) as client:
        return (await client.get(ConfigMap, "x", "default")).metadata.name


async def test_a_server_of_the_named_authority_is_trusted(server: TlsServer, authority: Authority) -> None:
    url = f"https://127.0.0.1:{server.port}"
    assert await who(Connection(url, certificate_authority=authority.certificate)) == "nobody"


async def test_a_server_of_another_authority_is_not(server: TlsServer) -> None:
    url = f"https://127.0.0.1:{server.port}"
    with pytest.raises(Unavailable, match="certificate"):
        await who(Connection(url, certificate_authority=Authority().certificate))
    with pytest.raises(Unavailable, match="certificate"):
        await who(Connection(url))
    assert await who(Connection(url, verify=False)) == "nobody"


async def test_the_name_that_is_verified_can_be_given(tmp_path: Path, authority: Authority) -> None:
    async with TlsServer(tmp_path, authority, x509.DNSName("kubernetes.default")) as server:
        url = f"https://127.0.0.1:{server.port}"
        with pytest.raises(Unavailable, match="certificate"):
            await who(Connection(url, certificate_authority=authority.certificate))
        connection = Connection(
            url, certificate_authority=authority.certificate, server_name="kubernetes.default"
        )
        assert await who(connection) == "nobody"


async def test_a_client_certificate_identifies(server: TlsServer, authority: Authority) -> None:
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

    def refresh(self) -> bool:
        return True


async def test_a_certificate_that_changed_is_used_from_then_on(
    server: TlsServer, authority: Authority
) -> None:
    credentials = Rotating(*(Identity(certificate=authority.issue(name)) for name in ("one", "two")))
    url = f"https://127.0.0.1:{server.port}"
    connection = Connection(url, credentials, authority.certificate)
    async with Client(connection) as client:
        names = [(await client.get(ConfigMap, "x", "default")).metadata.name for _ in range(2)]
    assert names == ["one", "two"]


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_tls_goes_through_a_unix_socket_with_the_name_of_the_url(
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
        assert runner.run(dial()) == ["nobody", "nobody"]


async def test_a_unix_socket_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="Unreachable"):
        await who(Connection("http://x", unix_socket=str(tmp_path / "none")))
