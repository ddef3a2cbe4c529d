import asyncio

import pytest

from argosy.engine.work_time import MeasuredAwaitable


class ManualClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


async def test_waiting_does_not_count() -> None:
    clock, released = ManualClock(), asyncio.Event()

    async def work() -> str:
        clock.time += 1
        await released.wait()
        clock.time += 2
        return "done"

    async def meanwhile() -> None:
        clock.time += 100
        released.set()

    measured = MeasuredAwaitable(work(), clock)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(wait_for(measured))
        tasks.create_task(meanwhile())
    assert task.result() == "done"
    assert measured.seconds == 3


async def test_exception_is_raised_and_the_work_before_it_counts() -> None:
    clock = ManualClock()

    async def work() -> None:
        clock.time += 1
        raise LookupError

    measured = MeasuredAwaitable(work(), clock)
    with pytest.raises(LookupError):
        await measured
    assert measured.seconds == 1


async def test_cancellation_reaches_the_work_and_its_cleanup_counts() -> None:
    clock = ManualClock()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            clock.time += 1
            await asyncio.sleep(0)

    measured = MeasuredAwaitable(work(), clock)
    task = asyncio.create_task(wait_for(measured))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert measured.seconds == 1


async def wait_for(measured: MeasuredAwaitable[str] | MeasuredAwaitable[None]) -> str | None:
    return await measured
