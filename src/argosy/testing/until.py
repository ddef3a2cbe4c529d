"""Asking again until the answer is there: for conditions that need an await."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")

PATIENCE = 60.0


async def until(what: Callable[[], Awaitable[R | None]], why: str, seconds: float = PATIENCE) -> R:
    """The first answer that is neither None nor False; fails when none comes in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        found = await what()
        if found is not None and found is not False:
            return found
        if loop.time() > deadline:
            raise AssertionError(f"waited in vain for {seconds:g} s: {why}")
        await asyncio.sleep(0.05)


async def connections_closed(seconds: float = 30.0) -> None:
    """Until the loop has no sockets left.

    A request that is cancelled says goodbye to its TLS peer and waits for the answer; a loop that ends before
    that has an unclosed socket, and a warning is an error in our tests.
    """
    loop = asyncio.get_running_loop()
    selector = getattr(loop, "_selector", None)
    deadline = loop.time() + seconds
    while selector is not None and len(selector.get_map()) > 1 and loop.time() < deadline:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.01)
