"""Streaming responses: watches, logs, and commands executed in containers.

A watch splits the bytes of each read at newlines; an event may exceed the line limits of HTTP libraries.
Commands use the protocol `v5.channel.k8s.io`, which can signal the end of stdin, or `v4` with older servers.
The first byte of each message is the channel.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import quote

import msgspec
from msgspec import Struct

from argosy.engine.codec import Bookmark, Codec, Undecodable, WatchEvent
from argosy.engine.credentials import Identity
from argosy.engine.errors import (
    ApiError,
    Status,
    Unauthorized,
    Unavailable,
    error_from_response,
    error_from_status,
)
from argosy.engine.objects import T
from argosy.engine.transport import Request, Socket, Stream, Transport

EXEC_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255


class Opener(Struct, frozen=True):
    """Opens a stream, each time with the current credentials."""

    transport: Transport
    request: Callable[[], Awaitable[Request]]
    refresh: Callable[[Identity], bool]
    on_response: Callable[[int | None], None]
    """Called with the status of each response; None if there was none."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stream]:
        """Open the stream of a successful response; an error status is raised."""
        for is_last in (False, True):
            try:
                async with self._once() as stream:
                    yield stream
                    return
            except RejectedIdentity as rejected:
                if is_last or not self.refresh(rejected.identity):
                    raise rejected.error from None

    @asynccontextmanager
    async def _once(self) -> AsyncIterator[Stream]:
        async with AsyncExitStack() as stack:
            try:
                request = await self.request()
                stream = await stack.enter_async_context(self.transport.stream(request))
            except ApiError:
                self.on_response(None)
                raise
            self.on_response(stream.status)
            if stream.status >= 300:
                error = error_from_response(stream.status, stream.headers, await stream.read())
                raise RejectedIdentity(error, request.identity) if isinstance(error, Unauthorized) else error
            yield stream


class RejectedIdentity(Exception):  # noqa: N818  (internal: never raised to a caller of the client)
    """The API server did not accept an identity. The request may be sent again with another one."""

    def __init__(self, error: Unauthorized, identity: Identity) -> None:
        super().__init__(str(error))
        self.error = error
        self.identity = identity


async def watch(
    codec: Codec[T], opener: Opener, idle_seconds: Callable[[], float] | None
) -> AsyncGenerator[Sequence[WatchEvent[T] | Bookmark | Undecodable], None]:
    """Yield events in batches. An incomplete last line is dropped: a resumed watch delivers it again."""
    loop = asyncio.get_running_loop()
    last_event_at = loop.time()

    @asynccontextmanager
    async def watchdog() -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(None if idle_seconds is None else last_event_at + idle_seconds()):
                yield
        except TimeoutError as error:
            raise Unavailable(
                0, "IdleTimeout", "the watch received neither event nor bookmark in time"
            ) from error

    async with AsyncExitStack() as stack:
        async with watchdog():
            stream = await stack.enter_async_context(opener.open())
        pending: list[bytes] = []
        while True:
            async with watchdog():
                chunk = await stream.chunk()
            if not chunk:
                return
            pending.append(chunk)
            if b"\n" not in chunk:
                continue
            *lines, partial_line = b"".join(pending).split(b"\n")
            pending = [partial_line]
            last_event_at = loop.time()
            yield [codec.event(line) for line in lines if line]


async def chunks(opener: Opener) -> AsyncGenerator[bytes, None]:
    """Yield the bytes of a stream as they arrive."""
    async with opener.open() as stream:
        while chunk := await stream.chunk():
            yield chunk


def pod_path(pod: str, namespace: str, subresource: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/{subresource}"


def log_query(options: Mapping[str, str | int | bool | None]) -> dict[str, str]:
    set_options = {name: value for name, value in options.items() if value is not None and value is not False}
    return {name: "true" if value is True else str(value) for name, value in set_options.items()}


def exec_query(
    command: Sequence[str], container: str | None, *, stdin: bool, tty: bool
) -> list[tuple[str, str]]:
    query = [("command", argument) for argument in command]
    if container:
        query.append(("container", container))
    # A terminal has a single output; the server rejects a request for stderr.
    streams = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    return query + [(name, "true") for name, is_open in streams.items() if is_open]


def ignore(_chunk: bytes) -> None:
    """Discard output."""


async def run_exec(
    socket: Socket,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    pace: Callable[[int], Awaitable[None]] | None = None,
) -> int:
    """Send stdin and pass on output until the command ends; return its exit code.

    Nothing more is received while `pace` waits, so a full socket makes the command wait.
    """
    feeding = None if stdin is None else asyncio.create_task(_send_stdin(socket, stdin))
    try:
        while (message := await socket.receive()) is not None:
            if not message:
                continue
            channel, payload = message[0], message[1:]
            if channel == STDOUT and payload:
                on_stdout(payload)
            elif channel == STDERR and payload:
                on_stderr(payload)
            elif channel == ERROR:
                return _exit_code(payload)
            if pace is not None:
                await pace(len(payload))
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    raise Unavailable(0, "Unreachable", "the connection closed before the command ended")


async def _send_stdin(socket: Socket, stdin: bytes | AsyncIterator[bytes]) -> None:
    async for chunk in _chunks_of(stdin):
        await socket.send(bytes([STDIN]) + chunk)
    if socket.protocol == EXEC_PROTOCOLS[0]:
        await socket.send(bytes([CLOSE, STDIN]))


async def _chunks_of(stdin: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(stdin, bytes):
        for start in range(0, len(stdin), STDIN_CHUNK_BYTES):
            yield stdin[start : start + STDIN_CHUNK_BYTES]
    else:
        async for chunk in stdin:
            yield chunk


STDIN_CHUNK_BYTES = 32 * 1024


def _exit_code(payload: bytes) -> int:
    status = msgspec.json.decode(payload, type=Status)
    if status.status == "Success":
        return 0
    causes = (status.details.causes if status.details else None) or []
    code = next((cause.message for cause in causes if cause.reason == "ExitCode"), "")
    if code.isdecimal():
        return int(code)
    status.code = status.code or 500
    raise error_from_status(status)
