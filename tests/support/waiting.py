"""Polls conditions with a deadline, for tests: no test sleeps for a fixed time.

`wait_for` and `retry_until` block; `eventually` and `until` run in an event loop.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

R = TypeVar("R")

DEFAULT_SECONDS = 60.0
_MAX_PAUSE_SECONDS = 0.5


def wait_for(
    condition: Callable[[], object], why: str | Callable[[], str] = "", seconds: float = DEFAULT_SECONDS
) -> None:
    """Poll until the condition is true; after the deadline fails with `why`, which is evaluated only then."""
    started = time.monotonic()
    deadline = started + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(_timeout_message(seconds, why if isinstance(why, str) else why()))
        started = _pause_after(started)


def retry_until(condition: Callable[[], object], seconds: float = DEFAULT_SECONDS) -> None:
    """Poll until the condition is true; an AssertionError raised before the deadline counts as false."""
    started = time.monotonic()
    deadline = started + seconds
    while True:
        try:
            if condition():
                return
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, _timeout_message(seconds)
        started = _pause_after(started)


def _pause_after(started: float) -> float:
    """Wait for twice as long as the condition took since `started`; returns the time afterwards.

    A condition that starts a program would otherwise take the machine from what it waits for.
    """
    time.sleep(min(max(2 * (time.monotonic() - started), 0.02), _MAX_PAUSE_SECONDS))
    return time.monotonic()


async def eventually(condition: Callable[[], object], seconds: float = DEFAULT_SECONDS) -> None:
    """Poll until the condition is true; fails after the deadline."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        if loop.time() > deadline:
            raise AssertionError(_timeout_message(seconds))
        await asyncio.sleep(0.005)


async def until(request: Callable[[], Awaitable[R | None]], why: str, seconds: float = DEFAULT_SECONDS) -> R:
    """Repeat the request until it returns something other than None or False; returns that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        result = await request()
        if result is not None and result is not False:
            return result
        if loop.time() > deadline:
            raise AssertionError(_timeout_message(seconds, why))
        await asyncio.sleep(0.05)


async def connections_closed(seconds: float = 30.0) -> None:
    """Wait until the event loop has no open sockets.

    A cancelled request still exchanges the end of its TLS session. If the loop closed before that, Python
    would warn about an unclosed socket, and warnings are errors in these tests.
    """
    loop = asyncio.get_running_loop()
    selector = getattr(loop, "_selector", None)
    deadline = loop.time() + seconds
    while selector is not None and len(selector.get_map()) > 1 and loop.time() < deadline:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.01)


def _timeout_message(seconds: float, why: str = "") -> str:
    return f"timed out after {seconds:g} s" + (f": {why}" if why else "")
