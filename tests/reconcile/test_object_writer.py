"""Tests for writing the status of reconciled objects: when it is written, and the effect of a rejection."""

from typing import ClassVar, cast

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import ApiError, Conflict, Invalid, NotFound
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.resource import Resource
from argosy.reconcile.compatibility import RETRY_DELAYS_SECONDS, Compatibility
from argosy.reconcile.object_state import ObjectState
from argosy.reconcile.object_writer import (
    CONFLICT_SECONDS,
    DEFER_SECONDS,
    MAX_STATUS_NOT_FOUND,
    GivenUpError,
    ObjectWriter,
)
from argosy.reconcile.status_changes import COUNTS_SECONDS
from tests.support.captured_logs import captured_lines
from tests.support.manual_clock import ManualClock


class Status(Struct, frozen=True):
    phase: str = ""
    ready: int = 0
    argosy: Json = field(default_factory=dict)


class Thing(Struct):
    resource: ClassVar[Resource] = Resource("example.com", "v1", "Thing", "things")

    metadata: ObjectMeta
    status: Status = field(default_factory=Status)


class Api:
    """Accepts every status, or raises an error; `prunes` drops the Record."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.prunes = False
        self.written: list[Status] = []
        self.events: list[str] = []

    async def replace(self, kind: type[Thing], body: Json, namespace: str, *, subresource: str) -> Thing:
        del namespace
        assert subresource == "status"
        if self.error is not None:
            raise self.error
        status = cast("Status", body["status"])
        self.written.append(status)
        return kind(
            ObjectMeta(name="a", namespace="home"), replace(status, argosy={}) if self.prunes else status
        )

    def event(self, obj: object, type: str, reason: str, message: str) -> None:
        del obj, type, message
        self.events.append(reason)


class Harness:
    def __init__(self) -> None:
        self.api, self.clock, self.state = Api(), ManualClock(), ObjectState(uid="u")
        self.obj = Thing(ObjectMeta(name="a", namespace="home"))
        objects = Cache(Client(Connection(server="https://127.0.0.1:1")), Thing)
        crd = Compatibility(Thing.resource, self.clock, cast("Recorder", self.api))
        self.writer = ObjectWriter(cast("Client", self.api), self.clock, objects, crd)

    async def write(self, status: Status, *, may_wait: bool = False) -> None:
        self.obj = await self.writer.write_status(
            self.obj, status, self.state, has_record=True, may_wait=may_wait
        )

    async def given_up(self, status: Status) -> float | None:
        """Return the seconds until the next attempt after a write that was given up."""
        with captured_lines(), pytest.raises(GivenUpError) as caught:
            await self.write(status)
        return caught.value.requeue.after


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_an_unchanged_status_is_not_written(harness: Harness) -> None:
    await harness.write(Status())
    assert not harness.api.written


async def test_phases_are_written_at_once_and_counts_after_a_while(harness: Harness) -> None:
    await harness.write(Status("Pending"))
    await harness.write(Status("Ready"))
    await harness.write(Status("Ready", ready=1))
    assert [status.phase for status in harness.api.written] == ["Pending", "Ready"]
    assert harness.state.flush_at == harness.clock.monotonic() + COUNTS_SECONDS
    harness.clock.advance(COUNTS_SECONDS)
    await harness.write(Status("Ready", ready=2))
    assert harness.api.written[-1].ready == 2
    assert harness.state.flush_at is None


async def test_a_status_that_may_wait_is_written_with_the_next_one(harness: Harness) -> None:
    await harness.write(Status("Pending"))
    await harness.write(Status("Binding"), may_wait=True)
    await harness.write(Status("Ready"))
    assert [status.phase for status in harness.api.written] == ["Pending", "Ready"]
    assert harness.state.flush_at is None


async def test_a_status_that_may_wait_is_written_in_the_end(harness: Harness) -> None:
    await harness.write(Status("Pending"), may_wait=True)
    due = harness.state.flush_at
    harness.clock.advance(DEFER_SECONDS / 2)
    await harness.write(Status("Pending"), may_wait=True)
    assert (harness.state.flush_at, harness.api.written) == (due, []), "it is not put off again"
    harness.clock.advance(DEFER_SECONDS / 2)
    await harness.write(Status("Pending"), may_wait=True)
    assert [status.phase for status in harness.api.written] == ["Pending"]


async def test_a_conflict_gives_the_reconcile_up(harness: Harness) -> None:
    harness.api.error = Conflict(409, "Conflict", "")
    assert await harness.given_up(Status("Ready")) == CONFLICT_SECONDS
    assert not harness.api.events


async def test_a_kind_without_status_is_reported_when_that_is_certain(harness: Harness) -> None:
    harness.api.error = NotFound(404, "NotFound", "")
    for _ in range(MAX_STATUS_NOT_FOUND - 1):
        assert await harness.given_up(Status("Ready")) == CONFLICT_SECONDS
    assert not harness.api.events
    await harness.given_up(Status("Ready"))
    assert harness.api.events == ["StatusUpdateFailed"]
    assert harness.state.block.until > harness.clock.monotonic()


async def test_a_status_that_the_definition_refuses_blocks_the_object(harness: Harness) -> None:
    harness.api.error = Invalid(422, "Invalid", "status.phase: must be a number")
    await harness.given_up(Status("Ready"))
    assert harness.api.events == ["StatusUpdateFailed"]


async def test_a_record_that_is_dropped_blocks_the_object_longer_each_time(harness: Harness) -> None:
    harness.api.prunes = True
    waits = [await harness.given_up(Status("Ready", argosy={"version": 1})) for _ in range(3)]
    assert waits == list(RETRY_DELAYS_SECONDS[:3])
    assert harness.api.events == ["IncompatibleCRD"] * 3
    harness.api.prunes = False
    await harness.write(Status("Ready", argosy={"version": 1}))
    assert harness.state.block.count == 0
