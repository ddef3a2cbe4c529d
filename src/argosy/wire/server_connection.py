"""One client's connection to a server: requests in, answers out in the same order, one at a time.

The parser is httptools', strict: what two readers could understand in two ways (a length given twice, or
beside chunks; another transfer encoding; an obsolete line) is answered 400 and the connection closed, for all
that follows could be somebody else's request. Nothing is held without a bound: heads have a size, a number of
lines and a time, bodies a time and wait in the kernel until a handler asks for them, and a client that sends
requests faster than it reads answers has to wait.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import cast

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser

from argosy.wire.listener import BoundedProtocol
from argosy.wire.messages import (
    DisconnectedError,
    Handler,
    HandlerResult,
    Headers,
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
from argosy.wire.request_head import RequestLimits, read_head
from argosy.wire.websocket import WebSocket

log = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JOINED = 1 << 16  # up to this size it is cheaper to copy a body behind its head than to write twice
_PIPELINED = 16  # requests that wait here while another is answered
_FRAMING = 1 << 16  # bytes around the chunks of a body, beside some for each byte of it
_FRAMING_EACH = 16
_LINGER_SECONDS = 1.0
_GOING_AWAY = 1001
_MISTAKE = "the server made a mistake"


@dataclass(frozen=True)
class Service:
    """What all sessions of a server share."""

    handler: Handler
    refusal: Callable[[int, str], Response]
    limits: RequestLimits
    loop: asyncio.AbstractEventLoop
    sessions: "set[ServerConnection]"


class ServerConnection(SharedBufferProtocol, BoundedProtocol):
    """Made for each connection; `deadline` is when the server loses its patience, by the loop's clock."""

    def __init__(self, service: Service, when_lost: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._buffer = self._buffer[: service.limits.read_bytes]
        self._when_lost = when_lost
        self.deadline = inf
        self.task: asyncio.Task[None] | None = None
        self._service = service
        self._loop = service.loop
        self._parser = HttpRequestParser(self)
        self._url = b""
        self._headers: Headers = []
        self._begun = 0
        self._in_head = False
        self._head_size = 0
        self._framing = 0
        self._continue = False
        self._receiving: Request | None = None
        self._current: Request | None = None
        self._waiting: deque[Request] = deque()
        self._refused: Response | None = None
        self._paused = False
        self._deaf = False
        self._ending = False
        self._open_ended = False
        self._websocket: WebSocket | None = None
        self._after_upgrade = b""
        self._writable: asyncio.Future[None] | None = None

    # What happens to the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are none of asyncio's classes
        self._encrypted = transport.get_extra_info("sslcontext") is not None
        self._service.sessions.add(self)
        self._patient_for(self._service.limits.head_seconds)

    def connection_lost(self, _error: Exception | None) -> None:
        self._gone()
        self._deaf = True
        self._waiting.clear()
        if self._receiving is not None:
            self._receiving.fail()
        if self.task is not None and self._open_ended and self._websocket is None:
            self.task.cancel()
        self.resume_writing()
        del self._parser  # which holds this session: every connection would leave a circle

    def received(self, data: memoryview) -> None:
        if self._deaf:
            return
        begun, receiving = self._begun, self._receiving
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self._upgraded(bytes(data[upgrade.args[0] :]))
        except HttpParserError as error:
            self._misunderstood(error)
        else:
            if self._begun == begun and self._receiving is receiving:
                self._count(len(data))
        if self.task is None and (self._waiting or self._refused is not None):
            self.task = self._loop.create_task(self._answer_all())

    def eof_received(self) -> bool:
        """The client sends no more. Who waits for an answer still gets it; who watches has gone."""
        self._deaf = self._ending = True
        if self._receiving is not None:
            self._receiving.fail()
        waits = self.task is not None and not self._open_ended
        return waits and not self._encrypted

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # What the server wants

    def expire(self) -> None:
        """The client took too long. While a handler works it is not the client that is waited for."""
        self.deadline = inf
        if self.task is None or self._writable is not None:
            self._transport.abort()
        elif self._receiving is not None and self._receiving is self._current:
            self._receiving.fail()
            self._transport.abort()

    def end(self) -> None:
        """Finish the answer under way and begin no other; streams and WebSockets end now."""
        self._ending = True
        if self.task is None:
            self._transport.close()
        elif self._open_ended:
            self.task.cancel()

    def cut(self) -> None:
        """End now, whatever is under way."""
        if self.task is not None:
            self.task.cancel()
        self._transport.abort()

    @property
    def unsent(self) -> bool:
        """Whether there is something of an answer that the client has not taken yet."""
        transport = self._transport
        return self.task is not None or transport.is_closing() or transport.get_write_buffer_size() > 0

    # What the parser finds

    def on_message_begin(self) -> None:
        self._begun += 1
        self._url, self._headers = b"", []
        self._in_head, self._continue = True, False
        self._head_size = self._framing = 0
        self._patient_for(self._service.limits.head_seconds)

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # else it stands behind a body, where nobody looks
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        request = read_head(self._parser, self._url, self._headers, self._service.limits)
        fields = request.headers
        if b"content-length" in fields or b"transfer-encoding" in fields:
            self._continue = b"expect" in fields
            request.expect(int(fields.get(b"content-length", 0)), self._ask)
        self._in_head = False
        most = self._service.limits.max_pipelined
        if most is not None and len(self._waiting) > most:
            raise HttpError(429, f"more than {most} requests wait for the answer to another")
        self._receiving = request
        self._waiting.append(request)
        if len(self._waiting) >= _PIPELINED:
            self._pause()

    def on_body(self, body: bytes) -> None:
        assert self._receiving is not None
        self._framing -= len(body) * _FRAMING_EACH
        if self._receiving.feed(body) > self._service.limits.unread_bytes:
            self._pause()

    def on_message_complete(self) -> None:
        request, self._receiving = self._receiving, None
        assert request is not None
        request.finish()
        self._deaf = not request.keep_alive
        self.deadline = inf

    def _ask(self) -> None:
        """A handler wants more of the body of its request."""
        if self._continue and not self._transport.is_closing():
            self._continue = False
            self._transport.write(_CONTINUE)
        self._resume()

    def _count(self, size: int) -> None:
        """All of a piece belonged to one head, or to one body: neither may go on for ever."""
        if self._in_head:
            self._head_size += size
            if self._head_size > self._service.limits.head_bytes:
                self._refuse(431, "the head is too large")
        elif self._receiving is not None:
            self._framing += size
            if self._framing > _FRAMING:
                self._refuse(400, "there is more around the body than in it")

    def _misunderstood(self, error: HttpParserError) -> None:
        cause = error.__context__
        if isinstance(cause, HttpError):
            self._refuse(cause.status, str(cause))
        elif isinstance(error, HttpParserInvalidMethodError):
            self._refuse(405, "the method is not known")
        else:
            self._refuse(400, str(error))

    def _refuse(self, status: int, why: str) -> None:
        """Say so after all that is to be answered before, and listen no more."""
        self._deaf = True
        request = self._receiving
        if request is not None:
            request.fail()
            if request in self._waiting:
                self._waiting.remove(request)
        self._refused = self._service.refusal(status, why)

    def _upgraded(self, rest: bytes) -> None:
        """What follows is in another protocol: nothing is read until that is agreed upon."""
        self._deaf, self._after_upgrade = True, rest
        if self._waiting and self._waiting[-1].wants_websocket:
            self._pause()

    # Answers

    async def _answer_all(self) -> None:
        """One after the other until none waits."""
        try:
            while self._waiting and not self._transport.is_closing():
                self._current = request = self._waiting.popleft()
                await self._answer(request)
                if self._ending or not (request.keep_alive and request.complete):
                    self._leave()
                    return
                if self._paused and len(self._waiting) < _PIPELINED:
                    self._resume()
            if self._refused is not None and not self._transport.is_closing():
                body = self._refused.body
                assert isinstance(body, bytes)
                self._transport.write(head(self._refused, len(body), chunked=False, close=True) + body)
                self._leave()
        except asyncio.CancelledError:
            self._transport.abort()
        finally:
            self.task = self._current = None
            limits = self._service.limits
            self._patient_for(limits.head_seconds if self._in_head else limits.idle_seconds)

    async def _answer(self, request: Request) -> None:
        if not request.complete:
            self._patient_for(self._service.limits.body_seconds)
        answer = await self._handled(request)
        if isinstance(answer, Response) and answer.close:
            self._ending = True
        if not request.complete:
            await self._rest_of(request)
        if isinstance(answer, Upgrade):
            await self._converse(request, answer)
        elif isinstance(answer.body, bytes):
            self._write(request, answer, answer.body)
        else:
            await self._stream(request, answer, answer.body)
        if self._writable is not None:
            await self._drained()

    async def _handled(self, request: Request) -> HandlerResult:
        try:
            return await self._service.handler(request)
        except HttpError as error:
            return text_response(error.status, str(error))
        except TooLargeError as error:
            return self._service.refusal(413, str(error))
        except DisconnectedError:
            if self._refused is None:
                self._transport.abort()
            else:
                self._ending = True
            return self._refused or Response()
        except Exception:
            log.exception("%s %s failed", request.method, request.raw_path)
            return self._service.refusal(500, _MISTAKE)

    async def _rest_of(self, request: Request) -> None:
        """A body that nobody wanted: a short one is read if the connection is to go on."""
        short = self._service.limits.unread_bytes
        if not self._ending and not self._continue and 0 < request.declared <= short:
            with suppress(TooLargeError, DisconnectedError):
                await request.body(short)
        if not request.complete:
            self._deaf = True
            self._resume()

    def _write(self, request: Request, response: Response, body: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            begin = head(response, len(body), chunked=False, close=self._closes(request))
        except ValueError:
            log.exception("the answer to %s %s cannot be sent", request.method, request.raw_path)
            response = self._service.refusal(500, _MISTAKE)
            body = response.body if isinstance(response.body, bytes) else b""
            begin = head(response, len(body), chunked=False, close=self._closes(request))
        if request.method == "HEAD":
            self._transport.write(begin)
        elif len(body) <= _JOINED:
            self._transport.write(begin + body)
        else:
            self._transport.write(begin)
            self._transport.write(body)

    async def _stream(self, request: Request, response: Response, body: AsyncIterator[bytes]) -> None:
        chunked, transport = request.streamable, self._transport
        self._open_ended = True
        try:
            if transport.is_closing():
                return
            transport.write(head(response, None, chunked=chunked, close=self._closes(request)))
            if request.method == "HEAD":
                return
            async for piece in body:
                if piece:
                    transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                    if self._writable is not None:
                        await self._drained()
            if chunked:
                transport.write(b"0\r\n\r\n")
        except Exception:
            log.exception("the stream of %s %s failed", request.method, request.raw_path)
            transport.abort()  # so that it does not look as if this were all
        finally:
            self._open_ended = False
            if isinstance(body, AsyncGenerator):
                await body.aclose()

    async def _converse(self, request: Request, upgrade: Upgrade) -> None:
        transport = self._transport
        self._open_ended = True
        self._websocket = socket = WebSocket(
            transport, client=False, subprotocol=upgrade.subprotocol, when_lost=self._websocket_lost
        )
        if transport.is_closing():
            socket.connection_lost(None)
        else:
            transport.write(handshake(request, upgrade.subprotocol))
            hand_over(transport, socket)
            socket.data_received(self._after_upgrade)
            self._resume()
        code = _GOING_AWAY
        try:
            await upgrade.converse(socket)
            code = socket.close_code or 1000
        except ConnectionError:
            log.debug("the client of %s went", request.raw_path)
        except Exception:
            log.exception("the WebSocket of %s failed", request.raw_path)
            code = 1011
        finally:
            await socket.close(code)

    def _websocket_lost(self) -> None:
        self._gone()

    def _gone(self) -> None:
        self._service.sessions.discard(self)
        if self._when_lost is not None:
            self._when_lost()

    def _closes(self, request: Request) -> bool:
        return self._ending or not (request.keep_alive and request.complete)

    def _leave(self) -> None:
        """End after the last answer, so that the client can read it though it may still be sending."""
        self._deaf = True
        if self._transport.is_closing():
            return
        if self._encrypted:  # TLS says goodbye and listens for a while by itself
            self._transport.close()
        else:
            self._transport.write_eof()
            self._resume()
            self._loop.call_later(_LINGER_SECONDS, self._transport.abort)

    # Patience

    async def _drained(self) -> None:
        """Wait until the client has read most of what was written."""
        before = self.deadline
        self._patient_for(self._service.limits.idle_seconds)
        while self._writable is not None:
            await self._writable
        self.deadline = before

    def _patient_for(self, seconds: float) -> None:
        self.deadline = self._loop.time() + seconds

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()
