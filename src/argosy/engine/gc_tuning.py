"""Tunes Python's garbage collector and glibc's allocator for large, long-lived caches.

A full collection over tens of thousands of cached objects blocks the event loop for a second and frees
nothing: they are freed by reference counting. So long-lived objects are frozen, which hides them from the
collector. Objects that are part of a reference cycle when they are frozen would never be freed; therefore
everything is unfrozen and collected once an hour.
"""

import asyncio.sslproto
import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ctypes import CDLL


THRESHOLDS = (50_000, 20, 100)
"""`gc.set_threshold`: new objects before a young collection, and younger collections before an older one."""

FREEZE_SECONDS = 300.0
FULL_COLLECTION_SECONDS = 3600.0

MMAP_THRESHOLD_BYTES = 128 * 1024
"""Blocks from this size on are returned to the system when freed; glibc's initial value."""

TLS_BUFFER_BYTES = 16 * 1024
"""The size of a TLS record, so that bulk transfers are hardly slower."""

_M_MMAP_THRESHOLD = -3
"""The constant of this name in glibc's malloc.h."""


def collect_and_freeze(*, include_frozen: bool = False) -> None:
    """Collect garbage, freeze the remaining objects and raise the thresholds.

    With `include_frozen`, objects frozen earlier are collected, too, and free memory is returned to the
    system.
    """
    if include_frozen:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if include_frozen:
        _return_free_memory()


async def refreeze_periodically(
    interval: float = FREEZE_SECONDS, full_interval: float = FULL_COLLECTION_SECONDS
) -> None:
    """Freeze new long-lived objects every `interval`; include the frozen ones every `full_interval`."""
    loop = asyncio.get_running_loop()
    last_full = loop.time()
    while True:
        await asyncio.sleep(interval)
        is_full = loop.time() - last_full >= full_interval
        collect_and_freeze(include_frozen=is_full)
        if is_full:
            last_full = loop.time()


def limit_heap_growth() -> bool:
    """Make glibc return large blocks to the system when they are freed; call it once, at process start.

    By default glibc raises the size from which blocks are returned whenever such a block is freed. The
    buffers of a burst of responses then stay in the heap, and a small object behind one keeps all of it.
    Returns False where there is no such setting.
    """
    mallopt = getattr(_libc(), "mallopt", None)
    return mallopt is not None and bool(mallopt(_M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES))


def use_small_tls_buffers() -> None:
    """Give asyncio's TLS connections a small buffer each; call it once, at process start.

    The default of 256 KiB suits a few connections with much traffic. uvloop allocates buffers only when they
    are used.
    """
    asyncio.sslproto.SSLProtocol.max_size = TLS_BUFFER_BYTES


def _return_free_memory() -> None:
    trim = getattr(_libc(), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _libc() -> "CDLL | None":
    from ctypes import CDLL

    try:
        return CDLL(None)
    except OSError:
        return None
