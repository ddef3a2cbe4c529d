"""A connection that failed is freed at once, and with it what it had read."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from argosy.wire.client import Client
from argosy.wire.connection import Connection
from argosy.wire.origin import Origin
from tests.support.gc_leaks import reference_cycles

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def saying(words: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(words)
        writer.close()

    return serve


FAILURES: dict[str, Serve] = {
    "no answer in time": silent,
    "the peer hung up": saying(b""),
    "half an answer": saying(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
    "not HTTP": saying(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
}


async def ask(url: str) -> None:
    client = Client(Origin.from_url(url))
    for _ in range(3):
        with pytest.raises((ConnectionError, TimeoutError)):
            await client.send("GET", "/", {}, timeout=0.1)
        with pytest.raises((ConnectionError, TimeoutError)):
            async with client.stream("GET", "/", {}, timeout=0.1) as streamed:
                while await streamed.chunk():
                    pass
    await client.close()


@pytest.mark.parametrize("serve", FAILURES.values(), ids=FAILURES.keys())
async def test_a_failed_connection_leaves_no_circle(serve: Serve) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        await ask(url)  # what is made once, such as caches of the library
        with reference_cycles(Connection, OSError) as left:
            await ask(url)
            await asyncio.sleep(0)
    assert left == []


async def test_a_connection_that_is_refused_leaves_no_circle() -> None:
    with reference_cycles(Connection, OSError) as left:
        await ask("http://127.0.0.1:1")
    assert left == []
