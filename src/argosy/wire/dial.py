"""Opens connections over TCP or a Unix socket, with TLS, directly or through a proxy.

Of a host's addresses the first to accept is used. Connecting and the TLS handshake may take
`CONNECT_TIMEOUT_SECONDS` each. TCP keepalive detects a dead peer within about a minute, even if nothing is
sent, as while a log is followed.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import TypeAlias, cast

from argosy.wire import socks
from argosy.wire.connection import Connection
from argosy.wire.errors import ProxyError
from argosy.wire.origin import Origin, Proxy
from argosy.wire.response import ResponseParser

CONNECT_TIMEOUT_SECONDS = 10.0
KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
STAGGER_SECONDS = 0.25
"""Delay before the next address of a host is tried in parallel."""

Address: TypeAlias = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]


async def dial(origin: Origin, context: ssl.SSLContext | None) -> Connection:
    """Return a connection that is ready for requests. `context` is used if the origin requires TLS."""
    tls = context if origin.tls else None
    name = (origin.server_name or origin.host) if tls else None
    if origin.proxy is not None:
        return await _through_proxy(origin, origin.proxy, context, name)
    connection = Connection(context)
    loop = asyncio.get_running_loop()
    handshake = CONNECT_TIMEOUT_SECONDS if tls else None
    if origin.unix_socket is not None:
        async with asyncio.timeout(2 * CONNECT_TIMEOUT_SECONDS):
            await loop.create_unix_connection(
                lambda: connection,
                origin.unix_socket,
                ssl=tls,
                server_hostname=name,
                ssl_handshake_timeout=handshake,
            )
    else:
        await _attach(connection, await connect(origin.host, origin.port), tls, name)
    return connection


async def _attach(
    connection: Connection, opened: socket.socket, tls: ssl.SSLContext | None, name: str | None
) -> None:
    await asyncio.get_running_loop().create_connection(
        lambda: connection,
        sock=opened,
        ssl=tls,
        server_hostname=name,
        ssl_handshake_timeout=CONNECT_TIMEOUT_SECONDS if tls else None,
    )


async def _through_proxy(
    origin: Origin, proxy: Proxy, context: ssl.SSLContext | None, name: str | None
) -> Connection:
    connection = Connection(context)
    opened = await connect(proxy.host, proxy.port)
    if proxy.scheme == "socks5":
        await _through_socks(opened, origin, proxy)
        await _attach(connection, opened, context if origin.tls else None, name)
        return connection
    if proxy.tls and context is None:
        context = ssl.create_default_context()
    await _attach(connection, opened, context if proxy.tls else None, proxy.host if proxy.tls else None)
    if origin.is_forwarded:
        return connection  # each request has the whole URL, and the proxy forwards it
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await _tunnel(connection, origin, proxy)
        assert context is not None
        await _start_tls(connection, context, name)
    except BaseException:
        connection.abort()
        raise
    return connection


async def _through_socks(opened: socket.socket, origin: Origin, proxy: Proxy) -> None:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
            await socks.open_tunnel(opened, origin.host, origin.port, proxy.login)
    except BaseException:
        opened.close()
        raise


async def _tunnel(connection: Connection, origin: Origin, proxy: Proxy) -> None:
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    head = f"CONNECT {host}:{origin.port} HTTP/1.1\r\nHost: {host}:{origin.port}\r\n"
    if proxy.authorization:
        head += f"Proxy-Authorization: {proxy.authorization}\r\n"
    response = ResponseParser(bodiless=True)
    connection.send(head.encode() + b"\r\n", response)
    await connection.wait_head()
    if response.status // 100 != 2:
        raise ProxyError(f"the proxy {proxy.host}:{proxy.port} answered CONNECT with {response.status}")
    connection.mark_idle()


async def _start_tls(connection: Connection, context: ssl.SSLContext, name: str | None) -> None:
    transport = await asyncio.get_running_loop().start_tls(
        connection.transport,
        connection,
        context,
        server_hostname=name,
        ssl_handshake_timeout=CONNECT_TIMEOUT_SECONDS,
    )
    connection.connection_made(cast("asyncio.BaseTransport", transport))


async def connect(host: str, port: int) -> socket.socket:
    """Open a TCP connection to the first of a host's addresses that accepts one."""
    async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
        addresses = await _resolve(host, port)
        return await (_open(addresses[0]) if len(addresses) == 1 else _race(addresses))


async def _resolve(host: str, port: int) -> list[Address]:
    """Return the host's addresses, alternating between IPv4 and IPv6. Literal addresses are not looked up."""
    for family, address in ((socket.AF_INET, (host, port)), (socket.AF_INET6, (host, port, 0, 0))):
        try:
            socket.inet_pton(family, host)
        except (OSError, UnicodeError):
            continue
        return [(family, address)]
    resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [(family, cast("tuple[str, int]", address)) for family, *_, address in resolved]
    first = [address for address in addresses if address[0] == addresses[0][0]]
    second = [address for address in addresses if address[0] != addresses[0][0]]
    return [address for address in chain(*zip_longest(first, second)) if address is not None]


async def _race(addresses: Sequence[Address]) -> socket.socket:
    """Try the addresses in turn, each in parallel to those before; return the first to connect."""
    waiting = list(addresses)
    running: set[asyncio.Task[socket.socket]] = set()
    failures: list[BaseException] = []
    try:
        while True:
            if waiting:
                running.add(asyncio.create_task(_open(waiting.pop(0))))
            if not running:
                raise OSError("; ".join(map(str, failures)))
            done, running = await asyncio.wait(
                running, timeout=STAGGER_SECONDS if waiting else None, return_when=asyncio.FIRST_COMPLETED
            )
            failures += [error for task in done if (error := task.exception()) is not None]
            opened = [task.result() for task in done if task.exception() is None]
            for late in opened[1:]:
                late.close()
            if opened:
                return opened[0]
    finally:
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, socket.socket):
                result.close()


async def _open(address: Address) -> socket.socket:
    family, sockaddr = address
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            if hasattr(socket, option):
                opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        await asyncio.get_running_loop().sock_connect(opened, sockaddr)
    except BaseException:
        opened.close()
        raise
    return opened
