"""A read buffer that all connections of a thread share, because only one of them reads at a time.

An event loop that passes bytes to protocols allocates its largest read size for each read, 256 kB with TLS
however little arrives; that cost more than parsing. So protocols here lend the loop one buffer, and process
its content before anything else is read. They copy whatever they keep.
"""

import asyncio
import threading

READ_BUFFER_BYTES = 1 << 18


class SharedBufferProtocol(asyncio.BufferedProtocol):
    """A protocol whose `received` is called with a view that is valid until it returns."""

    def __init__(self) -> None:
        self._buffer = _thread_buffer()

    def get_buffer(self, _hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.received(self._buffer[:size])

    def received(self, data: memoryview) -> None:
        """Process the bytes that arrived."""
        raise NotImplementedError


def hand_over(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Switch a connection to another protocol. Loops choose how to read when reading starts: restart it."""
    transport.pause_reading()
    transport.set_protocol(protocol)
    transport.resume_reading()


class _ThreadLocal(threading.local):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(READ_BUFFER_BYTES))


_LOCAL = _ThreadLocal()


def _thread_buffer() -> memoryview:
    return _LOCAL.buffer
