import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from argosy.engine.backoff import Backoff
from argosy.engine.clock import Clock
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import Throttled
from argosy.engine.logs import Logger, add_log_context
from argosy.engine.metrics import Metrics
from argosy.engine.queue import Queue
from tests.support.captured_logs import captured_lines

pytestmark = pytest.mark.looptime

Reconcile = Callable[[str], Awaitable[Requeue | None]]


def controller(
    reconcile: Reconcile, metrics: Metrics | None = None, concurrency: int = 32
) -> Controller[str]:
    queue: Queue[str] = Queue(Backoff(initial=1.0, maximum=8.0, jitter=lambda: 1.0))
    return Controller("test", reconcile, queue=queue, metrics=metrics, concurrency=concurrency)


async def run_for(subject: Controller[str], seconds: float) -> None:
    task = asyncio.create_task(subject.run())
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_failing_key_is_retried_with_backoff_and_other_keys_run() -> None:
    runs: Counter[str] = Counter()

    async def reconcile(key: str) -> None:
        runs[key] += 1
        if key == "bad":
            raise RuntimeError("made up")

    metrics = Metrics(CollectorRegistry())
    subject = controller(reconcile, metrics, concurrency=1)
    for key in ("bad", "a", "b"):
        subject.enqueue(key)
    with captured_lines() as logs:
        await run_for(subject, 6)
    assert runs == {"bad": 3, "a": 1, "b": 1}, "at 0, 1 and 3 seconds"
    assert [(entry["controller"], entry["object"]) for entry in logs] == [("test", "bad")] * 3
    sample = metrics.registry.get_sample_value
    assert sample("argosy_reconcile_total", {"controller": "test", "result": "error"}) == 3
    assert sample("argosy_reconcile_total", {"controller": "test", "result": "success"}) == 2


async def test_requeue_runs_the_key_again_after_its_delay() -> None:
    times: list[float] = []

    async def reconcile(_key: str) -> Requeue | None:
        times.append(asyncio.get_running_loop().time())
        return Requeue(after=10) if len(times) < 3 else None

    subject = controller(reconcile)
    subject.enqueue("a")
    start = asyncio.get_running_loop().time()
    await run_for(subject, 60)
    assert [round(time - start) for time in times] == [0, 10, 20]


