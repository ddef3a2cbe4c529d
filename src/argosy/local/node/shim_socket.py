"""The shim's Unix socket: watch, stop, signal, exec, attach and checkpoint for who may open the folder.

A request is one JSON line. `watch` answers with one line per state change and per event; `exec` takes file
descriptors with the request and answers `started`, then `exit`; `attach` turns the connection into frames
(one byte for the stream, four for the length, then data). The socket is opened through the folder's
descriptor, because paths in a state folder may exceed the 108 bytes of a socket address. Standard library
only.
"""

import json
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypedDict

from argosy.local.node.event_loop import EventLoop

SHIM_SOCKET: Final = "shim.sock"
ZYGOTE_SOCKET: Final = "zygote.sock"
ZYGOTE_PID: Final = "zygote.json"
STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
_BACKLOG_BYTES: Final = 1 << 20


class ShimRequest(TypedDict, total=False):
    op: str
    container: str
    grace: float
    signal: int
    argv: list[str]
    tty: bool
    target: str
    criu: str
    image: str


Handle = Callable[["ShimConnection", ShimRequest, list[int]], None]


@contextmanager
def short_path(folder: Path, name: str = SHIM_SOCKET) -> Iterator[str]:
    """Return a short path to a socket, however deep its folder is."""
    descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def listen(folder: Path, name: str = SHIM_SOCKET) -> socket.socket:
    """Listen on a socket that gets its name only then, so that a refused connection proves a dead owner."""
    fresh = f".{name}.new"
    (folder / fresh).unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with short_path(folder, fresh) as path:
        server.bind(path)
    server.listen(64)
    (folder / fresh).rename(folder / name)
    return server


def connect(folder: Path, name: str = SHIM_SOCKET) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_path(folder, name) as path:
        try:
            client.connect(path)
        except OSError:
            client.close()
            raise
    return client


def encode_frame(stream: int, data: bytes) -> bytes:
    return struct.pack(">BI", stream, len(data)) + data


def split_frames(buffer: bytearray) -> Iterator[tuple[int, bytes]]:
    """Remove and return the complete frames at the front of a buffer."""
    while len(buffer) >= 5:
        stream, length = struct.unpack_from(">BI", buffer)
        if len(buffer) < 5 + length:
            return
        data = bytes(buffer[5 : 5 + length])
        del buffer[: 5 + length]
        yield stream, data


class ShimServer:
    def __init__(self, loop: EventLoop, listener: socket.socket, handle: Handle) -> None:
        self._loop = loop
        self._listener = listener
        self._handle = handle
        self.connections: list[ShimConnection] = []
        loop.on_readable(listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        self.connections.append(ShimConnection(self._loop, client, self._handle, self.connections.remove))

    def close(self) -> None:
        for connection in list(self.connections):
            connection.close()
        self._listener.close()


class ShimConnection:
    """One client. Data after its request line is passed to `on_frame` if that is set."""

    def __init__(
        self, loop: EventLoop, client: socket.socket, handle: Handle, gone: Callable[["ShimConnection"], None]
    ) -> None:
        self.watching = False
        self.on_frame: Callable[[int, bytes], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self._loop = loop
        self._client = client
        self._handle = handle
        self._on_closed = gone
        self._received = bytearray()
        self._descriptors: list[int] = []
        self._request_received = False
        self._open = True
        client.setblocking(False)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BACKLOG_BYTES)
        loop.on_readable(client.fileno(), self._read)

    def send(self, message: dict[str, object]) -> None:
        self.send_bytes(json.dumps(message).encode() + b"\n")

    def send_bytes(self, data: bytes) -> None:
        """Send completely without waiting; a client that does not read is disconnected."""
        if not self._open:
            return
        try:
            if self._client.send(data) < len(data):
                self.close()
        except OSError:
            self.close()

    def send_descriptor(self, message: dict[str, object], descriptor: int) -> None:
        if self._open:
            try:
                socket.send_fds(self._client, [json.dumps(message).encode() + b"\n"], [descriptor])
            except OSError:
                self.close()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._client.fileno())
        self._client.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._on_closed(self)
        if self.on_close:
            self.on_close()

    def _read(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._client, 1 << 16, 3)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self._descriptors += descriptors
        if not data:
            self.close()
            return
        self._received += data
        if not self._request_received:
            line, newline, rest = bytes(self._received).partition(b"\n")
            if not newline:
                return
            self._request_received, self._received = True, bytearray(rest)
            request: ShimRequest = json.loads(line)
            passed_descriptors, self._descriptors = self._descriptors, []
            self._handle(self, request, passed_descriptors)
        if self.on_frame:
            for stream, content in split_frames(self._received):
                self.on_frame(stream, content)
