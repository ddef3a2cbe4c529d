import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.support.fault_proxy import FaultProxy, Mischief


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    """A proxy in front of an echo server."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, FaultProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        yield proxy


@asynccontextmanager
async def dial(proxy: FaultProxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    yield reader, writer
    writer.transport.abort()


async def test_forwards_all_bytes_by_default(proxy: FaultProxy) -> None:
    async with dial(proxy) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        assert proxy.open == 1


async def test_cuts_only_the_chosen_connection_after_the_given_bytes(proxy: FaultProxy) -> None:
    proxy.prepare(Mischief(after_bytes=3, then="cut"))
    async with dial(proxy) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(3) == b"hel"
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
    async with dial(proxy) as (reader, writer):
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"


async def test_stalled_connection_stays_open(proxy: FaultProxy) -> None:
    async with dial(proxy) as (reader, writer):
        writer.write(b"a")
        await reader.readexactly(1)
        proxy.stall_all()
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        assert proxy.open == 1


async def test_delayed_responses_arrive_completely(proxy: FaultProxy) -> None:
    proxy.mischief = Mischief(delay=0.01, piece=10)
    async with dial(proxy) as (reader, writer):
        before = time.monotonic()
        writer.write(b"x" * 100)
        assert await reader.readexactly(100) == b"x" * 100
        assert time.monotonic() - before >= 0.1


async def test_unreachable_target_closes_the_connection() -> None:
    async with FaultProxy("127.0.0.1", 1) as proxy, dial(proxy) as (reader, _writer):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
