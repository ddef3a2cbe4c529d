"""SOCKS5 byte by byte. Tests with kubeconfigs use a real proxy."""

import asyncio
import socket

import pytest

from argosy.wire.errors import ProxyError
from argosy.wire.socks import open_tunnel

GRANTED = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x1f\x90"


async def open_through_proxy(
    answers: list[bytes], host: str = "api", login: tuple[str, str] | None = None
) -> list[bytes]:
    """Return what is sent to a proxy with these answers; checks that nothing after the last one is read."""
    ours, theirs = socket.socketpair()
    sent: list[bytes] = []
    loop = asyncio.get_running_loop()

    async def proxy() -> None:
        for answer in answers:
            sent.append(await loop.sock_recv(theirs, 1024))
            await loop.sock_sendall(theirs, answer)
        theirs.shutdown(socket.SHUT_WR)

    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        task = asyncio.create_task(proxy())
        try:
            await open_tunnel(ours, host, 6443, login)
        finally:
            await task
        assert await loop.sock_recv(ours, 10) == b""
    return sent


HOSTS = {
    "host name: sent as a name": ("api", b"\x03\x03api"),
    "IPv4 address: sent as four bytes": ("10.0.0.1", b"\x01\x0a\x00\x00\x01"),
    "IPv6 address: sent as sixteen bytes": ("::1", b"\x04" + bytes(15) + b"\x01"),
}


@pytest.mark.parametrize("case", HOSTS)
async def test_encoding_of_the_host(case: str) -> None:
    host, want = HOSTS[case]
    sent = await open_through_proxy([b"\x05\x00", GRANTED], host)
    assert sent == [b"\x05\x01\x00", b"\x05\x01\x00" + want + b"\x19\x2b"]


async def test_the_login_is_sent_only_if_the_proxy_requires_one() -> None:
    sent = await open_through_proxy([b"\x05\x02", b"\x01\x00", GRANTED], login=("me", "secret"))
    assert sent[:2] == [b"\x05\x02\x00\x02", b"\x01\x02me\x06secret"]
    sent = await open_through_proxy([b"\x05\x00", GRANTED], login=("me", "secret"))
    assert len(sent) == 2


BOUND = {
    "bound to a host name: skipped": b"\x05\x00\x00\x03\x02xx\x00\x00",
    "bound to an IPv6 address: skipped": b"\x05\x00\x00\x04" + bytes(18),
}


@pytest.mark.parametrize("answer", BOUND.values(), ids=BOUND)
async def test_the_address_of_the_proxy_is_skipped(answer: bytes) -> None:
    await open_through_proxy([b"\x05\x00", answer])


ERRORS: dict[str, tuple[list[bytes], str]] = {
    "another protocol: error": ([b"HT"], "does not speak SOCKS5"),
    "login required and none configured: error": ([b"\x05\x02"], "requires a login"),
    "no supported authentication method: error": ([b"\x05\xff"], "requires a login"),
    "connection closed: error": ([b"\x05"], "closed the connection"),
    "host refuses the connection: error names the host": (
        [b"\x05\x00", b"\x05\x05\x00\x01"],
        "api:6443: connection refused",
    ),
    "unknown error code: error has the code": ([b"\x05\x00", b"\x05\x63\x00\x01"], "error 99"),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_errors_of_the_proxy(case: str) -> None:
    answers, want = ERRORS[case]
    with pytest.raises(ProxyError, match=want):
        await open_through_proxy(answers)


async def test_a_rejected_login_is_an_error() -> None:
    with pytest.raises(ProxyError, match="rejected the user name or password"):
        await open_through_proxy([b"\x05\x02", b"\x01\x01"], login=("me", "wrong"))


async def test_a_host_name_too_long_for_socks5_is_an_error() -> None:
    with pytest.raises(ProxyError, match="255 bytes"):
        await open_through_proxy([b"\x05\x00"], host="a" * 256)
