"""A WebSocket after its handshake, for clients and servers: sends and receives whole messages, in order.

It takes over the transport of the connection that did the handshake: `transport.set_protocol(socket)`, then
`socket.data_received(...)` with the bytes after the handshake. Pings are answered, and both directions have
flow control. With a heartbeat, the connection is aborted if nothing arrives between two pings. Protocol
errors and messages that are too large close the connection with the matching code.

The framing is wsproto's. It is imported when the first socket opens, because that takes as long as all other
imports of a server together.
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

MAX_MESSAGE_BYTES = 64 << 20
VERSION = "13"
CLOSE_NORMAL, CLOSE_GOING_AWAY, CLOSE_INTERNAL_ERROR = 1000, 1001, 1011

_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_MAX_UNREAD_BYTES = 1 << 20  # received messages after which reading from the peer pauses
_CLOSE_SECONDS = 1.0
_NO_STATUS, _ABNORMAL, _TOO_LARGE = 1005, 1006, 1009


def accept_key(key: bytes) -> bytes:
    """Return the `Sec-WebSocket-Accept` for a client's `Sec-WebSocket-Key`."""
    return base64.b64encode(hashlib.sha1(key + _ACCEPT_SUFFIX, usedforsecurity=False).digest())


def offered_subprotocols(header: str) -> list[str]:
    """Return the names in a `Sec-WebSocket-Protocol` header, in their order."""
    return [name.strip() for name in header.split(",") if name.strip()]


class WebSocket(asyncio.Protocol):
    """One end of a WebSocket; one task at a time may receive, any number may send."""

    def __init__(
        self,
        transport: asyncio.Transport,
        *,
        client: bool,
        subprotocol: str = "",
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        heartbeat_seconds: float | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        from wsproto.frame_protocol import FrameProtocol

        self.subprotocol = subprotocol
        self.close_code: int | None = None
        """Why it was closed: the peer's code, 1006 if the connection broke, None while it is open."""
        self._transport = transport
        self._frames = FrameProtocol(client=client, extensions=[])
        self._max_message_bytes = max_message_bytes
        self._on_lost = on_lost
        self._messages: deque[bytes | str] = deque()
        self._unread = 0
        self._parts: list[bytes | str] = []
        self._size = 0
        self._pong: bytes | None = None
        self._close_sent = False
        self._arrived = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._lost = asyncio.Event()
        self._heartbeat_seconds = heartbeat_seconds
        self._heard_from_peer = True
        self._ping_timer: asyncio.TimerHandle | None = None
        self._schedule_ping()

    async def receive(self) -> bytes | str | None:
        """Return the next message, bytes or text as it was sent; None once the socket is closed."""
        while not self._messages:
            if self.close_code is not None:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        self._unread -= len(message)
        if self._unread < _MAX_UNREAD_BYTES and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def send(self, message: bytes | str) -> None:
        """Send one message, and wait while the peer is slow; raises ConnectionError if it is closed."""
        if self._close_sent or self._transport.is_closing():
            raise ConnectionResetError("the WebSocket is closed")
        self._transport.write(self._frames.send_data(message))
        await self._writable.wait()

    async def close(self, code: int = CLOSE_NORMAL, reason: str = "") -> None:
        """Send a close frame and wait a second for the peer's; the connection is closed in any case."""
        if not self._transport.is_closing():
            self._send_close(code, reason)
            # Reading may be paused because of unread messages; the peer's close frame comes after them.
            self._messages.clear()
            self._unread = 0
            self._transport.resume_reading()
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._lost.wait()
            self._transport.close()
        self._end(_ABNORMAL)

    def data_received(self, data: bytes) -> None:
        from wsproto.frame_protocol import ParseFailed

        self._heard_from_peer = True
        try:
            self._frames.receive_bytes(data)
            for frame in self._frames.received_frames():
                self._receive_frame(frame)
        except ParseFailed as error:
            self._fail(int(error.code), str(error))
        except _TooLargeError:
            self._fail(_TOO_LARGE, f"the message is larger than {self._max_message_bytes} bytes")

    def eof_received(self) -> None:
        """Close: the peer will send nothing more."""
        self._end(_ABNORMAL)

    def connection_lost(self, _error: Exception | None) -> None:
        self._end(_ABNORMAL)
        self._writable.set()
        self._lost.set()
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        if self._on_lost is not None:
            self._on_lost()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        if self._pong is not None:
            pong, self._pong = self._pong, None
            self._send_pong(pong)

    def _schedule_ping(self) -> None:
        if self._heartbeat_seconds is not None:
            self._ping_timer = asyncio.get_running_loop().call_later(self._heartbeat_seconds, self._ping)

    def _ping(self) -> None:
        # While reading is paused no pong can arrive, and while writing is paused no ping can be sent.
        is_paused = self._unread >= _MAX_UNREAD_BYTES or not self._writable.is_set()
        if not is_paused and not self._heard_from_peer:
            self._transport.abort()
            return
        self._heard_from_peer = is_paused
        if not (is_paused or self._close_sent or self._transport.is_closing()):
            self._transport.write(self._frames.ping(b""))
        self._schedule_ping()

    def _receive_frame(self, frame: "Frame") -> None:
        from wsproto.frame_protocol import Opcode

        payload = frame.payload
        if frame.opcode is Opcode.CLOSE:
            code = int(payload[0]) if isinstance(payload, tuple) else _NO_STATUS
            self._send_close(code, "")
            self._transport.close()
            self._end(code)
        elif frame.opcode is Opcode.PING:
            assert isinstance(payload, bytes)
            self._send_pong(payload)
        elif isinstance(payload, bytes | str) and frame.opcode is not Opcode.PONG:
            self._receive_part(payload, frame.message_finished)

    def _receive_part(self, part: bytes | str, finished: bool) -> None:
        if self._close_sent:
            return  # sent before the peer received our close frame
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._max_message_bytes:
            raise _TooLargeError
        if not finished:
            return
        joiner = b"" if isinstance(part, bytes) else ""
        message = part if len(self._parts) == 1 else joiner.join(self._parts)  # type: ignore[arg-type]  # all parts of a message are of one type
        self._parts, self._size = [], 0
        self._messages.append(message)
        self._unread += len(message)
        self._arrived.set()
        if self._unread >= _MAX_UNREAD_BYTES:
            self._transport.pause_reading()

    def _send_pong(self, payload: bytes) -> None:
        """Send a pong. While the peer does not read, only the newest is kept, as the protocol allows."""
        if not self._writable.is_set():
            self._pong = payload
        elif not self._close_sent and not self._transport.is_closing():
            self._transport.write(self._frames.pong(payload))

    def _send_close(self, code: int, reason: str) -> None:
        if not self._close_sent and not self._transport.is_closing():
            self._close_sent = True
            self._transport.write(self._frames.close(None if code == _NO_STATUS else code, reason or None))

    def _fail(self, code: int, reason: str) -> None:
        self._send_close(code, reason)
        self._transport.close()
        self._end(code)

    def _end(self, code: int) -> None:
        if self.close_code is None:
            self.close_code = code
        self._arrived.set()


class _TooLargeError(Exception):
    """A message is larger than the limit."""
