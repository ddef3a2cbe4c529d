"""The cluster's DNS: services and pods by name, everything else asked of the host's resolvers.

Answers as CoreDNS does for `cluster.local`: A of a service is its cluster address, of a headless one the
addresses of its pods; pods with a hostname have a name below their service; SRV for named ports; PTR for
addresses. Upstream queries go out over a socket made in the host's network, because the agent itself lives in
the cluster's.
"""

import asyncio
import contextlib
import itertools
import secrets
import socket
import struct
from collections.abc import Callable
from ipaddress import AddressValueError, IPv4Address
from typing import cast

from dnslib import CNAME, PTR, QTYPE, RCODE, RR, SRV, A, DNSError, DNSHeader, DNSQuestion, DNSRecord

from argosy.local.node.kinds import Service
from argosy.local.node.services import Backend, Directory

_TTL = 5
_UPSTREAM_TIMEOUT = 3.0


class Zone:
    """Answers for names below the cluster domain. Pure over the directory."""

    def __init__(self, directory: Directory, domain: str, name_of: Callable[[str], str | None]) -> None:
        self._directory = directory
        self._domain = domain
        self._name_of = name_of

    def answer(self, question: DNSQuestion) -> tuple[int, list[RR]] | None:
        """Response code and records; None when the name is not ours to answer."""
        name = str(question.qname).rstrip(".").lower()
        kind = QTYPE[question.qtype]
        if name.endswith(".in-addr.arpa"):
            return self._reverse(question, name)
        if name != self._domain and not name.endswith(f".{self._domain}"):
            return None
        labels = name.removesuffix(self._domain).rstrip(".").split(".")
        if labels[-1:] == ["pod"] and len(labels) == 3:
            return self._pod_address(question, labels[0], kind)
        if labels[-1:] != ["svc"] or len(labels) < 3:
            return (RCODE.NOERROR if name == self._domain else RCODE.NXDOMAIN), []
        service = self._directory.service(labels[-2], labels[-3])
        if service is None:
            return RCODE.NXDOMAIN, []
        return self._service(question, service, labels[:-3], kind)

    def _service(
        self, question: DNSQuestion, service: Service, below: list[str], kind: str
    ) -> tuple[int, list[RR]]:
        backends = self._directory.backends(service)
        if len(below) == 2 and below[0].startswith("_") and below[1].startswith("_"):
            return self._srv(question, service, backends, below[0][1:], below[1][1:], kind)
        if len(below) == 1:
            backends = [b for b in backends if _label(b) == below[0]]
            if not backends:
                return RCODE.NXDOMAIN, []
        elif below:
            return RCODE.NXDOMAIN, []
        if service.spec.type == "ExternalName":
            alias = CNAME(service.spec.external_name)
            return RCODE.NOERROR, [RR(question.qname, QTYPE.CNAME, ttl=_TTL, rdata=alias)]
        if service.headless or below:
            addresses = [backend.address for backend in backends]
        else:
            addresses = [service.spec.cluster_ip]
        if not addresses:
            return RCODE.NXDOMAIN, []
        if kind not in ("A", "ANY"):
            return RCODE.NOERROR, []
        return RCODE.NOERROR, [_a(question, address) for address in addresses]

    def _srv(
        self,
        question: DNSQuestion,
        service: Service,
        backends: list[Backend],
        port: str,
        protocol: str,
        kind: str,
    ) -> tuple[int, list[RR]]:
        base = f"{service.metadata.name}.{service.metadata.namespace}.svc.{self._domain}"
        ports = [p for p in service.spec.ports if p.name == port and p.protocol.lower() == protocol]
        if not ports:
            return RCODE.NXDOMAIN, []
        if kind not in ("SRV", "ANY"):
            return RCODE.NOERROR, []
        if service.headless:
            targets = [(f"{_label(b)}.{base}", b.ports.get(port, ports[0].port)) for b in backends]
        else:
            targets = [(base, ports[0].port)]
        return RCODE.NOERROR, [
            RR(question.qname, QTYPE.SRV, ttl=_TTL, rdata=SRV(0, 100, number, target))
            for target, number in targets
        ]

    def _pod_address(self, question: DNSQuestion, label: str, kind: str) -> tuple[int, list[RR]]:
        try:
            address = str(IPv4Address(label.replace("-", ".")))
        except AddressValueError:
            return RCODE.NXDOMAIN, []
        return RCODE.NOERROR, [_a(question, address)] if kind == "A" else []

    def _reverse(self, question: DNSQuestion, name: str) -> tuple[int, list[RR]] | None:
        address = ".".join(reversed(name.removesuffix(".in-addr.arpa").split(".")))
        target = self._name_of(address)
        if target is None:
            return None
        return RCODE.NOERROR, [RR(question.qname, QTYPE.PTR, ttl=_TTL, rdata=PTR(f"{target}.{self._domain}"))]


class Upstream(asyncio.DatagramProtocol):
    """Asks the host's resolvers, one query id per question in flight."""

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
        """A resolver that cannot be reached: the question runs into its timeout and the next one is asked."""

    async def ask(self, query: bytes) -> bytes | None:
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
    """From a query's bytes to an answer's."""

    def __init__(self, zone: Zone, upstream: Upstream | None) -> None:
        self._zone = zone
        self._upstream = upstream

    async def respond(self, query: bytes, limit: int = 65535) -> bytes | None:
        try:
            record = DNSRecord.parse(query)
        except (DNSError, struct.error):
            return None
        answer = self._zone.answer(record.q)
        if answer is None:
            forwarded = await self._upstream.ask(query) if self._upstream else None
            return forwarded or _reply(record, RCODE.SERVFAIL, [], authoritative=False)
        packed = _reply(record, *answer, authoritative=True)
        for kept in itertools.count(len(answer[1]), -1):
            if len(packed) <= limit or kept <= 0:
                return packed
            packed = _reply(record, answer[0], answer[1][: kept - 1], authoritative=True, truncated=True)
        return packed


class _Datagrams(asyncio.DatagramProtocol):
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
    """Answer on UDP and TCP until cancelled."""
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
        lambda: _Datagrams(responder, tasks), local_addr=(address, port)
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


def _reply(
    query: DNSRecord, code: int, records: list[RR], *, authoritative: bool, truncated: bool = False
) -> bytes:
    header = DNSHeader(
        id=query.header.id,
        qr=1,
        aa=int(authoritative),
        ra=1,
        rd=query.header.rd,
        rcode=code,
        tc=int(truncated),
    )
    packed = DNSRecord(header, q=query.q, rr=records).pack()
    return bytes(packed)


def _a(question: DNSQuestion, address: str) -> RR:
    return RR(question.qname, QTYPE.A, ttl=_TTL, rdata=A(address))


def _label(backend: Backend) -> str:
    return backend.hostname or backend.address.replace(".", "-")
