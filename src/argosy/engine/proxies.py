"""Finds the proxy for a server in the environment: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.

The rules are those of Go's `golang.org/x/net/http/httpproxy`, which kubectl follows:

- The upper-case name of a variable wins over the lower-case one, and an empty value counts as none.
- The variable is chosen by the scheme of the server's URL. A proxy without a scheme is an HTTP proxy.
- `localhost` and loopback addresses are never reached through a proxy.
- `NO_PROXY` is a comma-separated list of addresses, networks (`10.0.0.0/8`) and domains. `example.com`
  includes its subdomains; `.example.com` and `*.example.com` are only the subdomains. An address or domain
  with a port matches only that port. `*` matches everything.
"""

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.wire.origin import Origin, Proxy

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def environment_proxy(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server URL; None means a direct connection."""
    origin = Origin.from_url(server)
    name, value = _variable(environment, "HTTPS_PROXY" if origin.tls else "HTTP_PROXY")
    if not value or not _uses_proxy(origin, _variable(environment, "NO_PROXY")[1]):
        return None
    url = _with_scheme(value)
    try:
        Proxy.from_url(url)
    except ValueError as error:
        raise KubeconfigError(f"{name}: invalid value {_without_login(url)!r}: {error}") from error
    return url


def _variable(environment: Mapping[str, str], upper: str) -> tuple[str, str]:
    for name in (upper, upper.lower()):
        if value := environment.get(name):
            return name, value
    return upper, ""


def _with_scheme(value: str) -> str:
    """Add the scheme http to `proxy:3128`. Like Go, treat socks5h as socks5: the proxy resolves names."""
    parts = urlsplit(value) if "://" in value else None
    if parts is None or not parts.scheme or not parts.netloc:
        return f"http://{value}"
    return parts._replace(scheme="socks5").geturl() if parts.scheme == "socks5h" else value


def _without_login(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _uses_proxy(origin: Origin, no_proxy: str) -> bool:
    host, address = origin.host.lower(), _parse_address(origin.host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return False
    entries = [entry.strip().lower() for entry in no_proxy.split(",")]
    return not any(_matches(entry, host, origin.port, address) for entry in entries if entry)


def _matches(entry: str, host: str, port: int, address: Address | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry:
        return address is not None and _is_in_network(address, entry)
    excluded = _split_port(entry)
    if excluded.port and excluded.port != str(port):
        return False
    excluded_address = _parse_address(excluded.host)
    if excluded_address is not None or address is not None:
        return excluded_address == address
    domain = excluded.host.removeprefix("*") if excluded.host.startswith("*.") else excluded.host
    if not domain:
        return False
    return host.endswith(domain) if domain.startswith(".") else f".{host}".endswith(f".{domain}")


class _HostPort(NamedTuple):
    host: str
    port: str


def _split_port(entry: str) -> _HostPort:
    """Split `host:port` and `[address]:port`; the port is empty if there is none."""
    if entry.startswith("[") and "]:" in entry:
        return _HostPort(*entry[1:].split("]:", 1))
    if entry.count(":") == 1:
        return _HostPort(*entry.split(":"))
    return _HostPort(entry, "")


def _parse_address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # ::ffff:10.0.0.1 and 10.0.0.1 are the same address.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_in_network(address: Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
