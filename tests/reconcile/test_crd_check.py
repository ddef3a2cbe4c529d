"""The first write under a definition: whoever comes meanwhile hears what became of it."""

import asyncio

import pytest

from argosy.reconcile import crd_check as room
from argosy.reconcile.crd_check import Proof


async def test_others_wait_for_the_first_write_and_no_longer() -> None:
    proof = Proof()
    with proof.writing():
        waiting = [asyncio.create_task(proof.first_written()) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        proof.record_came_back()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)


async def test_a_first_write_that_fails_lets_the_others_go_and_the_next_is_the_first() -> None:
    proof = Proof()
    with pytest.raises(ConnectionError), proof.writing():
        raise ConnectionError
    await proof.first_written()
    with proof.writing():
        waiting = asyncio.create_task(proof.first_written())
        await asyncio.sleep(0.01)
        assert not waiting.done()
    await waiting


async def test_a_first_write_that_hangs_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PATIENCE", 0.01)
    proof = Proof()
    with proof.writing():
        await asyncio.wait_for(proof.first_written(), 60)


async def test_under_a_definition_that_keeps_records_nobody_waits() -> None:
    proof = Proof()
    proof.record_came_back()
    with proof.writing():
        await asyncio.wait_for(proof.first_written(), 60)
