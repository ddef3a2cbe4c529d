"""One connection of a client: a request at a time, and its answer as it comes.

Time running out never cancels a task: the timer fails the connection, and whoever waits for it is told. So a
cancellation that comes at the same moment is not lost. Whatever goes wrong ends the connection; one that is
left with half an answer cannot be used again. Connections end without farewell: TLS would wait for the answer
of a peer that may be dead.
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

READ_BUFFER = 1 << 20
"""Bytes of a stream that wait for its reader before the peer has to."""


class Connection(SharedBufferProtocol):
    """Made by `dial`, which gives it its transport."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__()
        self.context = context
        """What its TLS was made with; requests of another identity need another connection."""
        self.idle_since = 0.0
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._answer: ResponseParser | None = None
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

    def begin(
        self, request: bytes, answer: ResponseParser, *, whole: bool = False, deadline: float | None = None
    ) -> None:
        """Send a request, head and body in one write. `whole`: nobody waits for less than the whole answer.

        The deadline, a time of the event loop's, holds until the answer is whole or `disarm` is called.
        """
        self._answer = answer
        self._whole = whole
        self._deadline = deadline
        if deadline is not None and (self._timer is None or self._timer.when() > deadline):
            self._set_timer(deadline)
        self.transport.write(request)

    def disarm(self) -> None:
        # The timer goes on: making one for each request would cost more than the rest of a connection's work.
        self._deadline = None

    async def until_headed(self) -> None:
        while not self._current.headed:
            await self._wait()

    async def until_done(self) -> None:
        self._whole = True
        self._resume()
        while not self._current.done:
            await self._wait()
        self.disarm()

    async def chunk(self) -> bytes:
        """Whatever has come of the body, at least a byte; empty at its end."""
        answer = self._current
        while not answer.parts:
            if answer.done:
                return b""
            await self._wait()
        data = answer.take()
        self._resume()
        return data

    def hand_over(self, heir: Callable[[asyncio.Transport], P]) -> P:
        """After an upgrade: from now on the connection speaks another protocol."""
        self._check()
        protocol = heir(self.transport)
        hand_over(self.transport, protocol)
        if self._current.rest:
            protocol.data_received(self._current.rest)
        return protocol

    def fail(self, error: BaseException) -> None:
        self.disarm()
        self._remember(error)
        with suppress(AttributeError):  # Python 3.11.2 has none left to abort once TLS was closed twice
            self.transport.abort()
        self._wake()

    def abort(self) -> None:
        self.fail(IncompleteResponseError("the connection was given up"))

    def finished(self) -> bool:
        """The answer is whole, all of it was taken, and the connection may carry another."""
        answer = self._answer
        return (
            answer is not None
            and answer.keep_alive
            and answer.rest is None
            and not answer.parts
            and self._error is None
            and not self.transport.get_write_buffer_size()
        )

    def rest(self) -> None:
        """Between two requests nothing may come."""
        self._answer = None
        self.idle_since = self._loop.time()

    def stale(self) -> bool:
        """The peer has closed it, as far as this machine can tell: also what the loop has not got to yet."""
        if self._error is not None or self.transport.is_closing():
            return True
        if self._poll is None:
            self._poll = select.poll()
            self._poll.register(self.transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
        return bool(self._poll.poll(0))

    async def until_lost(self) -> None:
        await asyncio.shield(self._lost)

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def received(self, data: memoryview) -> None:
        answer = self._answer
        if answer is None or (answer.done and answer.rest is None):
            self.abort()  # nobody asked for it: the next answer would not be to the next request
            return
        if answer.rest is not None:
            answer.rest += data
            return
        try:
            answer.feed(data)
        except ConnectionError as error:
            self.fail(error)
            return
        if answer.done or not self._whole:
            self._wake()
            if answer.size >= READ_BUFFER and not answer.done and not self._paused:
                self._paused = True
                self.transport.pause_reading()

    def eof_received(self) -> None:
        if self._answer is not None and self._farewell():
            try:
                self._answer.end()
            except IncompleteResponseError as error:
                self.fail(error)
            self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._remember(error or IncompleteResponseError("connection closed before the response was complete"))
        self._wake()
        if not self._lost.done():
            self._lost.set_result(None)

    def _farewell(self) -> bool:
        """Whether the peer itself said that it sends no more; without TLS there is no telling."""
        secured = self.transport.get_extra_info("ssl_object")
        if secured is None:
            return True
        try:
            return not secured.read(1)
        except ssl.SSLError:  # it would wait for more
            return False

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._loop.time() < self._deadline:
            self._set_timer(self._deadline)
        else:
            self.fail(TimeoutError("no answer in time"))

    @property
    def _current(self) -> ResponseParser:
        assert self._answer is not None
        return self._answer

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            self.transport.resume_reading()

    def _remember(self, error: BaseException) -> None:
        """What ended the connection first. Kept without the frames that it came through, and raised as a
        copy: frames hold the connection, which holds the error, and such a circle is not freed for long."""
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
