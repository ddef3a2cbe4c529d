"""A TCP proxy that injects connection faults in front of any API server.

It forwards bytes without interpreting them, so TLS works too. It can stop forwarding after a number of bytes
from the server (mid-event, mid-line) and then close or stall the connection, or delay the server's bytes.
`cut_all` and `stall_all` act on all open connections at once.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Mischief:
    """The fault of one connection."""

    after_bytes: int | None = None
    """Bytes from the server that are forwarded before `then` happens; None means never."""
    then: Literal["cut", "stall"] = "cut"
    delay: float = 0.0
    """Seconds by which each piece of the server's response is delayed."""
    piece: int = 65536
    """Bytes forwarded at a time."""


HONEST = Mischief()


class FaultProxy:
    """An async context manager; listens on a free port of loopback and dials `host:port` for each client."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._links: set[_Link] = set()
        self._next: list[Mischief] = []
        self.port = 0
        self.accepted = 0
        self.mischief = HONEST
        """For every new connection that `prepare` says nothing about."""

    async def __aenter__(self) -> "FaultProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.cut_all()
        for link in list(self._links):
            await link.over.wait()

    @property
    def open(self) -> int:
        return len(self._links)

    def prepare(self, *mischief: Mischief) -> None:
        """Set the faults of the next connections, one each, in this order."""
        self._next.extend(mischief)

    def cut_all(self) -> None:
        """Reset all open connections now."""
        for link in list(self._links):
            link.cut()

    def stall_all(self) -> None:
        """Stop forwarding on all open connections and keep them open."""
        for link in list(self._links):
            link.stall()

    def meddle_all(self, mischief: Mischief) -> None:
        """Apply this fault, counting from now, to all open connections."""
        for link in list(self._links):
            link.begin(mischief)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        mischief = self._next.pop(0) if self._next else self.mischief
        link = _Link(writer, mischief)
        self._links.add(link)
        try:
            await link.run(reader, self._target)
        finally:
            self._links.discard(link)
            link.over.set()


class _Link:
    def __init__(self, client: asyncio.StreamWriter, mischief: Mischief) -> None:
        self._client = client
        self._upstream: asyncio.StreamWriter | None = None
        self._mischief = mischief
        self._passed = 0
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.over = asyncio.Event()

    def begin(self, mischief: Mischief) -> None:
        self._mischief, self._passed = mischief, 0

    def stall(self) -> None:
        self._flowing.clear()

    def cut(self) -> None:
        for writer in (self._client, self._upstream):
            if writer is not None:
                writer.transport.abort()
        self._flowing.set()

    async def run(self, reader: asyncio.StreamReader, target: tuple[str, int]) -> None:
        try:
            answers, self._upstream = await asyncio.open_connection(*target)
        except OSError:
            self.cut()
            return
        both = [
            asyncio.create_task(self._ask(reader, self._upstream)),
            asyncio.create_task(self._answer(answers)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self.cut()

    async def _ask(self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                upstream.write(data)
                await upstream.drain()

    async def _answer(self, answers: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await answers.read(self._mischief.piece):
                await self._flowing.wait()
                if self._mischief.delay:
                    await asyncio.sleep(self._mischief.delay)
                left = self._left()
                data = data[:left]
                self._passed += len(data)
                self._client.write(data)
                await self._client.drain()
                if left is not None and self._left() == 0:
                    if self._mischief.then == "cut":
                        return
                    self.stall()

    def _left(self) -> int | None:
        limit = self._mischief.after_bytes
        return None if limit is None else max(limit - self._passed, 0)
