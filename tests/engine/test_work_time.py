import asyncio

import pytest

from argosy.engine.work_time import MeasuredAwaitable


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


async def test_waiting_is_no_effort() -> None:
    hand, let_go = Hand(), asyncio.Event()

    async def work() -> str:
        hand.time += 1
        await let_go.wait()
        hand.time += 2
        return "done"

    async def meanwhile() -> None:
        hand.time += 100
        let_go.set()

    effort = MeasuredAwaitable(work(), hand)
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(awaited(effort))
        tasks.create_task(meanwhile())
    assert working.result() == "done"
    assert effort.seconds == 3


async def test_what_goes_wrong_comes_out_and_counts_too() -> None:
    hand = Hand()

    async def work() -> None:
        hand.time += 1
        raise LookupError

    effort = MeasuredAwaitable(work(), hand)
    with pytest.raises(LookupError):
        await effort
    assert effort.seconds == 1


async def test_cancelling_reaches_the_work() -> None:
    hand = Hand()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            hand.time += 1
            await asyncio.sleep(0)

    effort = MeasuredAwaitable(work(), hand)
    task = asyncio.create_task(awaited(effort))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert effort.seconds == 1


async def awaited(effort: MeasuredAwaitable[str] | MeasuredAwaitable[None]) -> str | None:
    return await effort
