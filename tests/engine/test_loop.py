"""How the operator's process takes its turn."""

import multiprocessing
import os

from argosy.engine.loop import take_turns


def test_a_process_that_takes_turns_pushes_nobody_off_a_core() -> None:
    child = multiprocessing.get_context("spawn").Process(target=_check)
    child.start()
    child.join(30)
    assert child.exitcode == 0


def _check() -> None:
    take_turns()
    raise SystemExit(0 if os.sched_getscheduler(0) == os.SCHED_BATCH else 1)
