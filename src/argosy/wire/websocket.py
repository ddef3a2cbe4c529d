"""A WebSocket once the handshake is done, for either side: whole messages in and out, in order.

It takes the transport over from the connection that shook hands: `transport.set_protocol(socket)`, then
`socket.data_received(...)` with what came after the handshake. Pings are answered, a slow reader of ours
stops the peer's sending, a slow peer stops ours. With a heartbeat, a peer of which nothing is heard between
two pings is dead. What breaks the protocol or is too large ends the connection with the code that says so.
The framing is wsproto's, which is imported when the first socket opens: it takes as long as all else that a
server imports.
"""

import asyncio
import base64
import hashlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wsproto.frame_protocol import Frame

LARGEST_MESSAGE = 64 << 20
VERSION = "13"

_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_MOST_WAITING = 1 << 20  # bytes received and not yet asked for, from which on the peer has to wait
_CLOSE_SECONDS = 1.0
_NORMAL, _NO_STATUS, _ABNORMAL, _TOO_LARGE = 1000, 1005, 1006, 1009


def accept_key(key: bytes) -> bytes:
    """What a server answers to a client's `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_SUFFIX, usedforsecurity=False).digest())


def offered_subprotocols(header: str) -> list[str]:
    """The names in a `Sec-WebSocket-Protocol`, in their order."""
    return [name.strip() for name in header.split(",") if name.strip()]


class WebSocket(asyncio.Protocol):
    """One end of a WebSocket; one task at a time may receive, any number may send."""

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        client: bool,
        subprotocol: str = "",
        largest: int = LARGEST_MESSAGE,
        heartbeat: float | None = None,
        when_lost: Callable[[], None] | None = None,
    ) -> None:
        from wsproto.frame_protocol import FrameProtocol

        self.subprotocol = subprotocol
        self.close_code: int | None = None
        """Why it ended: the peer's code, 1006 when the connection broke, none while it is open."""
        self._transport = transport
        self._frames = FrameProtocol(client=client, extensions=[])
        self._largest = largest
        self._when_lost = when_lost
        self._messages: deque[bytes | str] = deque()
        self._waiting = 0
        self._parts: list[bytes | str] = []
        self._size = 0
        self._pong: bytes | None = None
        self._close_sent = False
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._heartbeat = heartbeat
        self._heard = True
        self._beat: asyncio.TimerHandle | None = None
        self._schedule_beat()

    async def receive(self) -> bytes | str | None:
        """The next message, bytes or text as it was sent; nothing when the socket is closed."""
        while not self._messages:
            if self.close_code is not None:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._waiting -= len(message)
        if self._waiting < _MOST_WAITING and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def send(self, message: bytes | str) -> None:
        """Send one message; returns when the peer keeps up. Raises ConnectionError when there is none."""
        if self._close_sent or self._transport.is_closing():
            raise ConnectionResetError("the WebSocket is closed")
        self._transport.write(self._frames.send_data(message))
        await self._writable.wait()

    async def close(self, code: int = _NORMAL, reason: str = "") -> None:
        """Say goodbye and wait a moment for the peer's; the connection is closed in any case."""
        if not self._transport.is_closing():
            self._say_close(code, reason)
            # A reader that stopped asking must not keep us from hearing the goodbye.
            self._messages.clear()
            self._waiting = 0
            self._transport.resume_reading()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._lost.wait()
            self._transport.close()
        self._end(_ABNORMAL)

    def data_received(self, data: bytes) -> None:
        from wsproto.frame_protocol import ParseFailed

        self._heard = True
        try:
            self._frames.receive_bytes(data)
            for frame in self._frames.received_frames():
                self._take(frame)
        except ParseFailed as error:
            self._fail(int(error.code), str(error))
        except _TooLargeError:
            self._fail(_TOO_LARGE, "the message is too large")

    def eof_received(self) -> None:
        """The peer sends no more: nothing is left to wait for."""
        self._end(_ABNORMAL)

    def connection_lost(self, _error: Exception | None) -> None:
        self._end(_ABNORMAL)
        self._writable.set()
        self._lost.set()
        if self._beat is not None:
            self._beat.cancel()
        if self._when_lost is not None:
            self._when_lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._pong is not None:
            pong, self._pong = self._pong, None
            self._say_pong(pong)

    def _schedule_beat(self) -> None:
        if self._heartbeat is not None:
            self._beat = asyncio.get_running_loop().call_later(self._heartbeat, self._ping)

    def _ping(self) -> None:
        # Nothing can be heard while our reader lets the peer wait, nor asked while the peer lets us.
        held_up = self._waiting >= _MOST_WAITING or not self._writable.is_set()
        if not held_up and not self._heard:
            self._transport.abort()
            return
        self._heard = held_up
        if not (held_up or self._close_sent or self._transport.is_closing()):
            self._transport.write(self._frames.ping(b""))
        self._schedule_beat()

    def _take(self, frame: "Frame") -> None:
        from wsproto.frame_protocol import Opcode

        payload = frame.payload
        if frame.opcode is Opcode.CLOSE:
            code = int(payload[0]) if isinstance(payload, tuple) else _NO_STATUS
            self._say_close(code, "")
            self._transport.close()
            self._end(code)
        elif frame.opcode is Opcode.PING:
            assert isinstance(payload, bytes)
            self._say_pong(payload)
        elif isinstance(payload, bytes | str) and frame.opcode is not Opcode.PONG:
            self._take_part(payload, frame.message_finished)

    def _take_part(self, part: bytes | str, finished: bool) -> None:
        if self._close_sent:
            return  # sent before the peer heard our goodbye
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._largest:
            raise _TooLargeError
        if not finished:
            return
        joiner = b"" if isinstance(part, bytes) else ""
        message = part if len(self._parts) == 1 else joiner.join(self._parts)  # type: ignore[arg-type]  # all parts of a message are of one type
        self._parts, self._size = [], 0
        self._messages.append(message)
        self._waiting += len(message)
        self._arrived.set()
        if self._waiting >= _MOST_WAITING:
            self._transport.pause_reading()

    def _say_pong(self, payload: bytes) -> None:
        """At most one is owed to a peer that does not read: the newest, as the protocol allows."""
        if not self._writable.is_set():
            self._pong = payload
        elif not self._close_sent and not self._transport.is_closing():
            self._transport.write(self._frames.pong(payload))

    def _say_close(self, code: int, reason: str) -> None:
        if not self._close_sent and not self._transport.is_closing():
            self._close_sent = True
            self._transport.write(self._frames.close(None if code == _NO_STATUS else code, reason or None))

    def _fail(self, code: int, reason: str) -> None:
        self._say_close(code, reason)
        self._transport.close()
        self._end(code)

    def _end(self, code: int) -> None:
        if self.close_code is None:
            self.close_code = code
        self._arrived.set()


class _TooLargeError(Exception):
    """A message beyond the bound."""
