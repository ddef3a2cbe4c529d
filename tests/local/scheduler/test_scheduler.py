"""Tests for the running scheduler, with a client whose responses the test delays."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, TypeVar

import msgspec
import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject
from argosy.kinds.meta import Condition
from argosy.local.controllers.api_types import Node, Pod, PodGroup, PodGroupStatus
from argosy.local.controllers.informers import ControllerContext
from argosy.local.scheduler.scheduler import Scheduler
from tests.support.scheduler_objects import Json, node, pod, pod_group
from tests.support.waiting import until

T = TypeVar("T", Node, Pod)


class Deaf:
    def event(
        self, obj: ApiObject, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None: ...


class StatusPatch(msgspec.Struct):
    conditions: list[Condition]


class Desk:
    """Takes status patches, and answers those of a pod only when its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.held: set[str] = set()
        self.words: list[tuple[str, str]] = []
        """Pod and message, in order of arrival."""
        self.last: dict[str, str] = {}
        """What each pod's status says: the message that was written last."""
        self.open = 0
        self.most_open = 0
        self._version = 100

    async def patch(self, _kind: type[Pod], name: str, patch: Json, namespace: str, **_: object) -> Pod:
        status = msgspec.convert(patch["status"], StatusPatch)
        message = status.conditions[0].message
        self.words.append((name, message))
        if name in self.held:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            await self.gate.wait()
            self.open -= 1
        self.last[name] = message
        self._version += 1
        written = pod(name, namespace=namespace, cpu=9)
        written.status.conditions = status.conditions
        return versioned(written, self._version)


def versioned(obj: T, version: int) -> T:
    obj.metadata.resource_version = str(version)
    return obj


def has_message(desk: Desk, name: str, start: str) -> Callable[[], Awaitable[bool]]:
    async def is_logged() -> bool:
        return any(pod == name and message.startswith(start) for pod, message in desk.words)

    return is_logged


class Groups:
    """Takes the statuses of groups, and remembers the phase of each."""

    def __init__(self) -> None:
        self.phases: dict[str, str] = {}
        self._version = 100

    async def patch(
        self, _kind: type[PodGroup], name: str, patch: Json, _namespace: str, **_: object
    ) -> PodGroup:
        status = msgspec.convert(patch["status"], PodGroupStatus)
        self.phases[name] = status.phase
        self._version += 1
        written = held_group(name)
        written.status = status
        written.metadata.resource_version = str(self._version)
        return written

    def is_in(self, name: str, phase: str) -> Callable[[], Awaitable[bool]]:
        async def is_reached() -> bool:
            return self.phases.get(name) == phase

        return is_reached


def held_group(name: str) -> PodGroup:
    """A group that needs eight processors, of which its pods do not exist yet."""
    group = pod_group(name, 2)
    group.spec.min_resources = {"cpu": "8"}
    group.metadata.resource_version = "1"
    return group


def _add_node(shared: ControllerContext) -> None:
    shared.nodes.put(versioned(node("n2", cpu=8), 50))


def _grow_node(shared: ControllerContext) -> None:
    shared.nodes.put(versioned(node("n1", cpu=16), 50))


def _uncordon_node(shared: ControllerContext) -> None:
    shared.nodes.put(versioned(node("n3", cpu=8), 50))


def _finish_pod(shared: ControllerContext) -> None:
    shared.pods.put(versioned(pod("busy", node="n1", phase="Succeeded", cpu=8), 50))


CAPACITY = {
    "node added: admitted": _add_node,
    "node becomes larger: admitted": _grow_node,
    "node uncordoned: admitted": _uncordon_node,
    "pod finishes: admitted": _finish_pod,
}


@pytest.mark.parametrize("comes", CAPACITY.values(), ids=CAPACITY)
async def test_a_group_waiting_for_min_resources_is_admitted(
    client: Client, monkeypatch: pytest.MonkeyPatch, comes: Callable[[ControllerContext], None]
) -> None:
    groups = Groups()
    monkeypatch.setattr(client, "patch", groups.patch)
    shared = ControllerContext(client, Deaf())
    work = asyncio.create_task(Scheduler(shared).run())
    try:
        shared.nodes.put(versioned(node("n1", cpu=8), 1))
        shared.nodes.put(versioned(node("n3", unschedulable=True, cpu=8), 2))
        shared.pods.put(versioned(pod("busy", node="n1", phase="Running", cpu=8), 3))
        shared.pod_groups.put(held_group("held"))
        await until(groups.is_in("held", "Pending"), "there is no room for the group")
        comes(shared)
        await until(groups.is_in("held", "Inqueue"), "the group is admitted")
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with Client(Connection(server="http://127.0.0.1:9")) as client:
        yield client


async def test_the_last_reason_of_a_pending_pod_is_written_last(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Concurrent writes could arrive in either order, so a later message waits for the write before it."""
    desk = Desk()
    desk.held.add("large")
    monkeypatch.setattr(client, "patch", desk.patch)
    shared = ControllerContext(client, Deaf())
    scheduler = Scheduler(shared)
    work = asyncio.create_task(scheduler.run())
    try:
        shared.nodes.put(versioned(node("n1"), 1))
        shared.pods.put(versioned(pod("large", cpu=9), 1))
        await until(has_message(desk, "large", "0/1"), "the first reason is being written")
        shared.nodes.put(versioned(node("n2"), 2))
        shared.pods.put(versioned(pod("other", cpu=9), 2))
        await until(has_message(desk, "other", "0/2"), "a later pass has looked at both pods")
        assert [message for name, message in desk.words if name == "large"] == [
            "0/1 nodes are available: 1 Insufficient cpu."
        ]
        desk.gate.set()
        await until(has_message(desk, "large", "0/2"), "the latest reason is written")
        assert desk.most_open == 1
        assert desk.last["large"] == "0/2 nodes are available: 2 Insufficient cpu."
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
