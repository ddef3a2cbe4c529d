"""Opens a tunnel through a SOCKS5 proxy (RFC 1928), with user name and password (RFC 1929) if configured.

The proxy resolves the host's name, as with Go's clients: a laptop outside a private network may not be able
to resolve the names inside it.
"""

import asyncio
import socket

from argosy.wire.errors import ProxyError

VERSION, LOGIN_VERSION, CONNECT = 5, 1, 1
NO_LOGIN, LOGIN, NO_METHOD = 0x00, 0x02, 0xFF
IPV4, NAME, IPV6 = 1, 3, 4

ERRORS = {
    1: "general failure",
    2: "connection not allowed by its rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "time to live expired",
    7: "command not supported",
    8: "address type not supported",
}


async def open_tunnel(connection: socket.socket, host: str, port: int, login: tuple[str, str] | None) -> None:
    """Turn a connection to the proxy into one to `host:port`; raises ProxyError if the proxy rejects it."""
    methods = bytes([NO_LOGIN] if login is None else [NO_LOGIN, LOGIN])
    await _send(connection, bytes([VERSION, len(methods)]) + methods)
    version, method = await _receive(connection, 2)
    if version != VERSION:
        raise ProxyError("the proxy does not speak SOCKS5")
    if method == LOGIN and login is not None:
        await _log_in(connection, *login)
    elif method != NO_LOGIN:
        raise ProxyError("the proxy requires a login, and its URL has none")
    await _send(connection, bytes([VERSION, CONNECT, 0]) + _address(host) + port.to_bytes(2, "big"))
    _, code, _, kind = await _receive(connection, 4)
    if code:
        raise ProxyError(f"the proxy cannot reach {host}:{port}: {ERRORS.get(code, f'error {code}')}")
    # The address that the proxy connected from is not needed.
    length = (await _receive(connection, 1))[0] if kind == NAME else {IPV4: 4, IPV6: 16}.get(kind, 0)
    await _receive(connection, length + 2)


async def _log_in(connection: socket.socket, username: str, password: str) -> None:
    await _send(connection, bytes([LOGIN_VERSION]) + _with_length(username) + _with_length(password))
    _, status = await _receive(connection, 2)
    if status:
        raise ProxyError("the proxy rejected the user name or password")


def _address(host: str) -> bytes:
    for kind, family in ((IPV4, socket.AF_INET), (IPV6, socket.AF_INET6)):
        try:
            return bytes([kind]) + socket.inet_pton(family, host)
        except (OSError, UnicodeError):
            continue
    return bytes([NAME]) + _with_length(host)


def _with_length(text: str) -> bytes:
    encoded = text.encode()
    if len(encoded) > 255:
        raise ProxyError("host name, user name or password: must be at most 255 bytes with SOCKS5")
    return bytes([len(encoded)]) + encoded


async def _send(connection: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(connection, data)


async def _receive(connection: socket.socket, size: int) -> bytes:
    """Read exactly `size` bytes, because those after them belong to the tunnelled connection."""
    data = b""
    while len(data) < size:
        piece = await asyncio.get_running_loop().sock_recv(connection, size - len(data))
        if not piece:
            raise ProxyError("the proxy closed the connection")
        data += piece
    return data
