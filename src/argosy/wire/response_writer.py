"""Writes the responses of one server connection no faster than the client reads them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from argosy.wire.messages import Request, Response, head

log = logging.getLogger(__name__)

INTERNAL_ERROR = "internal server error"
_MAX_JOINED_BYTES = 1 << 16  # up to this size copying a body behind its head is cheaper than a second write


class ResponseWriter:
    """Writes to one transport, which reports through `pause` and `resume` whether its buffer is full."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        error_response: Callable[[int, str], Response],
        drain_seconds: float,
    ) -> None:
        self.drain_deadline: float | None = None
        """While `drain` waits: the time of the loop by which the client must have read enough."""
        self._transport = transport
        self._loop = loop
        self._error_response = error_response
        self._drain_seconds = drain_seconds
        self._writable: asyncio.Future[None] | None = None

    @property
    def is_paused(self) -> bool:
        return self._writable is not None

    def pause(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    async def drain(self) -> None:
        """Wait until the client has read most of what was written."""
        if self._writable is None:
            return
        self.drain_deadline = self._loop.time() + self._drain_seconds
        try:
            while self._writable is not None:
                await self._writable
        finally:
            self.drain_deadline = None

    def write(self, request: Request, response: Response, body: bytes, *, close: bool) -> None:
        """Write a whole response."""
        if self._transport.is_closing():
            return
        try:
            response_head = head(response, len(body), chunked=False, close=close)
        except ValueError:
            log.exception("the response to %s %s cannot be sent", request.method, request.raw_path)
            response = self._error_response(500, INTERNAL_ERROR)
            body = response.body if isinstance(response.body, bytes) else b""
            response_head = head(response, len(body), chunked=False, close=close)
        if request.method == "HEAD":
            self._transport.write(response_head)
        elif len(body) <= _MAX_JOINED_BYTES:
            self._transport.write(response_head + body)
        else:
            self._transport.write(response_head)
            self._transport.write(body)

    async def stream(
        self, request: Request, response: Response, body: AsyncIterator[bytes], *, close: bool
    ) -> None:
        """Write a response piece by piece until its body ends. A failure aborts the connection."""
        chunked, transport = request.accepts_chunks, self._transport
        try:
            if transport.is_closing():
                return
            transport.write(head(response, None, chunked=chunked, close=close))
            if request.method == "HEAD":
                return
            async for piece in body:
                if piece:
                    transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    if self._writable is not None:
                        await self.drain()
            if chunked:
                transport.write(b"0\r\n\r\n")
        except Exception:
            log.exception("the stream of %s %s failed", request.method, request.raw_path)
            transport.abort()  # an orderly end would make the response look complete
