"""Long answers: watches, logs, and commands run in containers.

Bytes are split on newlines as they come, never line by line through the HTTP library, whose line limit events
exceed. Commands speak `v5.channel.k8s.io`, which can say that stdin ended, or `v4` where the server knows no
better: the first byte of each message names the channel.
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
    """Opens the same stream again whenever asked, with the credentials of the moment."""

    transport: Transport
    request: Callable[[], Awaitable[Request]]
    refresh: Callable[[Identity], bool]
    opened: Callable[[int | None], None]
    """Told the status of each answer, none where none came."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stream]:
        """The stream of a successful answer; any other raises."""
        for is_last in (False, True):
            try:
                async with self._once() as stream:
                    yield stream
                    return
            except Refused as refused:
                if is_last or not self.refresh(refused.identity):
                    raise refused.error from None

    @asynccontextmanager
    async def _once(self) -> AsyncIterator[Stream]:
        async with AsyncExitStack() as stack:
            try:
                request = await self.request()
                stream = await stack.enter_async_context(self.transport.stream(request))
            except ApiError:
                self.opened(None)
                raise
            self.opened(stream.status)
            if stream.status >= 300:
                error = error_from_response(stream.status, stream.headers, await stream.read())
                raise Refused(error, request.identity) if isinstance(error, Unauthorized) else error
            yield stream


class Refused(Exception):  # noqa: N818  (never reaches a caller of the client)
    """The API server did not accept an identity; with another one the request may be sent again."""

    def __init__(self, error: Unauthorized, identity: Identity) -> None:
        super().__init__(str(error))
        self.error = error
        self.identity = identity


async def watch(
    codec: Codec[T], opener: Opener, idle_seconds: Callable[[], float] | None
) -> AsyncGenerator[Sequence[WatchEvent[T] | Bookmark | Undecodable], None]:
    """Events in batches. A line cut off by the end of the stream is dropped: the watch resumes before it."""
    loop = asyncio.get_running_loop()
    heard = loop.time()

    @asynccontextmanager
    async def watchdog() -> AsyncIterator[None]:
        try:
            async with asyncio.timeout_at(None if idle_seconds is None else heard + idle_seconds()):
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
            *lines, rest = b"".join(pending).split(b"\n")
            pending = [rest]
            heard = loop.time()
            yield [codec.event(line) for line in lines if line]


async def chunks(opener: Opener) -> AsyncGenerator[bytes, None]:
    async with opener.open() as stream:
        while chunk := await stream.chunk():
            yield chunk


def pod_path(pod: str, namespace: str, subresource: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(pod)}/{subresource}"


def log_query(options: Mapping[str, str | int | bool | None]) -> dict[str, str]:
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    return {name: "true" if value is True else str(value) for name, value in given.items()}


def exec_query(
    command: Sequence[str], container: str | None, *, stdin: bool, tty: bool
) -> list[tuple[str, str]]:
    query = [("command", word) for word in command]
    if container:
        query.append(("container", container))
    # A terminal has one output; asking for a second is refused.
    wanted = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
    return query + [(name, "true") for name, want in wanted.items() if want]


def ignore(_chunk: bytes) -> None:
    """Where output goes that nobody asked for."""


async def converse(
    socket: Socket,
    stdin: bytes | AsyncIterator[bytes] | None,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
) -> int:
    """Feed stdin and hand out output until the command ends; its exit code."""
    feeding = None if stdin is None else asyncio.create_task(_feed(socket, stdin))
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
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
    raise Unavailable(0, "Unreachable", "the connection ended before the command did")


async def _feed(socket: Socket, stdin: bytes | AsyncIterator[bytes]) -> None:
    async for chunk in _pieces(stdin):
        await socket.send(bytes([STDIN]) + chunk)
    if socket.protocol == EXEC_PROTOCOLS[0]:
        await socket.send(bytes([CLOSE, STDIN]))


async def _pieces(stdin: bytes | AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if isinstance(stdin, bytes):
        for start in range(0, len(stdin), PIECE):
            yield stdin[start : start + PIECE]
    else:
        async for chunk in stdin:
            yield chunk


PIECE = 32 * 1024


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
