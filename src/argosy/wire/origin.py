"""The address of a server, and the way to it: directly, through a Unix socket or through a proxy."""

import base64
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

SERVER_PORTS = {"http": 80, "https": 443}
PROXY_PORTS = {**SERVER_PORTS, "socks5": 1080}


class Proxy(NamedTuple):
    scheme: str
    """`http` and `https` tunnel with CONNECT, `socks5` with SOCKS5."""
    host: str
    port: int
    login: tuple[str, str] | None = None
    """User name and password."""

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authorization(self) -> str:
        """The value of the `Proxy-Authorization` header; empty if the proxy needs no login."""
        if self.login is None:
            return ""
        return "Basic " + base64.b64encode(":".join(self.login).encode()).decode()

    @staticmethod
    def from_url(url: str) -> "Proxy":
        """Return the proxy at this URL; raises ValueError if the URL is not valid."""
        parts = urlsplit(url)
        host, port = _address(parts, PROXY_PORTS)
        login = None
        if parts.username is not None:
            login = unquote(parts.username), unquote(parts.password or "")
        return Proxy(parts.scheme, host, port, login)


class Origin(NamedTuple):
    tls: bool
    host: str
    port: int
    name: str
    """The value of the `Host` header: with the port unless it is the scheme's default."""
    prefix: str = ""
    """Path prefix of all requests."""
    unix_socket: str | None = None
    """Connected to instead of host and port; TLS still verifies the host's name."""
    server_name: str | None = None
    """Name that TLS verifies instead of the host's."""
    proxy: Proxy | None = None

    @property
    def is_forwarded(self) -> bool:
        """Return True if the proxy forwards each request, instead of tunnelling the connection."""
        return self.proxy is not None and self.proxy.scheme != "socks5" and not self.tls

    @staticmethod
    def from_url(
        url: str,
        *,
        unix_socket: str | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
    ) -> "Origin":
        """Return the server at this URL; raises ValueError if the URL is not valid."""
        parts = urlsplit(url)
        host, port = _address(parts, SERVER_PORTS)
        name = f"[{host}]" if ":" in host else host
        if port != SERVER_PORTS[parts.scheme]:
            name += f":{port}"
        used_proxy = Proxy.from_url(proxy) if proxy and unix_socket is None else None
        tls = parts.scheme == "https"
        return Origin(tls, host, port, name, parts.path.rstrip("/"), unix_socket, server_name, used_proxy)


def _address(parts: SplitResult, ports: dict[str, int]) -> tuple[str, int]:
    if parts.scheme not in ports:
        allowed = ", ".join(ports)
        raise ValueError(f"unsupported scheme {parts.scheme!r}; must be one of {allowed}")
    if not parts.hostname:
        raise ValueError("no host in the URL")
    return parts.hostname, parts.port or ports[parts.scheme]
