"""The cluster's DNS server: answers for services and pods, forwards other queries to the host's resolvers.

Answers as CoreDNS does for `cluster.local`: A records of services, of headless services' pods and of pods
with a hostname and subdomain, SRV records for named ports, and PTR records for addresses. Queries are
forwarded over a socket opened in the host's network, because the agent itself runs in the cluster's network.
"""

import asyncio
import contextlib
import secrets
import socket
import struct
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address
from typing import cast

from argosy.local.node import dns_message
from argosy.local.node.dns_message import Code, Query, Record, Type
from argosy.local.node.service_backends import Backend, ServiceDirectory
from argosy.local.service_types import Service

_UPSTREAM_TIMEOUT = 3.0

Answer = tuple[Code, list[Record]]


class Zone:
    """Answers queries for names in the cluster domain. Pure, given the directory."""

    def __init__(
        self, directory: ServiceDirectory, domain: str, name_of: Callable[[str], str | None]
    ) -> None:
        self._directory = directory
        self._domain = domain
        self._name_of = name_of

    def answer(self, query: Query) -> Answer | None:
        """Return response code and records; None if the name is not in the cluster domain."""
        name, kind = query.name, query.type
        if name.endswith(".in-addr.arpa"):
            return self._reverse(name)
        if name != self._domain and not name.endswith(f".{self._domain}"):
            return None
        labels = name.removesuffix(self._domain).rstrip(".").split(".")
        if labels[-1:] == ["pod"] and len(labels) == 3:
            return _pod_address(labels[0], kind)
        if labels[-1:] != ["svc"] or len(labels) < 3:
            return (Code.NOERROR if name == self._domain else Code.NXDOMAIN), []
        service = self._directory.service(labels[-2], labels[-3])
        if service is None:
            return Code.NXDOMAIN, []
        return self._service(service, labels[:-3], kind)

    def _service(self, service: Service, below: list[str], kind: int) -> Answer:
        backends = self._directory.backends(service)
        if len(below) == 2 and below[0].startswith("_") and below[1].startswith("_"):
            return self._srv(service, backends, below[0][1:], below[1][1:], kind)
        if len(below) == 1:
            backends = [b for b in backends if _label(b) == below[0]]
            if not backends:
                return Code.NXDOMAIN, []
        elif below:
            return Code.NXDOMAIN, []
        if service.spec.type == "ExternalName":
            return Code.NOERROR, [dns_message.cname_record(service.spec.external_name)]
        if service.is_headless or below:
            addresses = [backend.address for backend in backends]
        else:
            addresses = [service.spec.cluster_ip]
        if not addresses:
            return Code.NXDOMAIN, []
        if kind not in (Type.A, Type.ANY):
            return Code.NOERROR, []
        return Code.NOERROR, [dns_message.a_record(address) for address in addresses]

    def _srv(self, service: Service, backends: list[Backend], port: str, protocol: str, kind: int) -> Answer:
        base = f"{service.metadata.name}.{service.metadata.namespace}.svc.{self._domain}"
        ports = [p for p in service.spec.ports if p.name == port and p.protocol.lower() == protocol]
        if not ports:
            return Code.NXDOMAIN, []
        if kind not in (Type.SRV, Type.ANY):
            return Code.NOERROR, []
        if service.is_headless:
            targets = [(f"{_label(b)}.{base}", b.ports.get(port, ports[0].port)) for b in backends]
        else:
            targets = [(base, ports[0].port)]
        return Code.NOERROR, [dns_message.srv_record(number, target) for target, number in targets]

    def _reverse(self, name: str) -> Answer | None:
        address = ".".join(reversed(name.removesuffix(".in-addr.arpa").split(".")))
        target = self._name_of(address)
        if target is None:
            return None
        return Code.NOERROR, [dns_message.ptr_record(f"{target}.{self._domain}")]


class Upstream(asyncio.DatagramProtocol):
    """Forwards queries to the host's resolvers, with its own query id for each."""

    def __init__(self, servers: list[str]) -> None:
        self._servers = servers
        self._transport: asyncio.DatagramTransport | None = None
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        waiting = self._waiting.pop(struct.unpack_from(">H", data)[0], None)
        if waiting and not waiting.done():
            waiting.set_result(data)

    def error_received(self, exc: Exception) -> None:
        """Ignore an unreachable resolver: the query times out and the next resolver is asked."""

    async def query(self, query: bytes) -> bytes | None:
        for server in self._servers:
            number = secrets.randbelow(1 << 16)
            while number in self._waiting:
                number = secrets.randbelow(1 << 16)
            future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
            self._waiting[number] = future
            try:
                if self._transport is None:
                    return None
                self._transport.sendto(struct.pack(">H", number) + query[2:], (server, 53))
                async with asyncio.timeout(_UPSTREAM_TIMEOUT):
                    return query[:2] + (await future)[2:]
            except (TimeoutError, OSError):
                continue
            finally:
                self._waiting.pop(number, None)
        return None


class Responder:
    """Turns the bytes of a query into those of its answer."""

    def __init__(self, zone: Zone, upstream: Upstream | None) -> None:
        self._zone = zone
        self._upstream = upstream

    async def respond(self, query: bytes, limit: int = 65535) -> bytes | None:
        try:
            question = dns_message.parse(query)
        except dns_message.MessageError:
            return None
        answer = self._zone.answer(question)
        if answer is None:
            forwarded = await self._upstream.query(query) if self._upstream else None
            return forwarded or dns_message.build_reply(question, Code.SERVFAIL, [], authoritative=False)
        code, records = answer
        packed = dns_message.build_reply(question, code, records, authoritative=True)
        while len(packed) > limit and records:
            records = records[:-1]
            packed = dns_message.build_reply(question, code, records, authoritative=True, truncated=True)
        return packed


class _UdpServer(asyncio.DatagramProtocol):
    def __init__(self, responder: Responder, tasks: set[asyncio.Task[None]]) -> None:
        self._responder = responder
        self._tasks = tasks
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        task = asyncio.get_running_loop().create_task(self._answer(data, addr))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, data: bytes, address: tuple[str | object, int]) -> None:
        reply = await self._responder.respond(data, 1232)
        if reply and self._transport:
            self._transport.sendto(reply, address)


async def serve(responder: Responder, address: str, port: int = 53) -> None:
    """Answer queries over UDP and TCP until cancelled."""
    tasks: set[asyncio.Task[None]] = set()

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                size = struct.unpack(">H", await reader.readexactly(2))[0]
                reply = await responder.respond(await reader.readexactly(size))
                if reply:
                    writer.write(struct.pack(">H", len(reply)) + reply)
                    await writer.drain()
        writer.close()

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _UdpServer(responder, tasks), local_addr=(address, port)
    )
    try:
        server = await asyncio.start_server(stream, address, port)
        async with server:
            await server.serve_forever()
    finally:
        transport.close()


async def open_upstream(outside: socket.socket | None, servers: list[str]) -> Upstream | None:
    if outside is None or not servers:
        return None
    loop = asyncio.get_running_loop()
    _, upstream = await loop.create_datagram_endpoint(lambda: Upstream(servers), sock=outside)
    return upstream


def _pod_address(label: str, kind: int) -> Answer:
    try:
        address = str(IPv4Address(label.replace("-", ".")))
    except AddressValueError:
        return Code.NXDOMAIN, []
    return Code.NOERROR, [dns_message.a_record(address)] if kind == Type.A else []


def _label(backend: Backend) -> str:
    return backend.hostname or backend.address.replace(".", "-")
