"""Tests for the first write after a CRD change: concurrent reconciles wait for its result."""

import asyncio

import pytest

from argosy.reconcile import compatibility
from argosy.reconcile.compatibility import RecordSupport


async def test_others_wait_for_the_first_write_and_no_longer() -> None:
    support = RecordSupport()
    with support.first_write():
        waiting = [asyncio.create_task(support.wait_for_first_write()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        support.confirm_write()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)


async def test_a_first_write_that_fails_lets_the_others_go_and_the_next_is_the_first() -> None:
    support = RecordSupport()
    with pytest.raises(ConnectionError), support.first_write():
        raise ConnectionError
    await support.wait_for_first_write()
    with support.first_write():
        waiting = asyncio.create_task(support.wait_for_first_write())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    await waiting


async def test_a_first_write_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compatibility, "FIRST_WRITE_WAIT_SECONDS", 0.01)
    support = RecordSupport()
    with support.first_write():
        await asyncio.wait_for(support.wait_for_first_write(), 60)


async def test_under_a_definition_that_keeps_records_nobody_waits() -> None:
    support = RecordSupport()
    support.confirm_write()
    with support.first_write():
        await asyncio.wait_for(support.wait_for_first_write(), 60)
