"""Origins and proxies are read from URLs, addresses are tried in parallel, and sockets use keepalive.

TLS and proxies are tested with real certificates in the engine's tests of its transport.
"""

import asyncio
import socket
from collections.abc import Iterator

import pytest

from argosy.wire import dial
from argosy.wire.origin import Origin, Proxy

URLS = {
    "http://a": Origin(False, "a", 80, "a"),
    "http://a:80/": Origin(False, "a", 80, "a"),
    "https://a:6443": Origin(True, "a", 6443, "a:6443"),
    "https://a:443/k8s/clusters/c/": Origin(True, "a", 443, "a", "/k8s/clusters/c"),
    "https://[::1]:6443": Origin(True, "::1", 6443, "[::1]:6443"),
    "https://[::1]": Origin(True, "::1", 443, "[::1]"),
}


@pytest.mark.parametrize("url", URLS)
def test_origin_from_url(url: str) -> None:
    assert Origin.from_url(url) == URLS[url]


PROXIES = {
    "http://p:3128": Proxy("http", "p", 3128),
    "https://p": Proxy("https", "p", 443),
    "socks5://p": Proxy("socks5", "p", 1080),
    "http://me:s%3Aecret@p": Proxy("http", "p", 80, ("me", "s:ecret")),
    "socks5://me@[::1]:9": Proxy("socks5", "::1", 9, ("me", "")),
}


@pytest.mark.parametrize("url", PROXIES)
def test_proxy_from_url(url: str) -> None:
    assert Origin.from_url("http://a", proxy=url).proxy == PROXIES[url]
    assert Origin.from_url("http://a", proxy=url, unix_socket="/s").proxy is None


@pytest.mark.parametrize("url", ["", "a:80", "ftp://a", "http://", "http://a:port", "http://a:99999"])
def test_an_invalid_url_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match=r"unsupported scheme|no host|[Pp]ort"):
        Origin.from_url(url)
    with pytest.raises(ValueError, match=r"unsupported scheme|no host|[Pp]ort"):
        Origin.from_url("http://a", proxy=url or "socks4://p")


def test_the_login_of_a_proxy_becomes_a_basic_authorization_header() -> None:
    assert Proxy.from_url("http://me:s%3Aecret@p").authorization == "Basic bWU6czplY3JldA=="
    assert Proxy.from_url("http://p").authorization == ""


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener


async def test_a_connection_uses_tcp_keepalive(listener: socket.socket) -> None:
    with await dial.connect(*listener.getsockname()) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 10
        assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3


@pytest.fixture
def unresponsive() -> Iterator[tuple[str, int]]:
    """An address that does not answer: its listener's queue is full."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield full.getsockname()
        for filler in fillers:
            filler.close()


def resolve_to(monkeypatch: pytest.MonkeyPatch, *addresses: tuple[str, int]) -> None:
    async def getaddrinfo(*_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)


async def test_the_next_address_is_tried_while_one_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket, unresponsive: tuple[str, int]
) -> None:
    resolve_to(monkeypatch, unresponsive, listener.getsockname())
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(60):
        opened = await dial.connect("host", 1)
    with opened:
        assert opened.getpeername() == listener.getsockname()
    assert asyncio.get_running_loop().time() - began >= dial.STAGGER_SECONDS


async def test_the_next_address_is_tried_at_once_if_one_refuses(
    monkeypatch: pytest.MonkeyPatch, listener: socket.socket
) -> None:
    monkeypatch.setattr(dial, "STAGGER_SECONDS", 60)
    resolve_to(monkeypatch, ("127.0.0.1", unused_port()), listener.getsockname())
    async with asyncio.timeout(60):
        with await dial.connect("host", 1) as opened:
            assert opened.getpeername() == listener.getsockname()


async def test_if_all_addresses_refuse_the_error_names_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ports = unused_port(), unused_port()
    resolve_to(monkeypatch, *(("127.0.0.1", port) for port in ports))
    with pytest.raises(OSError, match=f"{ports[0]}.*{ports[1]}"):
        await dial.connect("host", 1)


async def test_connecting_times_out(monkeypatch: pytest.MonkeyPatch, unresponsive: tuple[str, int]) -> None:
    monkeypatch.setattr(dial, "CONNECT_TIMEOUT_SECONDS", 0.1)
    with pytest.raises(TimeoutError):
        await dial.connect(*unresponsive)


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
