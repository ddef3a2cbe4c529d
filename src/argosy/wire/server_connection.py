"""Serves one client's connection: reads requests and answers them one at a time, in their order.

A request that is invalid is answered after those before it, and then the connection is closed. Memory is
bounded: heads and pipelined requests are limited in number and size, a body stays in the kernel until its
handler reads it, and a client that sends requests faster than it reads responses has to wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import cast

from argosy.wire.listener import BoundedProtocol
from argosy.wire.messages import (
    DisconnectedError,
    Handler,
    HandlerResult,
    HttpError,
    Request,
    Response,
    TooLargeError,
    Upgrade,
    handshake,
    head,
    text_response,
)
from argosy.wire.read_buffer import SharedBufferProtocol, hand_over
from argosy.wire.request_head import RequestLimits
from argosy.wire.request_parser import RequestParser
from argosy.wire.response_writer import INTERNAL_ERROR, ResponseWriter
from argosy.wire.websocket import CLOSE_GOING_AWAY, CLOSE_INTERNAL_ERROR, CLOSE_NORMAL, WebSocket

log = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_MAX_WAITING_REQUESTS = 16  # pipelined requests after which reading pauses
_LINGER_SECONDS = 1.0


@dataclass(frozen=True)
class Service:
    """What all connections of a server share."""

    handler: Handler
    error_response: Callable[[int, str], Response]
    limits: RequestLimits
    loop: asyncio.AbstractEventLoop
    connections: "set[ServerConnection]"


class ServerConnection(SharedBufferProtocol, BoundedProtocol):
    """The protocol of one accepted connection."""

    def __init__(self, service: Service, on_lost: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.task: asyncio.Task[None] | None = None
        """Answers the waiting requests; None while there are none."""
        self._buffer = self._buffer[: service.limits.read_bytes]
        self._on_lost = on_lost
        self._service = service
        self._loop = service.loop
        self._waiting: deque[Request] = deque()
        self._parser = RequestParser(service.limits, self._waiting, self._on_body_wanted)
        self._current: Request | None = None
        self._rejection: Response | None = None
        """The response to an invalid request, sent after those to the requests before it."""
        self._deadline = inf
        self._reading_paused = False
        self._ignores_input = False
        self._ending = False
        """Whether the connection ends with the response in progress."""
        self._is_streaming = False
        """Whether a response of no fixed length, or a WebSocket, is in progress."""
        self._websocket: WebSocket | None = None

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's do not derive from asyncio's classes
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        service = self._service
        self._writer = ResponseWriter(
            self._transport, self._loop, service.error_response, service.limits.idle_seconds
        )
        service.connections.add(self)
        self._set_deadline(service.limits.head_seconds)

    def connection_lost(self, _error: Exception | None) -> None:
        self._report_lost()
        self._ignores_input = True
        self._waiting.clear()
        if self.task is not None and self._is_streaming and self._websocket is None:
            self.task.cancel()
        self._writer.resume()
        self._parser.discard()  # else every connection would leave a reference cycle

    def received(self, data: memoryview) -> None:
        if self._ignores_input:
            return
        parser = self._parser
        progress = parser.begun + parser.completed
        try:
            parser.feed(data)
        except HttpError as error:
            self._reject(error)
        if parser.begun + parser.completed != progress:
            if parser.begun == parser.completed:
                self._deadline = inf
            else:
                self._set_deadline(self._service.limits.head_seconds)
        if parser.closed or parser.upgrade_data is not None:
            self._ignores_input = True
        if self._should_pause():
            self._pause_reading()
        if self.task is None and (self._waiting or self._rejection is not None):
            self.task = self._loop.create_task(self._answer_all())

    def eof_received(self) -> bool:
        """Finish the response in progress; the client of a stream has gone."""
        self._ignores_input = self._ending = True
        if self._parser.receiving is not None:
            self._parser.receiving.fail()
        is_awaited = self.task is not None and not self._is_streaming
        return is_awaited and not self._encrypted

    def pause_writing(self) -> None:
        self._writer.pause()

    def resume_writing(self) -> None:
        self._writer.resume()

    # Called by the server.

    @property
    def deadline(self) -> float:
        """Time of the loop at which the client has taken too long."""
        drain_deadline = self._writer.drain_deadline
        return self._deadline if drain_deadline is None else drain_deadline

    def expire(self) -> None:
        """Abort the connection if it waits for the client; a handler may take as long as it needs."""
        self._deadline = inf
        receiving = self._parser.receiving
        if self.task is None or self._writer.is_paused:
            self._transport.abort()
        elif receiving is not None and receiving is self._current:
            receiving.fail()
            self._transport.abort()

    def finish(self) -> None:
        """Close after the response in progress; end streams and WebSockets now."""
        self._ending = True
        if self.task is None:
            self._transport.close()
        elif self._is_streaming:
            self.task.cancel()

    def abort(self) -> None:
        """Close now, whatever is in progress."""
        if self.task is not None:
            self.task.cancel()
        self._transport.abort()

    @property
    def has_unsent(self) -> bool:
        """Return True if the client has not read all of a response yet."""
        transport = self._transport
        return self.task is not None or transport.is_closing() or transport.get_write_buffer_size() > 0

    # Requests

    def _on_body_wanted(self) -> None:
        """Let the client send the body that a handler reads."""
        if self._parser.expects_continue and not self._transport.is_closing():
            self._parser.expects_continue = False
            self._transport.write(_CONTINUE)
        self._resume_reading()

    def _reject(self, error: HttpError) -> None:
        """Answer with this error after the requests before, and read no more."""
        self._ignores_input = True
        request = self._parser.receiving
        if request is not None:
            request.fail()
            if request in self._waiting:
                self._waiting.remove(request)
        self._rejection = self._service.error_response(error.status, str(error))

    def _should_pause(self) -> bool:
        parser = self._parser
        if parser.upgrade_data is not None:
            # What follows is in another protocol, which has to be agreed upon first.
            return bool(self._waiting) and self._waiting[-1].wants_websocket
        has_large_body, parser.has_large_body = parser.has_large_body, False
        return has_large_body or len(self._waiting) >= _MAX_WAITING_REQUESTS

    # Responses

    async def _answer_all(self) -> None:
        """Answer one request after the other until none waits."""
        try:
            while self._waiting and not self._transport.is_closing():
                self._current = request = self._waiting.popleft()
                await self._answer(request)
                if self._closes_after(request):
                    self._close_gently()
                    return
                if self._reading_paused and len(self._waiting) < _MAX_WAITING_REQUESTS:
                    self._resume_reading()
            if self._rejection is not None and not self._transport.is_closing():
                body = self._rejection.body
                assert isinstance(body, bytes)
                self._transport.write(head(self._rejection, len(body), chunked=False, close=True) + body)
                self._close_gently()
        except asyncio.CancelledError:
            self._transport.abort()
        finally:
            self.task = self._current = None
            limits = self._service.limits
            self._set_deadline(limits.head_seconds if self._parser.in_head else limits.idle_seconds)

    async def _answer(self, request: Request) -> None:
        if not request.is_complete:
            self._set_deadline(self._service.limits.body_seconds)
        result = await self._call_handler(request)
        if isinstance(result, Response) and result.close:
            self._ending = True
        if not request.is_complete:
            await self._skip_body(request)
        if isinstance(result, Upgrade):
            await self._serve_websocket(request, result)
        elif isinstance(result.body, bytes):
            self._writer.write(request, result, result.body, close=self._closes_after(request))
        else:
            await self._stream(request, result, result.body)
        await self._writer.drain()

    async def _call_handler(self, request: Request) -> HandlerResult:
        try:
            return await self._service.handler(request)
        except HttpError as error:
            return text_response(error.status, str(error))
        except TooLargeError as error:
            return self._service.error_response(413, str(error))
        except DisconnectedError:
            if self._rejection is None:
                self._transport.abort()
            else:
                self._ending = True
            return self._rejection or Response()
        except Exception:
            log.exception("%s %s failed", request.method, request.raw_path)
            return self._service.error_response(500, INTERNAL_ERROR)

    async def _skip_body(self, request: Request) -> None:
        """Read a short body that the handler left unread, so that the connection can be used again."""
        max_skipped = self._service.limits.unread_bytes
        expects_continue = self._parser.expects_continue
        if not self._ending and not expects_continue and 0 < request.content_length <= max_skipped:
            with suppress(TooLargeError, DisconnectedError):
                await request.body(max_skipped)
        if not request.is_complete:
            self._ignores_input = True
            self._resume_reading()

    async def _stream(self, request: Request, response: Response, body: AsyncIterator[bytes]) -> None:
        self._is_streaming = True
        try:
            await self._writer.stream(request, response, body, close=self._closes_after(request))
        finally:
            self._is_streaming = False
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    async def _serve_websocket(self, request: Request, upgrade: Upgrade) -> None:
        transport = self._transport
        self._is_streaming = True
        self._websocket = socket = WebSocket(
            transport, client=False, subprotocol=upgrade.subprotocol, on_lost=self._report_lost
        )
        if transport.is_closing():
            socket.connection_lost(None)
        else:
            transport.write(handshake(request, upgrade.subprotocol))
            hand_over(transport, socket)
            socket.data_received(self._parser.upgrade_data or b"")
            self._resume_reading()
        code = CLOSE_GOING_AWAY
        try:
            await upgrade.serve(socket)
            code = socket.close_code or CLOSE_NORMAL
        except ConnectionError:
            log.debug("the client of %s disconnected", request.raw_path)
        except Exception:
            log.exception("the WebSocket of %s failed", request.raw_path)
            code = CLOSE_INTERNAL_ERROR
        finally:
            await socket.close(code)

    def _closes_after(self, request: Request) -> bool:
        return self._ending or not (request.keep_alive and request.is_complete)

    def _close_gently(self) -> None:
        """Close so that a client that is still sending can read the last response."""
        self._ignores_input = True
        if self._transport.is_closing():
            return
        if self._encrypted:  # TLS sends its own farewell and waits for the client's
            self._transport.close()
            return
        try:
            self._transport.write_eof()
        except OSError:  # the client has reset the connection since the response was written
            self._transport.abort()
            return
        self._resume_reading()
        self._loop.call_later(_LINGER_SECONDS, self._transport.abort)

    # State

    def _report_lost(self) -> None:
        self._service.connections.discard(self)
        if self._on_lost is not None:
            self._on_lost()

    def _set_deadline(self, seconds: float) -> None:
        self._deadline = self._loop.time() + seconds

    def _pause_reading(self) -> None:
        if not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._reading_paused and not self._transport.is_closing():
            self._reading_paused = False
            self._transport.resume_reading()
