"""SOCKS5 byte by byte. That it works through a real proxy is tested with kubeconfigs."""

import asyncio
import socket

import pytest

from argosy.wire.errors import ProxyError
from argosy.wire.socks import open_tunnel

GRANTED = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x1f\x90"


async def converse(
    answers: list[bytes], host: str = "api", login: tuple[str, str] | None = None
) -> list[bytes]:
    """What is sent to a proxy that gives these answers; what follows the last of them is left alone."""
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
    "a name": ("api", b"\x03\x03api"),
    "an address": ("10.0.0.1", b"\x01\x0a\x00\x00\x01"),
    "an address of IPv6": ("::1", b"\x04" + bytes(15) + b"\x01"),
}


@pytest.mark.parametrize("sentence", HOSTS)
async def test_the_host_is_told_as(sentence: str) -> None:
    host, want = HOSTS[sentence]
    sent = await converse([b"\x05\x00", GRANTED], host)
    assert sent == [b"\x05\x01\x00", b"\x05\x01\x00" + want + b"\x19\x2b"]


async def test_a_login_is_told_if_the_proxy_wants_one() -> None:
    sent = await converse([b"\x05\x02", b"\x01\x00", GRANTED], login=("me", "secret"))
    assert sent[:2] == [b"\x05\x02\x00\x02", b"\x01\x02me\x06secret"]
    sent = await converse([b"\x05\x00", GRANTED], login=("me", "secret"))
    assert len(sent) == 2


BOUND = {
    "a name": b"\x05\x00\x00\x03\x02xx\x00\x00",
    "an address of IPv6": b"\x05\x00\x00\x04" + bytes(18),
}


@pytest.mark.parametrize("sentence", BOUND)
async def test_the_proxys_own_address_is_passed_over_when_it_is(sentence: str) -> None:
    await converse([b"\x05\x00", BOUND[sentence]])


REFUSALS: dict[str, tuple[list[bytes], str]] = {
    "something else than SOCKS5": ([b"HT"], "does not speak SOCKS5"),
    "a login that is not given": ([b"\x05\x02"], "wants a login"),
    "no method that we have": ([b"\x05\xff"], "wants a login"),
    "the end": ([b"\x05"], "closed the connection"),
    "that the host refuses": ([b"\x05\x00", b"\x05\x05\x00\x01"], "api:6443: connection refused"),
    "an error of its own": ([b"\x05\x00", b"\x05\x63\x00\x01"], "error 99"),
}


@pytest.mark.parametrize("sentence", REFUSALS)
async def test_a_proxy_that_answers(sentence: str) -> None:
    answers, want = REFUSALS[sentence]
    with pytest.raises(ProxyError, match=want):
        await converse(answers)


async def test_a_login_that_is_refused_is_said() -> None:
    with pytest.raises(ProxyError, match="refused the user name or password"):
        await converse([b"\x05\x02", b"\x01\x01"], login=("me", "wrong"))


async def test_a_name_that_is_too_long_for_socks5_is_said() -> None:
    with pytest.raises(ProxyError, match="255 bytes"):
        await converse([b"\x05\x00"], host="a" * 256)
