"""Tests for the health of nodes, from their conditions or from a direct read of the API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import ApiError, Forbidden, NotFound, Unavailable
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import Key
from argosy.kinds.kubernetes import Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus, Taint
from argosy.kinds.labels import HOURLY_PRICE
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.reconcile.nodes import (
    ANSWER_VALID_SECONDS,
    SHOW_AFTER_SECONDS,
    AnnouncedEnds,
    NodeHealth,
    NodePrices,
    NodeStates,
)
from argosy.workload.announcements import OUT_OF_SERVICE, NoticeCause, NoticeRules
from argosy.workload.usage_record import PricedNode
from tests.support.manual_clock import ManualClock
from tests.support.waiting import eventually
from tests.support.workloads import NOW, later

GONE = NotFound(404, "NotFound", 'nodes "n1" not found')
N1 = frozenset({"n1"})


class Api(Client):
    """An API server with these responses to GETs of nodes; without one it does not respond."""

    def __init__(self) -> None:
        super().__init__(Connection(server="https://127.0.0.1:1"))
        self.answers: asyncio.Queue[Node | ApiError] = asyncio.Queue()
        self.requests: list[str] = []

    async def get(self, kind: type, name: str, namespace: str | None = None) -> Node:  # type: ignore[override]
        assert (kind, namespace) == (Node, None)
        self.requests.append(name)
        answer = await self.answers.get()
        if isinstance(answer, ApiError):
            raise answer
        return answer


class Stage:
    def __init__(self) -> None:
        self.api, self.clock = Api(), ManualClock()
        self.cache = Cache(self.api, Node)
        self.pods_on = {"n1"}
        backoff = Backoff(initial=0.0, maximum=0.0)
        self.health = NodeHealth(
            self.api, self.clock, self.cache, lambda name: name in self.pods_on, backoff=backoff
        )
        self.answered_nodes: list[str] = []
        self.health.on_answer(self.answered_nodes.append)

    def silence(self) -> None:
        """Break the node watch."""
        self.cache.watcher.last_error = Unavailable(0, "Silent", "nothing came")

    def states(self) -> NodeStates:
        return self.health.states(["n1"])

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.health.run())
        self.health.confirm(self.states().unconfirmed)
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def answered(self, answer: Node | ApiError) -> None:
        count = len(self.answered_nodes)
        self.api.answers.put_nowait(answer)
        await eventually(lambda: len(self.answered_nodes) > count)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def node(ready: str = "True", version: int = 1, *, other: str = "False", taint: str = "") -> Node:
    return Node(
        ObjectMeta(name="n1", resource_version=str(version)),
        NodeSpec(taints=[Taint(taint, "NoExecute")] if taint else []),
        NodeStatus(conditions=[Condition("Ready", ready), Condition("GpuHealth", other)]),
    )


class Case(Struct, frozen=True):
    cached: Node | None
    want: NodeStates
    silent: bool = False


UNCONFIRMED = NodeStates(unconfirmed={"n1": ""})
DOWN = NodeStates(down=N1, partly_unknown=N1)
CASES = {
    "Ready is True: all is well": Case(node(), NodeStates()),
    "Ready is False: the node answers, so it is not down": Case(node("False"), NodeStates()),
    "Ready is Unknown: down": Case(node("Unknown"), DOWN),
    "another condition is Unknown: partly unknown, not down": Case(
        node(other="Unknown"), NodeStates(partly_unknown=N1)
    ),
    "Ready is Unknown and the taint out-of-service is there: down and released": Case(
        node("Unknown", taint=OUT_OF_SERVICE), NodeStates(down=N1, partly_unknown=N1, released=N1)
    ),
    "Ready is True in spite of the taint out-of-service: not released": Case(
        node(taint=OUT_OF_SERVICE), NodeStates()
    ),
    "Ready is Unknown with another taint: not released": Case(
        node("Unknown", taint="node.kubernetes.io/unreachable"), DOWN
    ),
    "not in the cache: unconfirmed": Case(None, UNCONFIRMED),
    "Ready is True in a cache whose watch is silent: nothing is wrong": Case(
        node(), NodeStates(), silent=True
    ),
    "Ready is Unknown in a cache whose watch is silent: unconfirmed": Case(
        node("Unknown"), UNCONFIRMED, silent=True
    ),
    "another condition is Unknown in a cache whose watch is silent: unconfirmed": Case(
        node(other="Unknown"), UNCONFIRMED, silent=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_states_from_the_cache(case: Case) -> None:
    stage = Stage()
    if case.cached is not None:
        stage.cache.put(case.cached)
    if case.silent:
        stage.silence()
    assert stage.states() == case.want


async def test_a_node_missing_from_the_cache_only_is_not_down(stage: Stage) -> None:
    async with stage.asking():
        await stage.answered(node())
        assert stage.states() == NodeStates()
        assert stage.cache.get("", "n1") is not None
        assert (stage.answered_nodes, stage.health.unconfirmed) == (["n1"], 0)


async def test_a_node_that_the_api_server_does_not_have_is_down(stage: Stage) -> None:
    async with stage.asking():
        await stage.answered(GONE)
        await eventually(lambda: not stage.health.unconfirmed)
        assert stage.states() == NodeStates(down=N1, released=N1)
        stage.clock.advance(10 * ANSWER_VALID_SECONDS)
        assert stage.states().released == N1, "until the watch brings the node"
        stage.cache.put(node())
        assert stage.states() == NodeStates()


async def test_a_deleted_node_is_requested_before_it_counts_as_down(stage: Stage) -> None:
    stage.cache.put(node())
    stage.cache._store(Key("", "n1"), None)
    assert stage.states() == UNCONFIRMED
    async with stage.asking():
        await stage.answered(node(version=9))
        assert stage.states() == NodeStates()


async def test_a_failed_request_is_repeated_and_its_error_shown(stage: Stage) -> None:
    forbidden = Forbidden(403, "Forbidden", "nodes is forbidden")
    shown_at = stage.health.confirm(stage.states().unconfirmed)
    assert shown_at == stage.clock.monotonic() + SHOW_AFTER_SECONDS
    async with stage.asking():
        for _ in range(3):
            stage.api.answers.put_nowait(forbidden)
        await eventually(lambda: len(stage.api.requests) == 4)
        assert stage.states() == UNCONFIRMED, "not shown at once"
        stage.clock.advance(SHOW_AFTER_SECONDS)
        assert stage.states() == NodeStates(unconfirmed={"n1": "nodes is forbidden"})
        assert stage.health.confirm(["n1"]) is None
        assert stage.health.unconfirmed == 1
        await stage.answered(node())
        assert stage.states() == NodeStates()


async def test_all_jobs_share_one_request_for_a_node(stage: Stage) -> None:
    async with stage.asking():
        for _ in range(5):
            stage.health.confirm(["n1"])
        await eventually(lambda: bool(stage.api.requests))
        await stage.answered(node())
        assert stage.api.requests == ["n1"]


async def test_a_node_without_an_answer_does_not_delay_others(stage: Stage) -> None:
    stage.pods_on = {"n1", "n2"}
    async with stage.asking():
        await eventually(lambda: stage.api.requests == ["n1"])
        stage.health.confirm(["n2"])
        await eventually(lambda: stage.api.requests == ["n1", "n2"])


async def test_an_answer_is_valid_for_a_while_when_the_watch_is_silent(stage: Stage) -> None:
    stage.cache.put(node("Unknown"))
    stage.silence()
    async with stage.asking():
        await stage.answered(node("Unknown", version=2))
        assert stage.states() == DOWN
        stage.clock.advance(ANSWER_VALID_SECONDS)
        assert stage.states().down == frozenset()


async def test_a_node_that_recovered_while_the_watch_is_silent_is_not_down(stage: Stage) -> None:
    stage.cache.put(node("Unknown"))
    stage.silence()
    async with stage.asking():
        await stage.answered(node("True", version=2))
        assert stage.states() == NodeStates()


async def test_nothing_is_remembered_of_a_deleted_node_without_pods(stage: Stage) -> None:
    async with stage.asking():
        await stage.answered(GONE)
        stage.pods_on.clear()
        stage.health.forget_unused("n1")
        assert stage.states() == UNCONFIRMED


def test_announced_end_of_a_node_is_known_and_reported_when_it_changes() -> None:
    cache = Cache(Api(), Node)
    announced, changes = AnnouncedEnds(cache, NoticeRules()), list[str]()
    announced.on_change(changes.append)
    cache.put(versioned(node(), 1))
    assert (announced.of(["n1"]), changes) == ({}, [])
    cache.put(versioned(node(taint="ToBeDeletedByClusterAutoscaler"), 2))
    assert [end.cause for end in announced.of(["n1", "n2"]).values()] == [NoticeCause.DRAINED]
    cache.put(versioned(node("Unknown", taint="ToBeDeletedByClusterAutoscaler"), 3))
    assert changes == ["n1"], "its health is not part of the announcement"
    cache._store(Key("", "n1"), None)
    assert (announced.of(["n1"]), changes) == ({}, ["n1", "n1"])


def versioned(obj: Node, version: int) -> Node:
    return replace(obj, metadata=replace(obj.metadata, resource_version=str(version)))


def placed_pod(node: str, scheduled: Condition | None = None) -> Pod:
    conditions = [scheduled] if scheduled else []
    meta = ObjectMeta(name="a", creation_timestamp=NOW)
    return Pod(metadata=meta, spec=PodSpec(node_name=node), status=PodStatus(conditions=conditions))


def test_a_priced_node_counts_from_the_first_pod_that_was_scheduled_on_it() -> None:
    cache = Cache(Api(), Node)
    prices = NodePrices(cache)
    for name, price in {"n1": "1.5", "n2": "2.5", "n3": "free"}.items():
        meta = ObjectMeta(name=name, annotations={HOURLY_PRICE: price})
        cache.put(versioned(Node(metadata=meta), 1))
    at = [Condition("PodScheduled", "True", last_transition_time=later(seconds)) for seconds in (60, 90)]
    pods = [
        placed_pod("n1", at[1]),
        placed_pod("n1", at[0]),
        placed_pod("n2"),
        placed_pod("n3"),
        placed_pod(""),
    ]
    assert prices.of(pods) == (PricedNode(1.5, later(60)), PricedNode(2.5, NOW))
