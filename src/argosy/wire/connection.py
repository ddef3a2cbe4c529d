"""One connection of a client: sends one request at a time and receives its response.

A deadline does not cancel the waiting task: the timer fails the connection, and waiting raises its error. So
a cancellation at the same moment is not lost. Every error closes the connection, and one whose response was
not read to its end is not used again. Connections are aborted, not closed: TLS would wait for the farewell of
a peer that may be dead.
"""

import asyncio
import select
import ssl
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import TypeVar, cast

from argosy.wire.errors import IncompleteResponseError
from argosy.wire.read_buffer import SharedBufferProtocol, hand_over
from argosy.wire.response import ResponseParser

P = TypeVar("P", bound=asyncio.Protocol)

MAX_UNREAD_BYTES = 1 << 20
"""Received bytes of a stream after which reading from the peer pauses."""


class Connection(SharedBufferProtocol):
    """Created by `dial`, which sets its transport."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self.context = context
        """The TLS context; requests with another client certificate need another connection."""
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._response: ResponseParser | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._whole = False
        self._paused = False
        self._error: BaseException | None = None
        self._lost = self._loop.create_future()
        self._poll: select.poll | None = None
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def send(
        self, request: bytes, response: ResponseParser, *, whole: bool = False, deadline: float | None = None
    ) -> None:
        """Send a request, head and body in one write.

        `whole`: waiting tasks are woken only when the response is complete. The deadline, a time of the event
        loop, holds until then or until `clear_deadline` is called. Nothing is sent after it: a process that
        was suspended while it connected must not write as if no time had passed.
        """
        if deadline is not None and self._loop.time() >= deadline:
            raise TimeoutError("not sent: the deadline has passed")
        self._response = response
        self._whole = whole
        self._deadline = deadline
        if deadline is not None and (self._timer is None or self._timer.when() > deadline):
            self._set_timer(deadline)
        self.transport.write(request)

    def clear_deadline(self) -> None:
        # The timer stays: creating one for each request would cost more than all else that a connection does.
        self._deadline = None

    async def wait_head(self) -> None:
        while not self._current.has_head:
            await self._wait()

    async def wait_done(self) -> None:
        self._whole = True
        self._resume()
        while not self._current.done:
            await self._wait()
        self.clear_deadline()

    async def chunk(self) -> bytes:
        """Return the bytes of the body that have arrived, at least one; empty at its end."""
        response = self._current
        while not response.parts:
            if response.done:
                return b""
            await self._wait()
        data = response.take()
        self._resume()
        return data

    def hand_over(self, make_protocol: Callable[[asyncio.Transport], P]) -> P:
        """Switch the connection to another protocol, after an upgrade."""
        self._check()
        protocol = make_protocol(self.transport)
        hand_over(self.transport, protocol)
        if self._current.upgrade_data:
            protocol.data_received(self._current.upgrade_data)
        return protocol

    def fail(self, error: BaseException) -> None:
        self.clear_deadline()
        self._set_error(error)
        with suppress(AttributeError):  # Python 3.11.2 raises it if TLS was closed twice
            self.transport.abort()
        self._wake()

    def abort(self) -> None:
        self.fail(IncompleteResponseError("the connection was aborted"))

    def is_reusable(self) -> bool:
        """Return True if the response was read to its end and the connection can carry another request."""
        response = self._response
        return (
            response is not None
            and response.keep_alive
            and response.upgrade_data is None
            and not response.parts
            and self._error is None
            and not self.transport.get_write_buffer_size()
        )

    def mark_idle(self) -> None:
        """Expect nothing from the server until the next request."""
        self._response = None
        self.idle_since = self._loop.time()

    def is_stale(self) -> bool:
        """Return True if the peer has closed it. The kernel may know that before the event loop does."""
        if self._error is not None or self.transport.is_closing():
            return True
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(self._poll.poll(0))

    async def wait_closed(self) -> None:
        await asyncio.shield(self._lost)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def received(self, data: memoryview) -> None:
        response = self._response
        if response is None or (response.done and response.upgrade_data is None):
            self.abort()  # there is no request: the next response would belong to the wrong one
            return
        if response.upgrade_data is not None:
            response.upgrade_data += data
            return
        try:
            response.feed(data)
        except ConnectionError as error:
            self.fail(error)
            return
        if response.done or not self._whole:
            self._wake()
            if response.size >= MAX_UNREAD_BYTES and not response.done and not self._paused:
                self._paused = True
                self.transport.pause_reading()

    def eof_received(self) -> None:
        if self._response is not None and self._is_orderly_end():
            try:
                self._response.end()
            except IncompleteResponseError as error:
                self.fail(error)
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._set_error(
            error or IncompleteResponseError("connection closed before the response was complete")
        )
        self._wake()
        if not self._lost.done():
            self._lost.set_result(None)

    def _is_orderly_end(self) -> bool:
        """Return False if the connection ended without TLS's close notification, so data may be missing."""
        ssl_object = self.transport.get_extra_info("ssl_object")
        if ssl_object is None:
            return True
        try:
            return not ssl_object.read(1)
        except ssl.SSLError:  # it would wait for more
            return False

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
        else:
            self.fail(TimeoutError("no response before the deadline"))

    @property
    def _current(self) -> ResponseParser:
        assert self._response is not None
        return self._response

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def _set_error(self, error: BaseException) -> None:
        """Keep the first error. It is kept without its traceback and raised as a copy: frames refer to the
        connection, which refers to the error, and such a reference cycle is freed late."""
        if self._error is None:
            error.__cause__ = error.__context__ = None
            self._error = error.with_traceback(None)

    def _check(self) -> None:
        if self._error is not None:
            raise copy(self._error)

    async def _wait(self) -> None:
        self._check()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
