"""Reads and writes pipes and terminals from asyncio without a thread each.

An exec session has four streams and may last for hours; a thread for each would soon exhaust the loop's pool.
"""

import asyncio
import os
import socket


async def read(descriptor: int, size: int) -> bytes:
    """Read the available bytes, waiting for some; empty at the end. The descriptor must be non-blocking."""
    while True:
        try:
            return os.read(descriptor, size)
        except BlockingIOError:
            await _ready(descriptor, writing=False)
        except OSError:  # a terminal that its last process has closed returns EIO
            return b""


async def write(descriptor: int, data: bytes) -> None:
    """Write all bytes; raises OSError if the other end is closed."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:
            await _ready(descriptor, writing=True)


async def receive_with_descriptors(connection: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a message and its descriptors from a non-blocking socket."""
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(connection, 65536, 1)
        except BlockingIOError:
            await _ready(connection.fileno(), writing=False)
            continue
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return data, list(descriptors)


async def _ready(descriptor: int, *, writing: bool) -> None:
    """Wait with a duplicate: the loop has one reader per descriptor, which may be closed meanwhile."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    copy = os.dup(descriptor)

    def ready() -> None:
        if not future.done():
            future.set_result(None)

    (loop.add_writer if writing else loop.add_reader)(copy, ready)
    try:
        await future
    finally:
        (loop.remove_writer if writing else loop.remove_reader)(copy)
        os.close(copy)
