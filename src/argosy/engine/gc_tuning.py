"""Keeps the garbage collector away from what lives for long, and memory from staying taken.

A full collection over tens of thousands of cached objects stops the event loop for a second and finds
nothing: they are released by their reference counts. So collection is off while caches fill, and what they
hold is then taken out of its sight. What was in a circle at that moment and is garbage later would never be
found: once an hour everything is looked through after all.
"""

import asyncio.sslproto
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL


def collect_and_freeze(*, thoroughly: bool = False) -> None:
    """Free what is garbage and freeze what is left; thoroughly: look through what was frozen before, too."""
    if thoroughly:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if thoroughly:
        _give_back()


async def refreeze_periodically(seconds: float = 300.0, thoroughly: float = 3600.0) -> None:
    """Freeze again now and then what has come since; run it beside the controllers."""
    loop = asyncio.get_running_loop()
    last = loop.time()
    while True:
        await asyncio.sleep(seconds)
        due = loop.time() - last >= thoroughly
        collect_and_freeze(thoroughly=due)
        if due:
            last = loop.time()


def limit_heap_growth() -> bool:
    """Have large blocks returned to the system when they are freed; once, as a process starts.

    glibc raises the size from which it does so with every such block it sees: buffers of a burst of answers
    then lie in the heap, and a small object behind one keeps all of it. False where there is no such setting.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    return mallopt is not None and bool(mallopt(_MMAP_THRESHOLD, LARGE))


def use_small_tls_buffers() -> None:
    """Have asyncio's TLS connections keep a small buffer each; once, as a process starts.

    Its default of 256 KiB is made for a few connections that carry much. uvloop has its own, which cost
    nothing until they are used.
    """
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER


def _give_back() -> None:
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _libc() -> "CDLL | None":
    from ctypes import CDLL

    try:
        return CDLL(None)
    except OSError:
        return None


THRESHOLDS = (50_000, 20, 100)

LARGE = 128 * 1024
"""Bytes of a block that goes back by itself: where glibc begins."""

TLS_BUFFER = 16 * 1024
"""Bytes of a connection's buffer: as large as a TLS record, so that bulk transfers hardly notice."""

_MMAP_THRESHOLD = -3
"""M_MMAP_THRESHOLD in glibc's malloc.h."""
