"""Two WebSockets connected by a pair of sockets, and one WebSocket against exact bytes."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import NamedTuple, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from argosy.wire.websocket import WebSocket, accept_key, offered_subprotocols

CLOSE_NORMAL = b"\x88\x02\x03\xe8"


class Peer:
    """The other end, a plain socket for exact bytes."""

    def __init__(self, plain: socket.socket) -> None:
        self.plain = plain

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.plain, data)

    async def read(self, count: int) -> bytes:
        data = b""
        async with asyncio.timeout(60):
            while len(data) < count:
                piece = await asyncio.get_running_loop().sock_recv(self.plain, count - len(data))
                if not piece:
                    break
                data += piece
        return data

    async def some(self) -> bytes:
        async with asyncio.timeout(60):
            return await asyncio.get_running_loop().sock_recv(self.plain, 1 << 16)

    async def rest(self) -> bytes:
        return await self.read(1 << 30)


async def open_websocket(plain: socket.socket, *, client: bool, max_bytes: int = 1 << 20) -> WebSocket:
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, plain)
    opened = WebSocket(transport, client=client, max_message_bytes=max_bytes)
    transport.set_protocol(opened)
    return opened


@asynccontextmanager
async def pair() -> AsyncIterator[tuple[WebSocket, WebSocket]]:
    ours, theirs = socket.socketpair()
    server, client = await open_websocket(ours, client=False), await open_websocket(theirs, client=True)
    try:
        yield server, client
    finally:
        await asyncio.gather(server.close(), client.close())


class Server(NamedTuple):
    socket: WebSocket
    peer: Peer

    @classmethod
    async def open(cls, max_bytes: int = 1 << 20) -> Self:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        return cls(await open_websocket(ours, client=False, max_bytes=max_bytes), Peer(theirs))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.peer.plain.close()
        await self.socket.close()


def masked(opcode: int, payload: bytes, key: bytes = b"\1\2\3\4") -> bytes:
    """Return a complete frame of a client."""
    assert len(payload) < 126
    return (
        bytes([0x80 | opcode, 0x80 | len(payload)])
        + key
        + bytes(b ^ key[i % 4] for i, b in enumerate(payload))
    )


def test_accept_key_is_the_example_of_rfc_6455() -> None:
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_subprotocols_are_offered_in_order() -> None:
    assert offered_subprotocols("v5.channel.k8s.io, v4.channel.k8s.io,") == [
        "v5.channel.k8s.io",
        "v4.channel.k8s.io",
    ]


async def test_messages_in_both_directions_keep_their_order_and_type() -> None:
    messages: list[bytes | str] = [b"\0one", "two", b"", b"x" * 200_000, "grüße"]
    async with pair() as (server, client):
        for sender, receiver in ((client, server), (server, client)):
            sending = asyncio.create_task(_send_all(sender, messages))
            assert [await receiver.receive() for _ in messages] == messages
            await sending


async def _send_all(sender: WebSocket, messages: list[bytes | str]) -> None:
    for message in messages:
        await sender.send(message)


async def test_a_close_is_received_with_its_code() -> None:
    async with pair() as (server, client):
        await client.send(b"last")
        await client.close(1001)
        assert await server.receive() == b"last"
        assert await server.receive() is None
        assert (server.close_code, client.close_code) == (1001, 1001)
        with pytest.raises(ConnectionError):
            await server.send(b"too late")


async def test_a_waiting_receive_returns_none_when_the_peer_closes() -> None:
    async with pair() as (server, client):
        waiting = asyncio.create_task(server.receive())
        await asyncio.sleep(0)
        await client.close()
        assert await asyncio.wait_for(waiting, 60) is None


async def test_a_broken_connection_has_close_code_1006() -> None:
    async with await Server.open() as (server, peer):
        peer.plain.close()
        assert await server.receive() is None
        assert server.close_code == 1006


async def test_close_does_not_wait_forever_for_the_peers_close_frame() -> None:
    async with await Server.open() as (server, peer):
        async with asyncio.timeout(60):
            await server.close()
        assert await peer.rest() == CLOSE_NORMAL


async def test_a_slow_receiver_makes_the_sender_wait() -> None:
    async with pair() as (server, client):
        sending = asyncio.create_task(_send_all(client, [b"x" * 100_000] * 200))
        _, pending = await asyncio.wait([sending], timeout=0.5)
        assert pending, "20 MB were sent although nothing was received"
        for _ in range(200):
            assert await server.receive() == b"x" * 100_000
        await asyncio.wait_for(sending, 60)


async def test_a_peer_that_sends_pings_and_reads_nothing_gets_one_pong() -> None:
    async with await Server.open() as (server, peer):
        filling = asyncio.create_task(_send_all(server, [b"x" * 100_000] * 200))
        await asyncio.wait([filling], timeout=0.2)
        for number in range(5):
            await peer.send(masked(9, b"%d" % number))
        await peer.send(masked(2, b"after"))
        assert await server.receive() == b"after"
        filling.cancel()
        await asyncio.gather(filling, return_exceptions=True)
        received = b""
        while b"\x8a\x01" not in received:
            received += await peer.some()
        closing = asyncio.create_task(server.close())
        assert (received + await peer.rest()).endswith(b"x\x8a\x014" + CLOSE_NORMAL)
        await closing


INVALID = {
    "client frame without a mask: 1002": (b"\x82\x01a", 1002),
    "unknown opcode: 1002": (masked(3, b""), 1002),
    "reserved bit: 1002": (b"\xc2" + masked(2, b"a")[1:], 1002),
    "fragmented control frame: 1002": (b"\x09" + masked(9, b"")[1:], 1002),
    "control frame that is too long: 1002": (b"\x89\xfe\x01\x00", 1002),
    "continuation without a first frame: 1002": (masked(0, b"a"), 1002),
    "text that is not UTF-8: 1007": (masked(1, b"\xff\xfe"), 1007),
    "close frame of one byte: 1002": (masked(8, b"a"), 1002),
    "message larger than the limit: 1009": (masked(2, b"x" * 101), 1009),
    "message of two frames larger than the limit: 1009": (
        b"\2" + masked(2, b"x" * 60)[1:] + masked(0, b"x" * 60),
        1009,
    ),
}


@pytest.mark.parametrize("case", INVALID)
async def test_an_invalid_frame_closes_the_connection_with_a_code(case: str) -> None:
    sent, code = INVALID[case]
    async with await Server.open(max_bytes=100) as (server, peer):
        await peer.send(sent)
        close_frame = await peer.rest()
        assert close_frame[0] == 0x88
        assert int.from_bytes(close_frame[2:4]) == code
        assert await server.receive() is None
        assert server.close_code == code


@settings(deadline=None, max_examples=50)
@given(cuts=st.lists(st.integers(0, 40), max_size=8))
def test_frames_may_be_split_anywhere(cuts: list[int]) -> None:
    sent = b"\1" + masked(1, b"he")[1:] + masked(9, b"ping") + masked(0, b"llo") + masked(2, b"\0\1")

    async def check() -> None:
        async with await Server.open() as (server, peer):
            bounds = [0, *sorted(cuts), len(sent)]
            for start, stop in pairwise(bounds):
                await peer.send(sent[start:stop])
                await asyncio.sleep(0)
            assert [await server.receive(), await server.receive()] == ["hello", b"\0\1"]
            assert await peer.read(6) == b"\x8a\x04ping"

    asyncio.run(check())
