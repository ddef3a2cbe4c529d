import asyncio

import pytest

from argosy.engine.limiter import WriteLimiter, WriteLimits

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def fill(limiter: WriteLimiter, places: int) -> list[float]:
    return [await limiter.acquire() for _ in range(places)]


async def test_no_more_writes_than_the_window_are_in_flight() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=2))
    await fill(limiter, 2)
    third = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(1)
    assert not third.done()
    limiter.release()
    await third
    assert limiter.active == 2


async def test_a_window_refused_as_a_whole_halves_once() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=128, first=128))
    started = [await limiter.acquire(f"ns-{number}") for number in range(128)]
    await asyncio.sleep(0.1)
    for number, moment in enumerate(started):
        limiter.throttled(moment, 0)
        limiter.release(f"ns-{number}")
    assert limiter.window == 64


async def test_a_first_burst_finds_a_smaller_window_which_grows() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=128, first=32))
    assert limiter.window == 32
    for _ in range(2000):
        limiter.succeeded()
    assert limiter.window == 128


async def test_another_refusal_of_a_later_write_halves_again_and_never_below_one() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=4))
    for want in (2, 1, 1):
        await asyncio.sleep(1)
        (started,) = await fill(limiter, 1)
        await asyncio.sleep(0.1)
        limiter.throttled(started, 0)
        limiter.release()
        assert limiter.window == want


async def test_retry_after_holds_everything_back() -> None:
    limiter = WriteLimiter()
    (started,) = await fill(limiter, 1)
    limiter.throttled(started, 7)
    limiter.release()
    before = now()
    await asyncio.gather(*(limiter.acquire() for _ in range(3)))
    assert now() - before == pytest.approx(7)


async def test_success_climbs_back_to_the_full_window_and_not_beyond() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=8))
    limiter.throttled(await limiter.acquire(), 0)
    limiter.release()
    assert limiter.window == 4
    for _ in range(200):
        limiter.succeeded()
    assert limiter.window == 8


async def test_a_cap_per_second_spreads_writes() -> None:
    limiter = WriteLimiter(WriteLimits(per_second=10))
    before = now()
    for _ in range(11):
        await limiter.acquire()
        limiter.release()
    assert now() - before == pytest.approx(1.0, abs=0.01)


async def test_a_burst_may_go_before_the_cap_holds_and_again_after_a_while() -> None:
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


async def test_a_cancelled_wait_gives_its_place_on() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=1))
    await limiter.acquire()
    first, second = (asyncio.create_task(limiter.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    limiter.release()
    first.cancel()
    await second
    assert limiter.active == 1


async def test_a_namespace_whose_writes_hang_leaves_places_to_others() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=72, first=72))
    hanging = [asyncio.create_task(limiter.acquire("hostile")) for _ in range(1_000)]
    await asyncio.sleep(1)
    assert limiter.active == 64
    for _ in range(100):
        async with asyncio.timeout(1):
            await limiter.acquire("honest")
        limiter.release("honest")
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


async def test_namespaces_that_wait_for_a_place_take_turns() -> None:
    limiter = WriteLimiter(WriteLimits(in_flight=4, first=4))
    order: list[str] = []

    async def write(bucket: str) -> None:
        await limiter.acquire(bucket)
        order.append(bucket)
        await asyncio.sleep(1)
        limiter.release(bucket)

    names = [*["hostile"] * 1_000, *["honest"] * 4, ""]
    await asyncio.gather(*(write(name) for name in names))
    assert len(order) == len(names)
    assert sorted(set(order[:16])) == ["", "honest", "hostile"]
    assert order[:16].count("honest") == 4
