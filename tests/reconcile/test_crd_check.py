"""The first write under a definition: whoever comes meanwhile hears what became of it."""

import asyncio

import pytest

from argosy.reconcile import crd_check as room
from argosy.reconcile.crd_check import RecordSupport


async def test_others_wait_for_the_first_write_and_no_longer() -> None:
    proof = RecordSupport()
    with proof.first_write():
        waiting = [asyncio.create_task(proof.wait_for_first_write()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        proof.confirm_write()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)


async def test_a_first_write_that_fails_lets_the_others_go_and_the_next_is_the_first() -> None:
    proof = RecordSupport()
    with pytest.raises(ConnectionError), proof.first_write():
        raise ConnectionError
    await proof.wait_for_first_write()
    with proof.first_write():
        waiting = asyncio.create_task(proof.wait_for_first_write())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    await waiting


async def test_a_first_write_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FIRST_WRITE_WAIT_SECONDS", 0.01)
    proof = RecordSupport()
    with proof.first_write():
        await asyncio.wait_for(proof.wait_for_first_write(), 60)


async def test_under_a_definition_that_keeps_records_nobody_waits() -> None:
    proof = RecordSupport()
    proof.confirm_write()
    with proof.first_write():
        await asyncio.wait_for(proof.wait_for_first_write(), 60)
