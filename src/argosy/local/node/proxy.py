"""Relays service ports to endpoints in user space; service addresses are assigned to the bridge.

This needs no packet filter and works rootless. A TCP connection is relayed to a random endpoint, and to the
next one if it is refused; UDP keeps one endpoint per client while packets flow. Services of the control plane
are relayed to a Unix socket, which crosses from the cluster's network to the host.
"""

import asyncio
import random
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, cast

from argosy.engine.logs import Logger
from argosy.kinds.labels import DOMAIN, OPERATOR_NAMESPACE
from argosy.local.node.netlink import Netlink
from argosy.local.service_types import Service

log = Logger(__name__)

SOCKET_ANNOTATION = f"{DOMAIN}/unix-socket"
_OPERATOR_SERVICE = (OPERATOR_NAMESPACE, "argosy-operator")
_READ_BYTES = 1 << 16
_CONNECT_SECONDS = 3.0
_UDP_IDLE_SECONDS = 30.0


def control_plane_socket(service: Service) -> str:
    """Return the Unix socket behind a Service of the control plane; empty for every other Service.

    A socket is chosen by the Service's name, never by what the Service says: whoever may annotate a Service
    must not reach other sockets of the state folder. The annotation tells a local operator's Service from
    that of an operator which runs in pods.
    """
    meta = service.metadata
    if (meta.namespace, meta.name) == ("default", "kubernetes"):
        return "apiserver.sock"
    local = meta.annotations.get(SOCKET_ANNOTATION) == "operator"
    return "operator.sock" if local and (meta.namespace, meta.name) == _OPERATOR_SERVICE else ""


class Listener(NamedTuple):
    """A port of a service, and the address to listen on."""

    address: str
    port: int
    protocol: str
    namespace: str
    service: str
    name: str


Endpoints = Callable[[Listener], list[tuple[str, int] | Path]]
"""Where a listener's connections may go now: addresses, or a Unix socket."""


def listeners(services: Iterable[Service]) -> set[Listener]:
    return {
        Listener(
            service.spec.cluster_ip,
            port.port,
            port.protocol,
            service.metadata.namespace,
            service.metadata.name,
            port.name,
        )
        for service in services
        if not service.is_headless and service.spec.type != "ExternalName"
        for port in service.spec.ports
        if port.protocol in ("TCP", "UDP")
    }


class Proxy:
    def __init__(self, bridge: str, endpoints: Endpoints) -> None:
        self._bridge = bridge
        self._endpoints = endpoints
        self._open: dict[Listener, asyncio.Server | asyncio.DatagramTransport] = {}
        self._connections: set[asyncio.Task[None]] = set()

    async def update(self, wanted: set[Listener]) -> None:
        """Listen on these ports and close all others."""
        for listener in self._open.keys() - wanted:
            self._open.pop(listener).close()
        self._set_addresses({listener.address for listener in wanted})
        for listener in wanted - self._open.keys():
            try:
                self._open[listener] = await self._listen(listener)
            except OSError as error:
                log.warning("a service port cannot be served", service=listener.service, error=str(error))

    def close(self) -> None:
        for opened in self._open.values():
            opened.close()
        for task in self._connections:
            task.cancel()

    def _set_addresses(self, wanted: set[str]) -> None:
        with Netlink() as netlink:
            index = netlink.index(self._bridge)
            if index is None:
                return
            present = {address for address, prefix in netlink.addresses(index) if prefix == 32}
            for address in wanted - present:
                netlink.add_address(index, address, 32)
            for address in present - wanted:
                netlink.delete_address(index, address, 32)

    async def _listen(self, listener: Listener) -> asyncio.Server | asyncio.DatagramTransport:
        loop = asyncio.get_running_loop()
        if listener.protocol == "UDP":
            transport, _ = await loop.create_datagram_endpoint(
                lambda: _UdpRelay(listener, self._endpoints), local_addr=(listener.address, listener.port)
            )
            return transport

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            if task:
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
            await self._relay(listener, reader, writer)

        return await asyncio.start_server(relay, listener.address, listener.port, backlog=512)

    async def _relay(
        self, listener: Listener, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        candidates = self._endpoints(listener)
        random.shuffle(candidates)
        for candidate in candidates:
            try:
                async with asyncio.timeout(_CONNECT_SECONDS):
                    if isinstance(candidate, Path):
                        far_reader, far_writer = await asyncio.open_unix_connection(candidate)
                    else:
                        far_reader, far_writer = await asyncio.open_connection(*candidate)
            except (OSError, TimeoutError):
                continue
            try:
                await asyncio.gather(_pump(reader, far_writer, writer), _pump(far_reader, writer, far_writer))
            finally:
                far_writer.close()
                writer.close()
            return
        _reset(writer)


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: asyncio.StreamWriter
) -> None:
    """Copy one direction. The end of input is passed on, so half-closed connections work."""
    try:
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except (OSError, RuntimeError):
        writer.close()
        back.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Reset a connection for which there is no endpoint."""
    opened = writer.get_extra_info("socket")
    if opened is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    writer.transport.abort()


class _UdpRelay(asyncio.DatagramProtocol):
    """Relays UDP of one service port, with a socket per client so that answers can be attributed."""

    def __init__(self, listener: Listener, endpoints: Endpoints) -> None:
        self._listener = listener
        self._endpoints = endpoints
        self._transport: asyncio.DatagramTransport | None = None
        self._clients: dict[object, _UdpFlow] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for flow in self._clients.values():
            flow.close()

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        flow = self._clients.get(addr)
        if flow is None:
            addresses = [e for e in self._endpoints(self._listener) if not isinstance(e, Path)]
            if not addresses or self._transport is None:
                return
            flow = _UdpFlow(self._transport, addr, lambda: self._clients.pop(addr, None))
            self._clients[addr] = flow
            target = random.choice(addresses)  # noqa: S311
            task = asyncio.get_running_loop().create_task(flow.open(target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        flow.send(data)


class _UdpFlow(asyncio.DatagramProtocol):
    def __init__(
        self, back: asyncio.DatagramTransport, client: tuple[str | object, int], gone: Callable[[], object]
    ) -> None:
        self._back = back
        self._client = client
        self._gone = gone
        self._waiting: list[bytes] = []
        self._transport: asyncio.DatagramTransport | None = None
        self._idle: asyncio.TimerHandle | None = None

    async def open(self, target: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(lambda: self, remote_addr=target)
        for data in self._waiting:
            self._transport.sendto(data)
        self._touch()

    def send(self, data: bytes) -> None:
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.sendto(data)
            self._touch()

    def datagram_received(self, data: bytes, addr: tuple[str | object, int]) -> None:
        self._back.sendto(data, self._client)
        self._touch()

    def error_received(self, exc: Exception) -> None:
        """Ignore a rejected datagram: UDP may lose datagrams."""

    def close(self) -> None:
        if self._idle:
            self._idle.cancel()
        if self._transport:
            self._transport.close()
        self._gone()

    def _touch(self) -> None:
        if self._idle:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(_UDP_IDLE_SECONDS, self.close)
