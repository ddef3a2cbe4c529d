"""Which proxy the environment names for a server: `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.

The rules are those of Go's `golang.org/x/net/http/httpproxy`, which kubectl follows:

- The upper-case name of a variable wins over the lower-case one, and an empty value counts as none.
- The variable is chosen by the scheme of the server's URL. A proxy without a scheme is an HTTP proxy.
- `localhost` and loopback addresses are never reached through a proxy.
- `NO_PROXY` is a list, separated by commas, of addresses, networks (`10.0.0.0/8`) and domains (`example.com`
  with all below it; `.example.com` and `*.example.com` are only what is below it). An address or a domain may
  have a port, and is meant at that port only. `*` is everything.
"""

import ipaddress
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.wire.origin import Origin, Proxy

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def environment_proxy(server: str, environment: Mapping[str, str]) -> str | None:
    """The URL of the proxy to reach the server of this URL with; None means directly."""
    origin = Origin.from_url(server)
    name, value = _variable(environment, "HTTPS_PROXY" if origin.tls else "HTTP_PROXY")
    if not value or not _uses_proxy(origin, _variable(environment, "NO_PROXY")[1]):
        return None
    url = _with_scheme(value)
    try:
        Proxy.from_url(url)
    except ValueError as error:
        raise KubeconfigError(f"{name}: invalid value {_hide_login(url)!r}: {error}") from error
    return url


def _variable(environment: Mapping[str, str], upper: str) -> tuple[str, str]:
    for name in (upper, upper.lower()):
        if value := environment.get(name):
            return name, value
    return upper, ""


def _with_scheme(value: str) -> str:
    """`proxy:3128` is an HTTP proxy. Go resolves names at the proxy for both schemes of SOCKS5."""
    parts = urlsplit(value) if "://" in value else None
    if parts is None or not parts.scheme or not parts.netloc:
        return f"http://{value}"
    return parts._replace(scheme="socks5").geturl() if parts.scheme == "socks5h" else value


def _hide_login(url: str) -> str:
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
    named = _split_port(entry)
    if named.port and named.port != str(port):
        return False
    meant = _parse_address(named.host)
    if meant is not None or address is not None:
        return meant == address
    domain = named.host.removeprefix("*") if named.host.startswith("*.") else named.host
    if not domain:
        return False
    return host.endswith(domain) if domain.startswith(".") else f".{host}".endswith(f".{domain}")


class _Named(NamedTuple):
    host: str
    port: str


def _split_port(entry: str) -> _Named:
    """Host and port of `host:port` and `[address]:port`; the port is empty where there is none."""
    if entry.startswith("[") and "]:" in entry:
        return _Named(*entry[1:].split("]:", 1))
    if entry.count(":") == 1:
        return _Named(*entry.split(":"))
    return _Named(entry, "")


def _parse_address(host: str) -> Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    # ::ffff:10.0.0.1 and 10.0.0.1 are one address.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _is_in_network(address: Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
