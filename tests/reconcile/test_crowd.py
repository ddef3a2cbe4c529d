"""The first write under a definition: whoever comes meanwhile hears what became of it."""

import asyncio

import pytest

from argosy.reconcile import crowd as room
from argosy.reconcile.crowd import Crowd


async def test_others_wait_for_the_first_write_and_no_longer() -> None:
    crowd = Crowd()
    with crowd.writing():
        waiting = [asyncio.create_task(crowd.first_written()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        crowd.record_came_back()
    await asyncio.wait_for(asyncio.gather(*waiting), 1)


async def test_a_first_write_that_fails_lets_the_others_go_and_the_next_is_the_first() -> None:
    crowd = Crowd()
    with pytest.raises(ConnectionError), crowd.writing():
        raise ConnectionError
    await crowd.first_written()
    with crowd.writing():
        waiting = asyncio.create_task(crowd.first_written())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    await waiting


async def test_a_first_write_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROOF", 0.01)
    crowd = Crowd()
    with crowd.writing():
        await asyncio.wait_for(crowd.first_written(), 1)


async def test_under_a_definition_that_keeps_records_nobody_waits() -> None:
    crowd = Crowd()
    crowd.record_came_back()
    with crowd.writing():
        await asyncio.wait_for(crowd.first_written(), 1)
