"""Tests for the number of pods that are created at once, which depends on earlier responses."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, Forbidden, Invalid, Unavailable
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.trainingrun import TrainingRun
from argosy.plan.actions import ActionStatus
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.job_state import JobState
from argosy.reconcile.slow_start import MAX_PROBE_SECONDS, MAX_SECONDS, MAX_WINDOW
from argosy.workload.plan import CreatePod
from tests.support.builders import role, workload
from tests.support.manual_clock import ManualClock

JOB = workload(role("worker", 2_000), role("ps", 10))
QUOTA = Forbidden(403, "Forbidden", "exceeded quota: pods")
Answer = Callable[[str], Exception | None]


class Api:
    """An API server that stores pods by name, and accepts or rejects them."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.pods: set[str] = set()
        self.posts: list[str] = []
        self.rounds: list[int] = []
        """How many requests were in flight, in each round trip."""
        self._round: list[asyncio.Future[None]] = []

    async def create(
        self, kind: type[ApiObject], body: dict[str, dict[str, str]], namespace: str, **options: bool
    ) -> Pod:
        name = body["metadata"]["name"]
        self.posts.append(name)
        await self._round_trip()
        if error := self.answer(name):
            raise error
        self.pods.add(name)
        return Pod(ObjectMeta(name=name))

    async def get(self, kind: type[ApiObject], name: str, namespace: str) -> Pod:
        stranger = OwnerReference(uid="of another job", controller=True)
        return Pod(ObjectMeta(name=name, owner_references=[stranger]))

    async def _round_trip(self) -> None:
        """Answer all requests in flight together, once no other task can run."""
        loop = asyncio.get_running_loop()
        self._round.append(loop.create_future())
        if len(self._round) == 1:
            loop.call_later(0.001, self._answer_all)
        await self._round[-1]

    def _answer_all(self) -> None:
        answered, self._round = self._round, []
        self.rounds.append(len(answered))
        for future in answered:
            future.set_result(None)


class Scene:
    def __init__(self, answer: Answer) -> None:
        self.api = Api(answer)
        self.clock = ManualClock()
        self.memory = JobState(uid=JOB.uid)

    async def reconcile(self, *wanted: CreatePod) -> list[str]:
        """Create the wanted pods that do not exist; return the names that were tried."""
        before = len(self.api.posts)
        missing = [
            action for action in wanted if JOB.hostname(action.role, action.index) not in self.api.pods
        ]
        executor = ActionExecutor(
            cast("Client", self.api),
            self.clock,
            _IgnoringCache(),
            JOB,
            TrainingRun,
            self.memory,
            lambda action, name: {"metadata": {"name": name}},
            lambda role, index, attempt, replacement: JOB.hostname(role, index),
            ByteBudget(),
        )
        await executor.execute(missing)
        return self.api.posts[before:]


class _IgnoringCache:
    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None: ...


def pods(role: str, count: int) -> list[CreatePod]:
    return [CreatePod(role, index, 1, 0) for index in range(count)]


def refusing(*roles: str) -> Answer:
    return lambda name: QUOTA if any(f"-{role}-" in name for role in roles) else None


def never(_: str) -> Exception | None:
    return None


async def test_creations_double_with_every_round_trip() -> None:
    scene = Scene(never)
    tried = await scene.reconcile(*pods("worker", 100))
    assert len(tried) == len(scene.api.pods) == 100
    assert scene.api.rounds[:6] == [1, 2, 4, 8, 16, 32]


async def test_a_window_that_has_opened_is_remembered_by_the_next_reconcile() -> None:
    scene = Scene(never)
    await scene.reconcile(*pods("worker", 63))
    del scene.api.rounds[:]
    await scene.reconcile(*pods("worker", 100))
    assert scene.api.rounds == [37]


async def test_no_more_than_the_largest_window_is_in_flight() -> None:
    scene = Scene(never)
    await scene.reconcile(*pods("worker", 1_000))
    assert max(scene.api.rounds) == MAX_WINDOW


REFUSALS = {
    "quota or admission webhook": QUOTA,
    "invalid pod": Invalid(422, "Invalid", "spec: bad"),
    "webhook without an answer": Unavailable(500, "InternalError", "failed calling webhook"),
}


