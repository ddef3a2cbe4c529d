"""Tests for views: how often they are fetched and for whom, and what a failed fetch leaves."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from msgspec import Struct

from argosy.plan.actions import SecretRef
from argosy.plan.contract import View, ViewState
from argosy.plan.drivers import Refusal
from argosy.reconcile.drivers import Drivers, NoCredentialsError
from argosy.reconcile.views import MAX_FETCHES_PER_NAMESPACE, UNUSED_SECONDS, Views

pytestmark = pytest.mark.looptime

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
VIEW = View("fake", "zone-a", 10.0)
PRIVATE = View("fake", "zone-a", 10.0, SecretRef("key"))


class LoopClock:
    """The time of the event loop, which is virtual."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic())


class Value(Struct, frozen=True):
    number: int


@dataclass
class Service:
    """Takes the place of drivers and reconciles: it answers fetches, and says what is needed."""

    number: int = 1
    error: Exception | None = None
    hangs: bool = False
    fetches: list[tuple[str, str]] = field(default_factory=list)
    needed: bool = True
    changes: list[str] = field(default_factory=list)

    async def fetch(self, namespace: str, view: View) -> Struct:
        self.fetches.append((namespace, view.scope))
        if self.hangs:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return Value(self.number)

    def needs_view(self, view: View, namespace: str) -> bool:
        return self.needed

    def view_changed(self, view: View, namespace: str) -> None:
        self.changes.append(namespace)


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def views(service: Service) -> AsyncIterator[Views]:
    views = Views(cast("Drivers", service), LoopClock())
    views.subscribe(service)
    views.begin_term()
    yield views
    await views.end_term()


async def test_a_view_is_fetched_once_per_interval_for_all(service: Service, views: Views) -> None:
    for namespace in ("a", "b", "a"):
        assert views.state(namespace, VIEW) == ViewState()
    await asyncio.sleep(25)
    assert len(service.fetches) == 3
    assert views.state("a", VIEW).value == Value(1)


async def test_with_credentials_each_namespace_has_its_own_fetches(service: Service, views: Views) -> None:
    for namespace in ("a", "b", "a"):
        views.state(namespace, PRIVATE)
    await asyncio.sleep(5)
    assert service.fetches == [("a", "zone-a"), ("b", "zone-a")]


async def test_only_a_change_is_told(service: Service, views: Views) -> None:
    views.state("a", PRIVATE)
    await asyncio.sleep(25)
    assert service.changes == ["a"]
    service.number = 2
    await asyncio.sleep(10)
    assert service.changes == ["a", "a"]


async def test_the_time_of_a_value_is_when_its_fetch_began(service: Service, views: Views) -> None:
    began = LoopClock().now()
    views.state("a", VIEW)
    await asyncio.sleep(5)
    assert views.state("a", VIEW).at == began


PROBLEMS: dict[str, tuple[Exception, str]] = {
    "no credentials": (NoCredentialsError("secret a/key not found"), "secret a/key not found"),
    "a refusal": (Refusal("PERMISSION_DENIED", "no"), "PERMISSION_DENIED: no"),
    "no connection": (ConnectionRefusedError("refused"), "fake: refused"),
    "no answer": (TimeoutError(), "fake: no answer in time"),
    "an error of the driver": (KeyError("items"), "KeyError('items')"),
}


@pytest.mark.parametrize(("error", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
async def test_a_failed_fetch_keeps_the_last_value_and_ends_with_the_next_success(
    service: Service, views: Views, error: Exception, problem: str
) -> None:
    views.state("a", VIEW)
    await asyncio.sleep(5)
    first = views.state("a", VIEW)
    service.error = error
    await asyncio.sleep(20)
    assert views.state("a", VIEW) == ViewState(first.value, first.at, problem)
    service.error = None
    await asyncio.sleep(10)
    assert views.state("a", VIEW).problem == ""
    assert len(service.changes) == 3


async def test_a_view_that_nobody_names_any_more_is_fetched_for_five_minutes(
    service: Service, views: Views
) -> None:
    views.state("a", VIEW)
    await asyncio.sleep(UNUSED_SECONDS * 3)
    needed = len(service.fetches)
    assert needed == UNUSED_SECONDS * 3 / 10
    service.needed = False
    await asyncio.sleep(UNUSED_SECONDS * 3)
    assert len(service.fetches) == pytest.approx(needed + UNUSED_SECONDS / 10, abs=1)
    assert views.state("a", VIEW) == ViewState()
    await asyncio.sleep(1)
    assert views.state("a", VIEW).value == Value(1)


async def test_services_that_hang_for_one_namespace_do_not_hold_up_another(
    service: Service, views: Views
) -> None:
    service.hangs = True
    for number in range(MAX_FETCHES_PER_NAMESPACE + 5):
        views.state("greedy", View("fake", f"zone-{number}", 10.0, SecretRef("key")))
    await asyncio.sleep(1)
    assert len(service.fetches) == MAX_FETCHES_PER_NAMESPACE
    service.hangs = False
    views.state("modest", PRIVATE)
    await asyncio.sleep(1)
    assert views.state("modest", PRIVATE).value == Value(1)


async def test_nothing_is_fetched_or_kept_without_leadership(service: Service, views: Views) -> None:
    views.state("a", VIEW)
    await asyncio.sleep(5)
    await views.end_term()
    assert views.state("a", VIEW) == ViewState()
    await asyncio.sleep(50)
    assert len(service.fetches) == 1
