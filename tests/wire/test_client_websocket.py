"""WebSockets of the client: the handshake, and what closes them."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from argosy.wire.client import Client
from argosy.wire.errors import ProtocolError, WebSocketHandshakeError
from argosy.wire.origin import Origin
from argosy.wire.websocket import accept_key

Handler = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HELLO = b"\x82\x05hello"


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[Client]:
    """Yield a client of a server whose handler gets the head of the handshake."""
    tasks: list[asyncio.Task[None] | None] = []

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.current_task())
        await handler(await reader.readuntil(b"\r\n\r\n"), reader, writer)
        writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    client = Client(Origin.from_url(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    try:
        async with asyncio.timeout(20):
            yield client
    finally:
        await client.close()
        server.close()
        for task in tasks:
            assert task is not None
            await asyncio.wait((task,), timeout=60)
            assert task.done()


def switching_protocols(head: bytes, *extra: str) -> bytes:
    key = re.search(rb"Sec-WebSocket-Key: (\S+)", head)
    assert key is not None
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Connection: Upgrade",
        "Upgrade: websocket",
        f"Sec-WebSocket-Accept: {accept_key(key[1]).decode()}",
        *extra,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


async def test_the_handshake_offers_subprotocols_and_returns_the_chosen_one() -> None:
    heads: list[bytes] = []

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(switching_protocols(head, "Sec-WebSocket-Protocol: v4") + HELLO)  # in one write
        await reader.read()

    async with (
        served(handler) as client,
        client.websocket("/exec?a=b", {"X": "y"}, ("v5", "v4")) as socket,
    ):
        assert socket.subprotocol == "v4"
        assert await socket.receive() == b"hello"
    lines = heads[0].split(b"\r\n")
    assert lines[0] == b"GET /exec?a=b HTTP/1.1"
    for line in (
        b"X: y",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Protocol: v5, v4",
    ):
        assert line in lines


async def test_a_rejected_handshake_keeps_the_response() -> None:
    async def handler(_head: bytes, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 403 Forbidden\r\nRetry-After: 3\r\nContent-Length: 11\r\n\r\nnot for you")

    async with served(handler) as client:
        with pytest.raises(WebSocketHandshakeError) as caught:
            async with client.websocket("/", {}):
                pass
    error = caught.value
    assert (error.status, error.headers["retry-after"], error.body) == (403, "3", b"not for you")


INVALID_RESPONSES: dict[str, Callable[[bytes], bytes]] = {
    "wrong Sec-WebSocket-Accept: error": lambda head: switching_protocols(head).replace(
        b"Accept: ", b"Accept: x"
    ),
    "subprotocol that was not offered: error": lambda head: switching_protocols(
        head, "Sec-WebSocket-Protocol: v6"
    ),
    "extension that was not offered: error": lambda head: switching_protocols(
        head, "Sec-WebSocket-Extensions: permessage-deflate"
    ),
    "status 101 without an Upgrade header: error": lambda _head: b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "error response larger than the limit: error": lambda _head: (
        b"HTTP/1.1 500 No\r\n\r\n" + b"x" * (2 << 20)
    ),
}


@pytest.mark.parametrize("case", INVALID_RESPONSES)
async def test_invalid_responses_to_a_handshake(case: str) -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INVALID_RESPONSES[case](head))
        with pytest.raises(ConnectionError):
            await writer.drain()
            if not await reader.read():
                raise ConnectionResetError

    async with served(handler) as client:
        with pytest.raises(ProtocolError):
            async with client.websocket("/", {}, ("v5",), timeout=60):
                pass


async def test_a_handshake_times_out_and_an_open_socket_does_not() -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"/late" in head:
            await reader.read()
            return
        writer.write(switching_protocols(head))
        await asyncio.sleep(1.2)
        writer.write(HELLO)
        await reader.read()

    async with served(handler) as client:
        with pytest.raises(TimeoutError):
            async with client.websocket("/late", {}, timeout=0.1):
                pass
        async with client.websocket("/", {}, timeout=1) as socket:
            assert await socket.receive() == b"hello"


async def test_messages_are_masked_and_closing_sends_a_close_frame() -> None:
    frames = b""

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal frames
        writer.write(switching_protocols(head))
        frames = await reader.readexactly(2 + 4 + 2)
        frames += await reader.readexactly(2 + 4 + 2)
        writer.write(b"\x88\x02\x03\xe8")

    async with served(handler) as client, client.websocket("/", {}) as socket:
        await socket.send(b"hi")
    assert frames[:2] == b"\x82\x82"
    assert bytes(byte ^ frames[2 + index % 4] for index, byte in enumerate(frames[6:8])) == b"hi"
    assert frames[8:10] == b"\x88\x82"


@pytest.mark.parametrize("alive", [True, False])
async def test_a_peer_that_does_not_answer_pings_is_disconnected(alive: bool) -> None:
    pings = 0

    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal pings
        writer.write(switching_protocols(head))
        while frame := await reader.read(6):
            if frame[:2] == b"\x89\x80":
                pings += 1
                if alive:
                    writer.write(b"\x8a\x00")
                if pings == 5:
                    writer.write(HELLO)

    async with served(handler) as client, client.websocket("/", {}, heartbeat_seconds=0.05) as socket:
        assert await socket.receive() == (b"hello" if alive else None)
        if not alive:
            assert socket.close_code == 1006
            with pytest.raises(ConnectionError):
                await socket.send(b"too late")
    assert pings >= 5 if alive else pings == 1


async def test_close_does_not_wait_long_for_a_peer_that_sends_no_close_frame() -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(switching_protocols(head))
        await reader.read()

    async with served(handler) as client, asyncio.timeout(60), client.websocket("/", {}):
        pass


async def test_closing_the_client_closes_its_websockets() -> None:
    async def handler(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(switching_protocols(head))
        await reader.read()

    async with served(handler) as client, client.websocket("/", {}) as socket:
        async with asyncio.timeout(60):
            await client.close()
            assert await socket.receive() is None
