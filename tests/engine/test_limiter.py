import asyncio

import pytest

from argosy.engine.limiter import WriteLimiter, WriteLimits

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def fill(limiter: WriteLimiter, slots: int) -> list[float]:
    return [await limiter.acquire() for _ in range(slots)]


async def test_writes_beyond_the_window_wait() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=2))
    await fill(limiter, 2)
    third = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(1)
    assert not third.done()
    limiter.release()
    await third
    assert limiter.active == 2


async def test_whole_window_throttled_at_once_is_halved_once() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=128, initial=128))
    started = [await limiter.acquire(f"ns-{number}") for number in range(128)]
    await asyncio.sleep(0.1)
    for number, moment in enumerate(started):
        limiter.throttled(moment, 0)
        limiter.release(f"ns-{number}")
    assert limiter.window == 64


async def test_window_grows_from_its_initial_size_to_the_maximum() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=128, initial=32))
    assert limiter.window == 32
    for _ in range(2000):
        limiter.succeeded()
    assert limiter.window == 128


async def test_throttling_of_later_writes_halves_again_down_to_one() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=4))
    for want in (2, 1, 1):
        await asyncio.sleep(1)
        (started,) = await fill(limiter, 1)
        await asyncio.sleep(0.1)
        limiter.throttled(started, 0)
        limiter.release()
        assert limiter.window == want


async def test_retry_after_delays_all_writes() -> None:
    limiter = WriteLimiter()
    (started,) = await fill(limiter, 1)
    limiter.throttled(started, 7)
    limiter.release()
    before = now()
    await asyncio.gather(*(limiter.acquire() for _ in range(3)))
    assert now() - before == pytest.approx(7)


async def test_successes_restore_the_full_window_and_not_more() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=8))
    limiter.throttled(await limiter.acquire(), 0)
    limiter.release()
    assert limiter.window == 4
    for _ in range(200):
        limiter.succeeded()
    assert limiter.window == 8


async def test_limit_per_second_spreads_writes() -> None:
    limiter = WriteLimiter(WriteLimits(per_second=10))
    before = now()
    for _ in range(11):
        await limiter.acquire()
        limiter.release()
    assert now() - before == pytest.approx(1.0, abs=0.01)


async def test_burst_passes_the_limit_per_second_and_again_after_a_pause() -> None:
    limiter = WriteLimiter(WriteLimits(per_second=10, burst=5))
    for _ in range(2):
        before = now()
        for _ in range(5):
            await limiter.acquire()
            limiter.release()
        assert now() == pytest.approx(before, abs=0.01)
        await limiter.acquire()
        limiter.release()
        assert now() - before == pytest.approx(0.1, abs=0.01)
        await asyncio.sleep(1)


async def test_cancelled_wait_passes_its_slot_on() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=1))
    await limiter.acquire()
    first, second = (asyncio.create_task(limiter.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    limiter.release()
    first.cancel()
    await second
    assert limiter.active == 1


async def test_namespace_whose_writes_hang_leaves_slots_to_others() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=72, initial=72))
    hanging = [asyncio.create_task(limiter.acquire("busy")) for _ in range(1_000)]
    await asyncio.sleep(1)
    assert limiter.active == 64
    for _ in range(100):
        async with asyncio.timeout(1):
            await limiter.acquire("quiet")
        limiter.release("quiet")
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_waiting_namespaces_take_turns() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=4, initial=4))
    order: list[str] = []

    async def write(bucket: str) -> None:
        await limiter.acquire(bucket)
        order.append(bucket)
        await asyncio.sleep(1)
        limiter.release(bucket)

    names = [*["busy"] * 1_000, *["quiet"] * 4, ""]
    await asyncio.gather(*(write(name) for name in names))
    assert len(order) == len(names)
    assert sorted(set(order[:16])) == ["", "busy", "quiet"]
    assert order[:16].count("quiet") == 4
