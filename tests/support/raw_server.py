"""An HTTP server that answers each request with the exact bytes that a function returns.

For servers that misbehave, and for small services that a test plays itself: metadata services, kubelets,
registries.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec


class Call(NamedTuple):
    """One request."""

    method: str
    target: str
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query))


Answer = Callable[[Call], Awaitable[bytes]]
"""Returns the bytes of the response; the connection is closed if there are none."""


class RawServer:
    def __init__(self, answer: Answer, tls: bool) -> None:
        self._answer = answer
        self._tls = tls
        self.port = 0
        self.calls: list[Call] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.address}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._answer_calls(reader, writer)
        finally:
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer_calls(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            call = await _read_call(reader)
            self.calls.append(call)
            response = await self._answer(call)
            if not response:
                return
            writer.write(response)
            await writer.drain()


@asynccontextmanager
async def raw_server(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawServer]:
    """Run a server on loopback for the duration of the block."""
    server = RawServer(answer, tls is not None)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(server.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read_call(reader: asyncio.StreamReader) -> Call:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.strip().split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Call(method, target, headers, body)


def http(status: int, body: bytes = b"", headers: Mapping[str, str] = {}) -> bytes:
    """Return the bytes of a response."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\n{lines}\r\n".encode() + body


def http_json(status: int, value: object, headers: Mapping[str, str] = {}) -> bytes:
    return http(status, msgspec.json.encode(value), {"Content-Type": "application/json", **headers})


async def hang(_: Call) -> bytes:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError
