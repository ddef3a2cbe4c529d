"""Where connections read into: room that all of a thread share, for only one of them reads at a time.

An event loop that hands out bytes allocates its largest piece for each that comes, 256 kB under TLS however
little it is; that cost more than parsing them. So protocols here lend the loop their room, and look at what
came in it before anything else is read. Whatever is to be kept has to be copied.
"""

import asyncio
import threading

SIZE = 1 << 18


class SharedBufferProtocol(asyncio.BufferedProtocol):
    """A protocol whose `received` is called with a view that is good until it returns."""

    def __init__(self) -> None:
        self._buffer = _thread_buffer()

    def get_buffer(self, _hint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self.received(self._buffer[:size])

    def received(self, data: memoryview) -> None:
        """Take what came."""
        raise NotImplementedError


def hand_over(transport: asyncio.Transport, heir: asyncio.BaseProtocol) -> None:
    """Give a connection another protocol; loops choose how they read when reading begins."""
    transport.pause_reading()
    transport.set_protocol(heir)
    transport.resume_reading()


class _ThreadLocal(threading.local):
    def __init__(self) -> None:
        self.buffer = memoryview(bytearray(SIZE))


_LOCAL = _ThreadLocal()


def _thread_buffer() -> memoryview:
    return _LOCAL.buffer