@pytest.mark.parametrize("answer", REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_rejected_job_sends_one_request_per_probe(answer: Exception) -> None:
    scene = Scene(lambda _: answer)
    wanted = pods("worker", 2_000)
    assert [len(await scene.reconcile(*wanted)) for _ in range(3)] == [1, 0, 0]
    for _ in range(5):
        scene.clock.advance(MAX_PROBE_SECONDS)
        assert len(await scene.reconcile(*wanted)) == 1


async def test_probes_are_sent_less_and_less_often() -> None:
    scene = Scene(refusing("worker"))
    for seconds in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0):
        assert len(await scene.reconcile(*pods("worker", 50))) == 1
        scene.clock.advance(seconds - 0.1)
        assert await scene.reconcile(*pods("worker", 50)) == []
        scene.clock.advance(0.1)


async def test_a_quota_that_is_used_up_halfway_stops_all_but_what_is_in_flight() -> None:
    scene = Scene(never)
    scene.api.answer = lambda _: QUOTA if len(scene.api.pods) >= 40 else None
    tried = await scene.reconcile(*pods("worker", 2_000))
    assert len(scene.api.pods) == 40
    assert len(tried) < 40 + 41, "no more than were accepted before"
    scene.clock.advance(1.0)
    assert len(await scene.reconcile(*pods("worker", 2_000))) == 1


async def test_a_probe_that_is_created_opens_the_window_again() -> None:
    scene = Scene(refusing("worker"))
    await scene.reconcile(*pods("worker", 100))
    scene.api.answer = never
    del scene.api.rounds[:]
    scene.clock.advance(1.0)
    assert len(await scene.reconcile(*pods("worker", 100))) == 100
    assert scene.api.rounds[:4] == [1, 2, 4, 8]
    assert scene.memory.retries.failures == {}


async def test_the_probe_is_of_another_role_than_the_rejected_one() -> None:
    scene = Scene(refusing("worker"))
    wanted = [*pods("worker", 5), *pods("ps", 5)]
    assert await scene.reconcile(*wanted) == ["mnist-worker-0"]
    scene.clock.advance(1.0)
    assert (await scene.reconcile(*wanted))[0] == "mnist-ps-0"
    assert scene.api.pods == {f"mnist-ps-{index}" for index in range(5)}


async def test_a_server_that_fails_now_and_then_does_not_stop_the_job() -> None:
    broken = Unavailable(503, "ServiceUnavailable", "try again")
    scene = Scene(lambda name: broken if name.endswith("5") else None)
    wanted = pods("worker", 100)
    await scene.reconcile(*wanted)
    assert len(scene.api.pods) == 90


async def test_a_pod_whose_creation_fails_is_tried_after_the_others() -> None:
    broken = Unavailable(503, "ServiceUnavailable", "try again")
    scene = Scene(lambda name: broken if name == "mnist-worker-0" else None)
    assert await scene.reconcile(*pods("worker", 20)) == ["mnist-worker-0"]
    scene.clock.advance(1.0)
    assert len(await scene.reconcile(*pods("worker", 20))) == 20
    assert len(scene.api.pods) == 19


async def test_a_name_that_is_taken_does_not_hold_up_other_pods() -> None:
    taken = AlreadyExists(409, "AlreadyExists", "it is there")
    scene = Scene(lambda name: taken if name == "mnist-worker-0" else None)
    await scene.reconcile(*pods("worker", 20))
    assert len(scene.api.pods) == 19
    assert [failure.status for failure in scene.memory.retries.failures.values()] == [
        ActionStatus.NAME_CONFLICT
    ]


async def test_a_reconcile_leaves_the_rest_of_its_pods_to_the_next_one_after_a_minute() -> None:
    scene = Scene(never)

    def slow(_: str) -> Exception | None:
        scene.clock.advance(1.0)
        return None

    scene.api.answer = slow
    tried = await scene.reconcile(*pods("worker", 2_000))
    assert MAX_SECONDS <= len(tried) < MAX_SECONDS + MAX_WINDOW
    assert scene.memory.retries.slow_start.unfinished
    scene.api.answer = never
    assert len(await scene.reconcile(*pods("worker", 2_000))) == 2_000 - len(tried)
    assert not scene.memory.retries.slow_start.unfinished
