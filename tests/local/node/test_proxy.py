"""Tests for relaying Service ports to real listeners on loopback."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from argosy.kinds.labels import OPERATOR_NAMESPACE
from argosy.kinds.meta import ObjectMeta
from argosy.local.node.proxy import Listener, Proxy, control_plane_socket, listeners
from argosy.local.service_types import Service
from argosy.operator.settings import NAME

NO_BRIDGE = "argosy-none"


def free_port(kind: int = socket.SOCK_STREAM) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def listener(protocol: str = "TCP") -> Listener:
    kind = socket.SOCK_DGRAM if protocol == "UDP" else socket.SOCK_STREAM
    return Listener("127.0.0.1", free_port(kind), protocol, "ns", "service", "")


async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers only when the client has said everything: needs half-closed connections."""
    writer.write((await reader.read()).upper())
    writer.close()


async def ask(port: int, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


async def test_tcp_is_relayed_to_a_reachable_endpoint_and_may_be_half_closed() -> None:
    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    alive = server.sockets[0].getsockname()[1]
    ours = listener()
    proxy = Proxy(NO_BRIDGE, lambda _: [("127.0.0.1", free_port()), ("127.0.0.1", alive)])
    await proxy.update({ours})
    for _ in range(5):
        assert await ask(ours.port, b"hello") == b"HELLO"
    await proxy.update(set())
    with pytest.raises(OSError):
        await ask(ours.port, b"hello")
    proxy.close()
    server.close()


SERVICES = {
    "the API server's Service: its socket": ("default", "kubernetes", "", "apiserver.sock"),
    "the operator's Service with its annotation: its socket": (
        OPERATOR_NAMESPACE,
        NAME,
        "operator",
        "operator.sock",
    ),
    "the operator's Service without annotation: its pods": (OPERATOR_NAMESPACE, NAME, "", ""),
    "the operator's Service with another socket's name: none": (OPERATOR_NAMESPACE, NAME, "agent", ""),
    "a Service of the operator's name in another namespace: none": ("default", NAME, "operator", ""),
    "another Service in the operator's namespace: none": (OPERATOR_NAMESPACE, "web", "operator", ""),
    "any Service that names the agent's socket: none": ("default", "web", "agent", ""),
    "any Service that names the API server's socket: none": ("default", "web", "apiserver", ""),
}


@pytest.mark.parametrize("case", SERVICES)
def test_only_services_of_the_control_plane_have_a_socket(case: str) -> None:
    namespace, name, annotation, want_socket = SERVICES[case]
    annotations = {"argosy.dev/unix-socket": annotation} if annotation else {}
    meta = ObjectMeta(name=name, namespace=namespace, annotations=annotations)
    assert control_plane_socket(Service(metadata=meta)) == want_socket


async def test_a_service_of_the_control_plane_is_relayed_to_its_socket(tmp_path: Path) -> None:
    server = await asyncio.start_unix_server(shout, tmp_path / "api.sock")
    ours = listener()
    proxy = Proxy(NO_BRIDGE, lambda _: [tmp_path / "api.sock"])
    await proxy.update({ours})
    assert await ask(ours.port, b"ready") == b"READY"
    proxy.close()
    server.close()


async def test_without_endpoints_connections_are_reset() -> None:
    ours = listener()
    proxy = Proxy(NO_BRIDGE, lambda _: [])
    await proxy.update({ours})
    with pytest.raises(ConnectionError):
        await ask(ours.port, b"hello")
    proxy.close()


async def test_udp_answers_are_returned_to_their_client() -> None:
    class Echo(asyncio.DatagramProtocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
            getattr(self.transport, "sendto")(data.upper(), addr)  # noqa: B009 (a base type lacks it)

    loop = asyncio.get_running_loop()
    far, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
    ours = listener("UDP")
    target: tuple[str, int] = far.get_extra_info("sockname")
    proxy = Proxy(NO_BRIDGE, lambda _: [target])
    await proxy.update({ours})
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setblocking(False)
    client.connect(("127.0.0.1", ours.port))
    with client:
        await loop.sock_sendall(client, b"ping")
        async with asyncio.timeout(60):
            assert await loop.sock_recv(client, 100) == b"PING"
    proxy.close()
    far.close()


def test_headless_and_external_services_have_no_listeners() -> None:
    specs = [
        {"clusterIP": "10.96.0.5", "ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]},
        {"clusterIP": "None", "ports": [{"port": 80}]},
        {"type": "ExternalName", "externalName": "x.example"},
    ]
    services = [msgspec.convert({"metadata": {"name": "s"}, "spec": spec}, Service) for spec in specs]
    assert {(entry.address, entry.port, entry.protocol) for entry in listeners(services)} == {
        ("10.96.0.5", 80, "TCP"),
        ("10.96.0.5", 53, "UDP"),
    }
