"""A proxy between one process and one server, which notes requests and can stop the process at one of them.

The process gets SIGSTOP when the server has answered the request, before the answer is passed on. So what the
request asked for is done, and the process does not know it until it is continued.
"""

import asyncio
import os
import signal
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

READ = ("GET", "HEAD", "OPTIONS")


@dataclass
class _Trap:
    matches: Callable[[bytes], bool]
    pid: int


@dataclass
class StoppingProxy:
    """`requests` and `stop_at` are used by the test, in another thread than the proxy's."""

    host: str
    port: int
    """Where the server is."""
    tls: ssl.SSLContext | None = None
    listens_at: int = 0
    requests: list[str] = field(default_factory=list)
    """Method and target of each request."""
    stopped: threading.Event = field(default_factory=threading.Event)
    _trap: _Trap | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listens_at}"

    def changes(self, since: int = 0) -> list[str]:
        """Return the requests that may have changed something."""
        return [request for request in self.requests[since:] if not request.startswith(READ)]

    def stop_at(self, matches: Callable[[bytes], bool], pid: int) -> None:
        """Stop the process at the first answered request whose head and body match."""
        self._trap = _Trap(matches, pid)

    async def serve(self, started: threading.Event, end: asyncio.Event) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._connection(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self.listens_at = server.sockets[0].getsockname()[1]
        started.set()
        await end.wait()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            answers, upstream = await asyncio.open_connection(self.host, self.port, ssl=self.tls)
            request = bytearray()
            ways = [
                asyncio.create_task(self._pass_requests(reader, upstream, request)),
                asyncio.create_task(self._pass_answers(answers, writer, request)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                upstream.transport.abort()
        writer.transport.abort()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, upstream: asyncio.StreamWriter, request: bytearray
    ) -> None:
        while data := await reader.read(1 << 16):
            if not request:
                self.requests.append(" ".join(data.split(b"\r\n", 1)[0].decode().split()[:2]))
            request += data
            upstream.write(data)
            await upstream.drain()

    async def _pass_answers(
        self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytearray
    ) -> None:
        while data := await answers.read(1 << 16):
            trap = self._trap
            if trap is not None and trap.matches(bytes(request)):
                self._trap = None
                os.kill(trap.pid, signal.SIGSTOP)
                self.stopped.set()
            request.clear()
            writer.write(data)
            await writer.drain()


@contextmanager
def stopping_proxy(host: str, port: int, tls: ssl.SSLContext | None = None) -> Iterator[StoppingProxy]:
    """Run a proxy in a thread for the duration of the block."""
    proxy, started = StoppingProxy(host, port, tls), threading.Event()
    loop, end = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(proxy.serve(started, end)))
    thread.start()
    try:
        assert started.wait(30)
        yield proxy
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(30)
        loop.close()
