import asyncio

import pytest

from argosy.engine.backoff import Backoff
from argosy.engine.queue import Queue

pytestmark = pytest.mark.looptime


def no_jitter() -> Queue[str]:
    return Queue(Backoff(initial=1.0, maximum=8.0, jitter=lambda: 1.0))


def now() -> float:
    return asyncio.get_running_loop().time()


async def get_within(queue: Queue[str], within: float = 0.0001) -> str | None:
    try:
        async with asyncio.timeout(within):
            return await queue.get()
    except TimeoutError:
        return None


async def test_key_added_three_times_is_returned_once() -> None:
    queue = no_jitter()
    for _ in range(3):
        queue.add("a")
    queue.add("b")
    assert [await queue.get(), await queue.get(), await get_within(queue)] == ["a", "b", None]


async def test_key_added_while_active_is_returned_again_only_after_done() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.add("a")
    assert await get_within(queue) is None
    queue.done("a")
    assert await get_within(queue) == "a"


async def test_key_cools_down_five_times_as_long_as_it_worked() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.done("a", work_seconds=0.01)
    before = now()
    await queue.get()
    assert now() - before == pytest.approx(0.05)


async def test_cooldown_is_at_most_200_ms() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.done("a", work_seconds=30)
    before = now()
    queue.add("a")
    await queue.get()
    assert now() - before == pytest.approx(0.2)


async def test_sweep_of_expired_cooldowns_keeps_unexpired_ones() -> None:
    queue = no_jitter()
    for key, pause in (("a", 0.45), ("b", 0.1)):
        queue.add(key)
        queue.done(await queue.get(), work_seconds=1)
        await asyncio.sleep(pause)
    queue.add("a")
    queue.add("b")
    assert await get_within(queue) == "a"
    before = now()
    assert await queue.get() == "b"
    assert now() - before == pytest.approx(0.1, abs=0.001)


async def test_other_keys_are_returned_while_a_key_cools_down() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.done("a", work_seconds=1)
    queue.add("b")
    assert await get_within(queue) == "b"


async def test_earliest_of_several_requested_times_wins() -> None:
    queue = no_jitter()
    queue.add_after("a", 10)
    queue.add_after("a", 3)
    queue.add_after("a", 7)
    before = now()
    await queue.get()
    assert now() - before == pytest.approx(3)
    queue.done("a")
    assert await get_within(queue, within=60) is None, "a run drops the later times"


async def test_delay_requested_while_the_key_is_active_is_kept() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 5)
    queue.done("a")
    before = now()
    await queue.get()
    assert now() - before == pytest.approx(5)


async def test_rate_limited_delay_doubles_up_to_the_maximum_and_forget_resets_it() -> None:
    queue = no_jitter()
    queue.add("a")
    delays = []
    for _ in range(5):
        await queue.get()
        delays.append(queue.add_rate_limited("a"))
        queue.done("a")
    await queue.get()
    queue.forget("a")
    delays.append(queue.add_rate_limited("a"))
    assert delays == [1, 2, 4, 8, 8, 1]


async def test_key_in_backoff_is_returned_at_once_when_added_again() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.add_rate_limited("a")
    queue.done("a")
    queue.add("a")
    assert await get_within(queue) == "a"


async def test_jitter_spreads_the_delay_between_half_and_all_of_the_step() -> None:
    assert Backoff(initial=4, maximum=4, jitter=lambda: 0.0).delay(1) == 2
    assert Backoff(initial=4, maximum=4, jitter=lambda: 0.999).delay(1) == pytest.approx(4, rel=0.01)


async def test_cancelled_get_loses_no_key() -> None:
    queue = no_jitter()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"


async def test_no_state_is_kept_of_keys_that_are_done() -> None:
    queue = no_jitter()
    for number in range(100):
        queue.add(str(number))
    for _ in range(100):
        queue.done(await queue.get(), work_seconds=0.01)
    assert queue.idle
    await asyncio.sleep(1)
    assert not queue._cooling_down
    assert not queue._due
    assert not queue._heap


async def test_no_state_is_kept_of_discarded_keys() -> None:
    queue = no_jitter()
    for key, seconds in (("ready", 0.0), ("due", 3600.0)):
        queue.add_after(key, seconds)
    queue.add("failed")
    assert [await queue.get(), await queue.get()] == ["ready", "failed"]
    queue.add_rate_limited("failed")
    for key in ("ready", "failed"):
        queue.done(key, work_seconds=0.01)
    queue.add("ready")
    for key in ("ready", "due", "failed"):
        queue.discard(key)
    assert queue.idle
    assert not queue._due
    assert not queue._failures
    assert not queue._cooling_down
    assert await get_within(queue, within=7200) is None
    assert not queue._heap


async def test_key_discarded_while_active_is_returned_once_more() -> None:
    queue = no_jitter()
    queue.add("a")
    await queue.get()
    queue.discard("a")
    queue.done("a")
    assert await get_within(queue) == "a"


async def test_outdated_heap_entries_do_not_accumulate() -> None:
    queue = no_jitter()
    queue.add_after("kept", 3000)
    for number in range(1000):
        queue.add_after(str(number), 7200 + number)
        queue.discard(str(number))
    assert len(queue._heap) < 100
    before = now()
    assert await queue.get() == "kept"
    assert now() - before == pytest.approx(3000)


async def test_queue_without_cooldown_returns_a_key_again_at_once() -> None:
    queue: Queue[str] = Queue(max_cooldown=0.0)
    queue.add("a")
    queue.done(await queue.get(), work_seconds=1.0)
    queue.add("a")
    assert await get_within(queue) == "a"
