"""Tests for the limit on bytes of rendered bodies, and its fair division between namespaces."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import cast

from msgspec.structs import replace

from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.trainingrun import TrainingRun
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.job_state import JobState, RetryState
from argosy.reconcile.slow_start import MAX_WINDOW, SlowStart
from argosy.workload.plan import CreatePod
from tests.support.builders import role, workload
from tests.support.waiting import eventually

KIB = 1024


class Api:
    """Counts bodies that were rendered and not yet answered; answers in turn, once the test allows it."""

    def __init__(self) -> None:
        self.unsent: Counter[str] = Counter()
        self.highest = 0
        self.answered: list[str] = []
        self.going = asyncio.Event()

    def render(self, namespace: str, size: int) -> Callable[[CreatePod, str], dict[str, object]]:
        def body(action: CreatePod, name: str) -> dict[str, object]:
            self.unsent[namespace] += size
            self.highest = max(self.highest, self.unsent.total())
            return {"metadata": {"name": name}, "size": size}

        return body

    async def create(
        self, kind: type[ApiObject], body: dict[str, object], namespace: str, **options: bool
    ) -> Pod:
        await self.going.wait()
        await asyncio.sleep(0)
        self.unsent[namespace] -= cast("int", body["size"])
        self.answered.append(namespace)
        return Pod(ObjectMeta(name="a"))


class IgnoringCache:
    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None: ...


def creating(api: Api, budget: ByteBudget, namespace: str, pods: int, size: int) -> asyncio.Task[object]:
    """Start to create the pods of a job in another namespace, without slow start."""
    job = replace(workload(replace(role("worker", pods), pod_bytes=size)), namespace=namespace)
    executor = ActionExecutor(
        cast("Client", api),
        SystemClock(),
        IgnoringCache(),
        job,
        TrainingRun,
        JobState(uid=job.uid, retries=RetryState(slow_start=SlowStart(window=MAX_WINDOW))),
        api.render(namespace, size),
        lambda role, index, attempt, replacement: job.hostname(role, index),
        budget,
    )
    wanted = [CreatePod("worker", index, 1, 0) for index in range(pods)]
    return asyncio.create_task(executor.execute(wanted))


async def test_bytes_are_bounded_over_all_jobs() -> None:
    api, budget = Api(), ByteBudget(1024 * KIB)
    jobs = [creating(api, budget, f"ns-{number}", 100, 64 * KIB) for number in range(8)]
    await eventually(lambda: api.unsent.total() == 1024 * KIB)
    api.going.set()
    await asyncio.gather(*jobs)
    assert (len(api.answered), api.highest, budget.used) == (800, 1024 * KIB, 0)


async def test_one_namespace_cannot_use_the_whole_budget() -> None:
    api, budget = Api(), ByteBudget(1024 * KIB)
    hostile = creating(api, budget, "hostile", 200, 64 * KIB)
    await eventually(lambda: api.unsent["hostile"] == 768 * KIB)
    honest = creating(api, budget, "honest", 8, 4 * KIB)
    await eventually(lambda: api.unsent["honest"] == 32 * KIB)
    assert api.unsent["hostile"] == 768 * KIB
    api.going.set()
    await asyncio.gather(hostile, honest)


async def test_waiting_namespaces_take_turns() -> None:
    budget = ByteBudget(100)
    order: list[str] = []

    async def hold(namespace: str) -> None:
        async with budget.hold(namespace, 60):
            order.append(namespace)
            await asyncio.sleep(0)

    waiting = [asyncio.create_task(hold("hostile")) for _ in range(20)]
    await asyncio.sleep(0)
    await asyncio.gather(*waiting, *(hold("honest") for _ in range(3)))
    assert order.count("hostile") == 20
    assert order[:10].count("honest") == 3


async def test_a_body_larger_than_the_budget_is_sent_alone() -> None:
    api, budget = Api(), ByteBudget(64 * KIB)
    job = creating(api, budget, "large", 3, 100 * KIB)
    await eventually(lambda: api.unsent["large"] == 100 * KIB)
    api.going.set()
    await job
    assert (len(api.answered), api.highest) == (3, 100 * KIB)


async def test_a_cancelled_waiter_does_not_block_others() -> None:
    budget = ByteBudget(100)

    async def hold() -> None:
        async with budget.hold("a", 100):
            await asyncio.sleep(0.01)

    first, second, third = (asyncio.create_task(hold()) for _ in range(3))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(first, third)
    assert budget.used == 0
