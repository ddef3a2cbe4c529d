"""Where a server is, and how to get there: directly, by a Unix socket, or through a proxy."""

import base64
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit


class Proxy(NamedTuple):
    tls: bool
    host: str
    port: int
    authorization: str
    """The value of `Proxy-Authorization`; empty for none."""


class Origin(NamedTuple):
    tls: bool
    host: str
    port: int
    name: str
    """As `Host` says it: with the port unless it is the usual one."""
    prefix: str = ""
    """Path that everything on the server is under."""
    unix_socket: str | None = None
    """To be dialled instead of host and port; TLS still verifies the host's name."""
    server_name: str | None = None
    """What TLS verifies instead of the host's name."""
    proxy: Proxy | None = None

    @staticmethod
    def from_url(
        url: str,
        *,
        unix_socket: str | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
    ) -> "Origin":
        parts = urlsplit(url)
        tls, host, port = _address(parts)
        name = f"[{host}]" if ":" in host else host
        if port != (443 if tls else 80):
            name += f":{port}"
        way = _proxy(proxy) if proxy and unix_socket is None else None
        return Origin(tls, host, port, name, parts.path.rstrip("/"), unix_socket, server_name, way)


def _proxy(url: str) -> Proxy:
    parts = urlsplit(url)
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(*_address(parts), authorization)


def _address(parts: SplitResult) -> tuple[bool, str, int]:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{parts.geturl()}: not the URL of an HTTP server")
    tls = parts.scheme == "https"
    return tls, parts.hostname, parts.port or (443 if tls else 80)
