"""Runs a program's main coroutine on the fastest event loop there is: uvloop when installed."""

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import TypeVar

R = TypeVar("R")


def run(main: Coroutine[object, None, R]) -> R:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop
