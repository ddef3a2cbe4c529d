"""Failed connections are freed at once: they leave no reference cycles."""

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


def respond_with(data: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(data)
        writer.close()

    return serve


FAILURES: dict[str, Serve] = {
    "no response before the deadline": silent,
    "the peer closes without a response": respond_with(b""),
    "the peer closes within the body": respond_with(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
    "the peer does not speak HTTP": respond_with(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"),
}


async def request(url: str) -> None:
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
async def test_a_failed_connection_leaves_no_reference_cycle(serve: Serve) -> None:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        await request(url)  # fills caches of the libraries
        with reference_cycles(Connection, OSError) as left:
            await request(url)
            await asyncio.sleep(0)
    assert left == []


async def test_a_refused_connection_leaves_no_reference_cycle() -> None:
    with reference_cycles(Connection, OSError) as left:
        await request("http://127.0.0.1:1")
    assert left == []
