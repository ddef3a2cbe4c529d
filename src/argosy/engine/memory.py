"""Keeps the garbage collector away from what lives for long.

A full collection over tens of thousands of cached objects stops the event loop for a second and finds
nothing: they are released by their reference counts. So collection is off while caches fill, and what they
hold is then taken out of its sight.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def settling() -> Iterator[None]:
    """Fill caches inside; leaves with everything frozen and the thresholds raised."""
    gc.disable()
    try:
        yield
    finally:
        settle()
        gc.enable()


def settle() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


async def keep_settled(seconds: float = 300.0) -> None:
    """Freeze again now and then what has come since; run it beside the controllers."""
    while True:
        await asyncio.sleep(seconds)
        settle()


THRESHOLDS = (50_000, 20, 100)
