"""Runs programs on uvloop if it is installed, and sets the scheduling policy of the process."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from importlib.util import find_spec
from typing import TypeVar

R = TypeVar("R")


def run(main: Coroutine[object, None, R]) -> R:
    """Run a coroutine to completion on a new event loop."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def use_batch_scheduling() -> None:
    """Use the scheduling policy SCHED_BATCH for this process, where the system has it.

    By default Linux runs a process that wakes up at once, in place of the one that is running. An operator
    that receives events of thousands of pods would interrupt other processes for each event. As a batch
    process it handles many events at a time, which also costs itself less.
    """
    if hasattr(os, "SCHED_BATCH"):  # Linux
        with contextlib.suppress(OSError):  # not permitted: keep the default policy
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