async def test_throttled_key_is_retried_after_retry_after() -> None:
    times: list[float] = []

    async def reconcile(_key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise Throttled(429, "TooManyRequests", "slow down", retry_after=7)

    subject = controller(reconcile)
    subject.enqueue("a")
    with captured_lines():
        await run_for(subject, 30)
    assert round(times[1] - times[0]) == 7


async def test_keys_run_concurrently_up_to_the_limit_and_never_twice_at_once() -> None:
    running: Counter[str] = Counter()
    max_running = 0

    async def reconcile(key: str) -> None:
        nonlocal max_running
        running[key] += 1
        assert running[key] == 1
        max_running = max(max_running, running.total())
        await asyncio.sleep(1)
        running[key] -= 1

    subject = controller(reconcile, concurrency=4)
    for number in range(10):
        subject.enqueue(str(number))
        subject.enqueue(str(number))
    await run_for(subject, 20)
    assert max_running == 4


async def test_requeue_after_zero_lets_other_keys_run_first() -> None:
    order: list[str] = []

    async def reconcile(key: str) -> Requeue | None:
        order.append(key)
        return Requeue(after=0) if order.count(key) < 2 else None

    subject = controller(reconcile, concurrency=1)
    subject.enqueue("a")
    subject.enqueue("b")
    await run_for(subject, 1)
    # The cooldown depends on how long each reconcile took, so either key may be next.
    assert order[:2] == ["a", "b"]
    assert sorted(order[2:]) == ["a", "b"]


async def test_log_lines_of_a_reconcile_have_controller_and_object() -> None:
    log = Logger("argosy.test")

    async def reconcile(key: str) -> None:
        add_log_context(attempt=len(key))
        await asyncio.gather(asyncio.sleep(0.1), log_line(key))

    async def log_line(key: str) -> None:
        log.info("in a task of its own", key=key)

    subject = controller(reconcile, concurrency=1)
    with captured_lines() as lines:
        for key in ("a", "bb"):
            subject.enqueue(key)
        await run_for(subject, 1)
        log.info("afterwards")
    common = {"event": "in a task of its own", "log_level": "info", "controller": "test"}
    assert lines == [
        {**common, "object": "a", "key": "a", "attempt": 1},
        {**common, "object": "bb", "key": "bb", "attempt": 2},
        {"event": "afterwards", "log_level": "info"},
    ]


async def test_metrics_show_depth_age_and_wait_duration_of_the_queue() -> None:
    async def reconcile(_key: str) -> None: ...

    metrics = Metrics(CollectorRegistry())
    sample = metrics.registry.get_sample_value
    subject, labels = controller(reconcile, metrics), {"controller": "test"}
    assert sample("argosy_workqueue_oldest_item_seconds", labels) == 0
    subject.enqueue("a")
    await asyncio.sleep(3)
    subject.enqueue("b")
    assert sample("argosy_workqueue_depth", labels) == 2
    assert sample("argosy_workqueue_oldest_item_seconds", labels) == pytest.approx(3)
    await run_for(subject, 1)
    assert sample("argosy_workqueue_depth", labels) == 0
    assert sample("argosy_workqueue_oldest_item_seconds", labels) == 0
    assert sample("argosy_workqueue_wait_duration_seconds_count", labels) == 2
    assert sample("argosy_workqueue_wait_duration_seconds_sum", labels) == pytest.approx(3)


async def test_namespace_with_many_keys_delays_other_namespaces_by_one_turn() -> None:
    order: list[str] = []

    async def reconcile(key: tuple[str, str]) -> None:
        order.append(key[0])
        await asyncio.sleep(1)

    subject: Controller[tuple[str, str]] = Controller("test", reconcile, concurrency=4)
    for number in range(2_000):
        subject.enqueue(("busy", str(number)))
    for number in range(8):
        subject.enqueue(("quiet", str(number)))
    subject.enqueue(("", "cluster-scoped"))
    task = asyncio.create_task(subject.run())
    await asyncio.sleep(5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert order[:20].count("quiet") == 8
    assert order.index("") < 4


async def test_namespace_never_occupies_all_workers() -> None:
    """Reconciles of three namespaces never end; those of another namespace still start at once."""
    started: list[str] = []

    async def reconcile(key: tuple[str, str]) -> None:
        started.append(key[0])
        await asyncio.sleep(0 if key[0] == "quiet" else 1_000)

    subject: Controller[tuple[str, str]] = Controller("test", reconcile, concurrency=32)
    task = asyncio.create_task(subject.run())
    occupied = []
    for tenant in ("busy-1", "busy-2", "busy-3"):
        for number in range(100):
            subject.enqueue((tenant, str(number)))
        await asyncio.sleep(1)
        occupied.append(started.count(tenant))
        subject.enqueue(("quiet", tenant))
        await asyncio.sleep(1)
        assert started[-1] == "quiet"
    assert occupied == [32, 16, 8]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_controller_is_stalled_only_if_no_reconcile_starts_or_ends_while_keys_wait() -> None:
    """A key that waits long is no sign of a stall as long as other keys are reconciled."""
    loop, stuck = asyncio.get_running_loop(), asyncio.Event()

    async def reconcile(key: str) -> None:
        await (stuck.wait() if key == "stuck" else asyncio.sleep(10))

    clock = SimpleNamespace(monotonic=loop.time, now=None)
    subject: Controller[str] = Controller("test", reconcile, concurrency=1, clock=cast("Clock", clock))
    task = asyncio.create_task(subject.run())
    await asyncio.sleep(1_000)
    assert (subject.stalled, subject.longest_running) == (0, 0), "no key is ready"
    for number in range(100):
        subject.enqueue(str(number))
    await asyncio.sleep(905)
    assert subject.queue.age > 900
    assert (subject.stalled, subject.longest_running) == (5, 5)
    await asyncio.sleep(1_000)
    subject.enqueue("stuck")
    subject.enqueue("waiting")
    await asyncio.sleep(400)
    assert (subject.stalled, subject.longest_running) == (400, 400)
    stuck.set()
    await asyncio.sleep(1)
    assert (subject.stalled, subject.longest_running) == (0, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
