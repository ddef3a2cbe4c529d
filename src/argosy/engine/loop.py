"""How a program runs: on the fastest event loop there is (uvloop if installed), and when it gets its turn."""

import asyncio
import contextlib
import os
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


def use_batch_scheduling() -> None:
    """Have this process wait for its turn on a core that is busy.

    Usually whoever has slept is let in at once: an operator that hears of thousands of pods would push others
    off the core for each. So it hears of many at a time, which costs less to itself, too.
    """
    if hasattr(os, "SCHED_BATCH"):  # Linux
        with contextlib.suppress(OSError):  # where it is forbidden, all goes on as usual
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
